"""A running `strait launch` as its client has it: three pipes, a process, and patience with an end.

    with stage.launch(image, "--allow", "listed.example.com") as session:
        session.greet()
        session.call("fetch", url="https://listed.example.com/")
        assert session.end() == 0
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time

import host

# Seconds: for an answer, or an end, that has no bound of its own.
PATIENCE = 30
# What a client gives between closing standard input and its first signal; launch promises less (DESIGN.md §5).
CLIENT, PROMISED = 2.0, 1.5


def eventually(condition, what, seconds=PATIENCE):
    """Polls until `condition()` is true and returns what it gave; fails, saying `what`, when it never is."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)  # the step of the polling, not the wait
    return found


class Stream:
    """What comes from a pipe, read as it comes."""

    def __init__(self, pipe):
        self._pipe = pipe
        self._bytes, self._taken, self._searched, self._ended = bytearray(), 0, 0, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        piece = b"."
        while piece:
            try:
                piece = os.read(self._pipe.fileno(), 1 << 16)
            except (OSError, ValueError):
                piece = b""
            with self._changed:
                self._bytes += piece
                self._ended = not piece
                self._changed.notify_all()

    def take(self, count, seconds=PATIENCE):
        """Exactly so many bytes."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(self._bytes) - self._taken >= count, seconds)
            piece = bytes(self._bytes[self._taken:self._taken + count])
            then = "the end" if self._ended else "no more"
            assert len(piece) == count, f"{len(piece)} of {count} bytes came, and {then}"
            self._taken += count
            return piece

    def line(self, seconds=PATIENCE):
        """The next line, with its end; what there is of it where the stream has ended."""
        with self._changed:
            self._searched = self._taken
            self._changed.wait_for(self._has_line, seconds)
            at = self._bytes.find(b"\n", self._searched)
            end = at + 1 if at >= 0 else len(self._bytes)
            assert at >= 0 or self._ended, f"no line within {seconds} s"
            line, self._taken = bytes(self._bytes[self._taken:end]), end
            return line

    def _has_line(self):
        found = self._ended or self._bytes.find(b"\n", self._searched) >= 0
        if not found:
            self._searched = len(self._bytes)
        return found

    def rest(self, seconds=PATIENCE):
        """What was not taken yet, up to the end."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the stream is still open after {seconds} s"
        return bytes(self._bytes[self._taken:])

    def text(self):
        """All that has come so far."""
        with self._changed:
            return bytes(self._bytes).decode("utf-8", "backslashreplace")

    def wait_for(self, text, seconds=PATIENCE):
        """All that has come, once `text` is in it."""
        with self._changed:
            found = self._changed.wait_for(lambda: text.encode() in self._bytes or self._ended, seconds)
        assert found and text in self.text(), f"not on the stream: {text!r}; it had: {self.text()[-2000:]}"
        return self.text()


class Session:
    """A process of ours with its pipes; killed when the `with` block is left, and waited for."""

    def __init__(self, process):
        self.process = process
        self.out, self.errors = Stream(process.stdout), Stream(process.stderr)
        self._id = 0
        self._closed_at = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            # What ends by itself leaves nothing for a later case to find.
            self.process.wait(CLIENT + CLIENT)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in self.process.stdout, self.process.stderr:
            pipe.close()

    @property
    def pid(self):
        return self.process.pid

    # -- bytes -----------------------------------------------------------------------------------

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def say_back(self, data=b"hello\n", seconds=PATIENCE):
        """Of a server that echoes: it is up, and what it says is what it was told."""
        self.send(data)
        said = self.out.take(len(data), seconds)
        assert said == data, f"{said[:80]!r} for {data[:80]!r}; {self.errors.text()[-500:]}"

    def close(self):
        """The end of its standard input."""
        if self._closed_at is None:
            self._closed_at = time.monotonic()
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def wait(self, seconds=PATIENCE):
        """Its exit code, once it has ended by itself."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {seconds} s; it said: {self.errors.text()[-500:]}") from None

    def end(self, seconds=PATIENCE):
        self.close()
        return self.wait(seconds)

    def signal(self, number, group=False):
        (os.killpg if group else os.kill)(self.pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    # -- MCP -------------------------------------------------------------------------------------

    def request(self, method, seconds=PATIENCE, **params):
        """The whole answer to a request."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self.send(json.dumps(message).encode() + b"\n")
        line = self.out.line(seconds)
        try:
            answer = json.loads(line)
        except ValueError:
            errors = self.errors.text()[-1000:]
            raise AssertionError(f"{method}: {line[:200]!r} is no answer; it said: {errors}") from None
        assert answer.get("id") == self._id, f"{method}: an answer to another request: {line[:200]!r}"
        return answer

    def greet(self):
        """The handshake; the server is up."""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        answer = self.request("initialize", **hello)
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return answer["result"]

    def call(self, tool, /, **arguments):
        """What a tool of toy_server.py returns."""
        answer = self.request("tools/call", name=tool, arguments=arguments)
        assert "result" in answer, f"{tool}: {answer}"
        [part] = answer["result"]["content"]
        try:
            return json.loads(part["text"])
        except ValueError:
            return part["text"]


def children(pid):
    """The processes that a process has started and that are still there."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                if parent == pid and host.alive(int(name)):
                    found.append(int(name))
    return found
