"""A small DNS server whose every answer is scripted: what no well-behaved server can be made to say.

A zone is a dictionary from a name to what it has, by record type:

    {"api.example.com": {"A": ["198.51.100.10"], "AAAA": SILENCE}}

A value is a list of addresses, or one of the answers below. A name without the type asked for has no such
record (NODATA); a name that is not there does not exist (NXDOMAIN).

As a program it serves plain addresses, for the demo:  toy_dns.py 127.0.0.1:53 NAME=ADDRESS[,ADDRESS]…
"""

import dataclasses
import ipaddress
import socket
import struct
import sys
import threading
import time

_TYPES = {1: "A", 28: "AAAA", 5: "CNAME"}
_AUTHORITATIVE_RESPONSE = 0x8580  # QR, AA, RD, RA
_TRUNCATED = 0x0200
_NXDOMAIN = 3


class _Word:
    """An answer that needs no more than its name."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


SILENCE = _Word("SILENCE")
GARBAGE = _Word("GARBAGE")


@dataclasses.dataclass
class Code:
    """A response code and no record: 2 is SERVFAIL, 5 is REFUSED."""

    code: int


@dataclasses.dataclass
class Late:
    """The answer, `seconds` after the question."""

    seconds: float
    answer: object


@dataclasses.dataclass
class InTurn:
    """The first answer for the first question, and so on; the last one for all that follow."""

    answers: list


@dataclasses.dataclass
class Truncated:
    """Over UDP only that the answer is too long; over TCP the answer."""

    answer: object


@dataclasses.dataclass
class Alias:
    """A CNAME to a target given in wire bytes per label, and the target's addresses beside it."""

    labels: list
    addresses: list


@dataclasses.dataclass
class OtherName:
    """Addresses, but for a name that nobody asked for."""

    name: str
    addresses: list


class Server:
    """Answers on UDP and TCP until `close`; `questions` are the (name, type) pairs asked, in their order."""

    def __init__(self, zone, address, port=53, ttl=0):
        self.questions = []
        self._zone, self._ttl = zone, ttl
        self._lock = threading.Lock()
        self._turns = {}
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind((address, port))
        self._tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._tcp.bind((address, port))
        self._tcp.listen()
        serving = (self._serve_udp, self._serve_tcp)
        self._threads = [threading.Thread(target=serve, daemon=True) for serve in serving]
        for thread in self._threads:
            thread.start()

    def close(self):
        """Gives the address back: the next server may need it at once."""
        # shutdown() wakes a thread that waits in recvfrom or accept; close() alone would not.
        for open_socket in (self._udp, self._tcp):
            try:
                open_socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # UDP is never connected, and wakes all the same
            open_socket.close()
        for thread in self._threads:
            thread.join(5)

    def _serve_udp(self):
        while True:
            try:
                query, client = self._udp.recvfrom(4096)
                if not query:
                    return
            except OSError:
                return
            # A late answer must not hold up the others.
            threading.Thread(target=self._answer_udp, args=(query, client), daemon=True).start()

    def _answer_udp(self, query, client):
        response = self._respond(query, over_tcp=False)
        if response is not None:
            try:
                self._udp.sendto(response, client)
            except OSError:
                pass  # closed meanwhile

    def _serve_tcp(self):
        while True:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            threading.Thread(target=self._answer_tcp, args=(connection,), daemon=True).start()

    def _answer_tcp(self, connection):
        with connection, connection.makefile("rb") as stream:
            while len(prefix := stream.read(2)) == 2:
                query = stream.read(struct.unpack("!H", prefix)[0])
                response = self._respond(query, over_tcp=True)
                if response is None:
                    return
                connection.sendall(struct.pack("!H", len(response)) + response)

    def _respond(self, query, over_tcp):
        name, kind, question = _parse_question(query)
        with self._lock:
            self.questions.append((name, kind))
            answer = self._answer(name, kind)
        flags, records = _AUTHORITATIVE_RESPONSE, []
        if isinstance(answer, Late):
            time.sleep(answer.seconds)
            answer = answer.answer
        if isinstance(answer, Truncated):
            flags |= 0 if over_tcp else _TRUNCATED
            answer = answer.answer if over_tcp else []
        if answer is SILENCE:
            return None
        if answer is GARBAGE:
            return query[:2] + b"\xff" * 40
        if isinstance(answer, Code):
            flags |= answer.code
        elif isinstance(answer, Alias):
            target = b"".join(bytes([len(label)]) + label for label in answer.labels) + b"\0"
            records.append(_record(b"\xc0\x0c", 5, self._ttl, target))
            records += [self._address(target, kind, address) for address in answer.addresses]
        elif isinstance(answer, OtherName):
            owner = _wire_name(answer.name)
            records += [self._address(owner, kind, address) for address in answer.addresses]
        else:
            records += [self._address(b"\xc0\x0c", kind, address) for address in answer]
        records = [record for record in records if record]
        header = query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
        return header + question + b"".join(records)

    def _answer(self, name, kind):
        if name not in self._zone:
            return Code(_NXDOMAIN)
        answer = self._zone[name].get(kind, [])
        if isinstance(answer, InTurn):
            turn = self._turns.get((name, kind), 0)
            self._turns[name, kind] = turn + 1
            answer = answer.answers[min(turn, len(answer.answers) - 1)]
        return answer

    def _address(self, owner, kind, address):
        packed = ipaddress.ip_address(address).packed
        number = 1 if len(packed) == 4 else 28
        return _record(owner, number, self._ttl, packed) if _TYPES.get(number) == kind else None


def _parse_question(query):
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("latin-1"))
        at += 1 + length
    number = struct.unpack_from("!H", query, at + 1)[0]
    return ".".join(labels).lower(), _TYPES.get(number, str(number)), query[12 : at + 5]


def _record(owner, number, ttl, data):
    return owner + struct.pack("!HHIH", number, 1, ttl, len(data)) + data


def _wire_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def main():
    address, port = sys.argv[1].rsplit(":", 1)
    zone = {}
    for rule in sys.argv[2:]:
        name, addresses = rule.split("=")
        zone[name] = {"A": addresses.split(","), "AAAA": []}
    Server(zone, address, int(port))
    print(f"listening on {sys.argv[1]}", flush=True)
    sys.stdin.read()  # until whoever started this is done with it


if __name__ == "__main__":
    main()
