"""Bytes on a connection, for tests that say exactly what is sent and what must come back.

Every read has a deadline: a proxy that hangs fails the test, it does not hang the lane.
"""

import re
import socket
import struct

DEADLINE = 10


class Closed(Exception):
    """The other side ended or reset the connection before what was waited for."""


class Wire:
    """One side of a TCP connection."""

    def __init__(self, connected):
        self.socket = connected
        self.socket.settimeout(DEADLINE)
        self._unread = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def finish(self):
        """Ends this direction only (half-close)."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        """Ends both directions with an RST, as a crashed peer's kernel does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def read(self, count):
        """Exactly `count` bytes."""
        while len(self._unread) < count:
            self._more()
        return self._take(count)

    def read_until(self, mark):
        """Everything up to `mark`, which is included."""
        while mark not in self._unread:
            self._more()
        return self._take(self._unread.index(mark) + len(mark))

    def read_head(self):
        """The next message's head."""
        return Head(self.read_until(b"\r\n\r\n"))

    def read_to_end(self):
        """Everything until the other side ends in order; a reset is `Closed`."""
        try:
            while True:
                self._more()
        except Closed as closed:
            if "reset" in str(closed):
                raise
        return self._take(len(self._unread))

    def read_response(self, to_head=False):
        """A response with its body, read as RFC 9112 §6.3 says; `Closed` when the body is cut short."""
        head = self.read_head()
        if to_head or head.status in (204, 304) or 100 <= head.status < 200:
            return Response(head, b"")
        if "chunked" in head.get("transfer-encoding", ""):
            return Response(head, self.read_chunks())
        if (length := head.get("content-length")) is not None:
            return Response(head, self.read(int(length)))
        return Response(head, self.read_to_end())

    def read_chunks(self):
        """A chunked body, its trailer section dropped."""
        body = b""
        while size := int(self.read_until(b"\r\n").split(b";")[0], 16):
            body += self.read(size)
            self.read(2)
        while self.read_until(b"\r\n") != b"\r\n":
            pass
        return body

    def is_gone(self):
        """Whether the other side ends the connection, in order or by a reset, and sends nothing before."""
        try:
            self._more()
        except Closed:
            return True
        return False

    def _take(self, count):
        data = bytes(self._unread[:count])
        del self._unread[:count]
        return data

    def _more(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError as error:
            raise Closed(f"reset after {bytes(self._unread[:200])!r}") from error
        except TimeoutError as error:
            raise TimeoutError(f"nothing in {DEADLINE} s after {bytes(self._unread[:200])!r}") from error
        if not data:
            raise Closed(f"ended after {bytes(self._unread[:200])!r}")
        self._unread += data


class Head:
    """The first line and the fields of a message."""

    def __init__(self, raw):
        self.raw = raw
        self.first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        self.fields = [tuple(line.split(": ", 1)) for line in lines if ": " in line]

    @property
    def status(self):
        return int(self.first.split(" ")[1])

    @property
    def names(self):
        return [name.lower() for name, _ in self.fields]

    def all(self, name):
        return [value for field, value in self.fields if field.lower() == name]

    def get(self, name, default=None):
        values = self.all(name)
        return ", ".join(values) if values else default


class Response:
    """A head and its whole body."""

    def __init__(self, head, body):
        self.head, self.body, self.status = head, body, head.status

    @property
    def code(self):
        """Our refusal code, from Proxy-Status."""
        found = re.fullmatch(r'strait; error=\w+; details="(\w+)"', self.head.get("proxy-status", ""))
        return found and found[1]
