"""An origin whose behaviour a test writes down: a function that is given each connection in turn."""

import socket
import threading

from network import SCRIPTED_ORIGIN
from processes import DEADLINE
from wire import Wire


class ScriptedOrigin:
    """Runs `script(wire)` for every connection, on a port of its own. A script that fails fails the test."""

    def __init__(self, network, script, address=SCRIPTED_ORIGIN):
        self._script, self._failures, self._threads = script, [], []
        with network.inside("net"):
            self._listener = socket.create_server((address, 0), backlog=1024)
        self.port = self._listener.getsockname()[1]
        self.connections = 0
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._listener.close()
        for thread in [self._accepting, *self._threads]:
            thread.join(DEADLINE)
        # The test's own failure says more than what it led to here.
        if self._failures and not failed:
            raise AssertionError(f"the origin's script: {self._failures[0]!r}") from self._failures[0]

    def is_done(self):
        """Whether the script has ended, on every connection so far."""
        return not any(thread.is_alive() for thread in self._threads)

    def _accept(self):
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(accepted,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, accepted):
        with Wire(accepted) as wire:
            try:
                self._script(wire)
            except Exception as failure:  # the script is the test's code: anything it raises is news
                self._failures.append(failure)
