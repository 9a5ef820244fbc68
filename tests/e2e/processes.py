"""Child processes: started, watched for the line that says they are ready, ended by their own id."""

import subprocess
import threading
import time

DEADLINE = 10


def eventually(condition, what, seconds=DEADLINE):
    """Waits until `condition()` is true and returns what it gave; fails, saying `what`, when it never is."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)  # the step of the polling, not the wait
    return value


class Lines:
    """The lines of a stream, read as they come."""

    def __init__(self, stream):
        self._lines, self._ended = [], False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream):
        for line in stream:
            with self._changed:
                self._lines.append(line.decode("utf-8", "backslashreplace"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def all(self):
        with self._changed:
            return list(self._lines)

    def wait_for(self, condition, seconds=DEADLINE):
        """Waits until `condition(lines)` gives something true, the stream ends, or it is too late."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or condition(self._lines), seconds)
            return condition(self._lines)

    def to_end(self, seconds=DEADLINE):
        """All lines, once the stream has ended."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the stream is still open after {seconds} s"
        return self.all()


class Service:
    """A helper process that runs until `stop`; its output goes to a log that a failure shows."""

    def __init__(self, argv, log, ready, env=None):
        """`ready()` says whether the service can be used."""
        self._log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
        eventually(lambda: ready() or self._has_died(), f"{argv} is ready")

    def _has_died(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.process.args} ended: {self._log.read_text()[-2000:]}")

    def stop(self):
        end(self.process)


def end(process):
    """Asks a process of ours to stop, and makes it when it does not listen."""
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
