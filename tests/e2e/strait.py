"""The proxy under test, and what its audit must say.

Every test starts its own and ends it with `expect`, which stops the proxy, so that the audit is complete: as
many lines as attempts, no more, no fewer; and which compares it with what the wiretap saw leave the namespace.
"""

import ipaddress
import json
import os
import re
import subprocess
import sys

import processes
from network import DOCUMENTATION, PROXY_ADDRESS, RESOLVER, SCRIPTED_RESOLVER
from processes import Lines

LABEL = "lane"
_FIELDS = ["time", "event", "server", "id", "method", "host", "port", "allowed", "reason", "address", "ms"]
_CLOSE_FIELDS = ["time", "event", "server", "id", "to_origin", "from_origin", "ended", "ms"]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

# A name is asked for only after the policy said yes, an address dialled only after its check.
_BEFORE_DNS = re.compile(
    r"not_listed|bad_\w+|userinfo|absolute_https|target_too_long|head_\w+|full|loop|method_refused"
)
_BEFORE_DIAL = re.compile(rf"{_BEFORE_DNS.pattern}|\w+_address|dns_\w+")


def listed(method, host, port, address=None):
    """An attempt that was let through and done; `address` alone is an IPv4 or IPv6 address."""
    return _line(method, host, port, True, "listed", address)


def failed(method, host, port, reason, address=None):
    """An attempt that was let through and could not be done."""
    return _line(method, host, port, True, reason, address)


def refused(method, host, port, reason, address=None):
    """An attempt that the policy refused, or that was no request at all."""
    return _line(method, host, port, False, reason, address)


def _line(method, host, port, allowed, reason, address):
    line = {"method": method, "host": host, "port": port, "allowed": allowed, "reason": reason}
    if address:
        bracketed = f"[{address}]" if ":" in address else address
        line["address"] = f"{bracketed}:{port}"
    return {field: value for field, value in line.items() if value is not None}


def start(world, words, resolv_conf=None, hosts=None, files=None, stdin=subprocess.PIPE):
    """`strait proxy WORDS` in its namespace, as nobody, with these files in place of the machine's."""
    # It needs no privilege, so it gets none.
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
    argv = [*nobody, world.binary, "proxy", *words]
    if files:
        argv = ["prlimit", f"--nofile={files}:{files}", *argv]
    for path, text in (("/etc/resolv.conf", resolv_conf), ("/etc/hosts", hosts)):
        if text is not None:
            argv = _with_file(world.file(text), path, argv)
    return subprocess.Popen(
        world.network.command("proxy", *argv),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.defpath},
    )


def fail_to_start(world, words, **files):
    """Starts a proxy that must not start; its exit code and what it said."""
    with start(world, words, **files) as process:
        try:
            _, errors = process.communicate(timeout=processes.DEADLINE)
        except BaseException:
            process.kill()
            raise
    return process.returncode, errors.decode()


class Proxy:
    """`strait proxy` with only what `allow` lists."""

    def __init__(
        self,
        world,
        allow=(),
        allow_net=DOCUMENTATION,
        listen=f"{PROXY_ADDRESS}:0",
        resolver=RESOLVER,
        lifeline=True,
        log_close=True,
        files=None,
        resolv_conf=None,
        hosts=None,
        **limits,
    ):
        """`limits` are flags by their names: `dns_timeout="1s"`; `files` limits its file descriptors."""
        words = ["--name", LABEL, "--listen", listen]
        for flag, values in (("--allow", allow), ("--allow-net", allow_net)):
            for value in values:
                words += [flag, value]
        words += ["--resolver", resolver] if resolver else []
        words += ["--log-close"] if log_close else []
        words += [] if lifeline else ["--no-lifeline"]
        for limit, value in limits.items():
            words += [f"--{limit.replace('_', '-')}", str(value)]

        self._world = world
        self._log_close = log_close
        self._resolvers = {RESOLVER, SCRIPTED_RESOLVER, resolver}
        world.wiretap.take()  # what came before is not this proxy's
        stdin = subprocess.PIPE if lifeline else subprocess.DEVNULL
        self.process = start(world, words, resolv_conf, hosts, files, stdin)
        self._stdout, self._stderr = Lines(self.process.stdout), Lines(self.process.stderr)
        try:
            ready = self._stderr.wait_for(listening_on)
            assert ready, f"the proxy did not get ready: {self.errors}"
        except BaseException:
            processes.end(self.process)
            raise
        self.address = (ready[1], int(ready[2]))
        self.url = f"http://{ready[1]}:{ready[2]}"

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        processes.end(self.process)
        if failure and self.errors:
            print(f"the proxy's standard error:\n{self.errors[-2000:]}", file=sys.stderr)
        for lines in (self._stdout, self._stderr):
            lines.to_end()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()

    @property
    def errors(self):
        """What it said on standard error."""
        return "".join(self._stderr.all())

    def egress(self):
        """The attempts' lines so far."""
        return [line for line in self._parsed() if line["event"] == "egress"]

    def closes(self):
        """The close lines so far."""
        return [line for line in self._parsed() if line["event"] == "close"]

    def wait_for_egress(self, count, seconds=processes.DEADLINE):
        processes.eventually(lambda: len(self.egress()) >= count, f"{count} audit lines", seconds)
        return self.egress()

    def wait_for_close(self, count=1):
        processes.eventually(lambda: len(self.closes()) >= count, f"{count} close lines: {self._stdout.all()}")
        return self.closes()

    def cut_lifeline(self):
        """Ends its standard input, as a host that died would."""
        self.process.stdin.close()

    def exit_code(self, seconds=processes.DEADLINE):
        """Waits for it to end by itself."""
        return self.process.wait(seconds)

    def expect(self, *lines, tried=(), aliases=(), stop=True):
        """Stops the proxy and compares: the audit holds `lines`, one each in this order, and nothing else;
        what left its namespace is what they account for, beside dials of the `tried` addresses that did not
        answer, and questions for the `aliases` that an answer named."""
        self._stdout.wait_for(lambda seen: sum('"event":"egress"' in line for line in seen) >= len(lines))
        if stop:
            self.cut_lifeline()
            code = self.exit_code()
            assert code == 0, f"exit code {code}: {self.errors}"
        self._stdout.to_end()
        seen = [self._checked(line) for line in self._parsed()]
        attempts = [line for line in seen if line["event"] == "egress"]
        found = [_matching(attempt, wanted) for attempt, wanted in zip(attempts, lines, strict=False)]
        assert len(attempts) == len(lines) and found == list(lines), (
            f"\n  wanted {len(lines)}: "
            + "\n    ".join(map(json.dumps, lines))
            + f"\n  audited {len(attempts)}: "
            + "\n    ".join(map(json.dumps, attempts))
        )
        self._check_ids(attempts, [line for line in seen if line["event"] == "close"])
        self.check_packets(tried, aliases)

    def _parsed(self):
        return [json.loads(line) for line in self._stdout.all()]

    def _checked(self, line):
        fields = _CLOSE_FIELDS if line["event"] == "close" else _FIELDS
        assert list(line) == [field for field in fields if field in line], f"fields of {line}"
        assert _TIME.fullmatch(line["time"]) and line["server"] == LABEL, line
        assert isinstance(line["ms"], int) and line["ms"] >= 0, line
        return line

    def _check_ids(self, attempts, closes):
        ids = [line["id"] for line in attempts]
        assert len(set(ids)) == len(ids), f"an id stands twice: {ids}"
        begun = sorted(line["id"] for line in attempts if line["reason"] == "listed")
        ended = sorted(line["id"] for line in closes)
        assert ended == (begun if self._log_close else []), f"close lines of {ended}, let through {begun}"

    def check_packets(self, tried=(), aliases=()):
        """What left the namespace since the proxy was started is what its audit accounts for."""
        attempts = self.egress()
        packets = self._world.wiretap.take()
        may_ask = {line["host"] for line in attempts if not _BEFORE_DNS.fullmatch(line["reason"])}
        may_ask |= set(aliases)
        dialled = [line for line in attempts if not _BEFORE_DIAL.fullmatch(line["reason"])]
        may_dial = {line["address"] for line in dialled if "address" in line} | set(tried)
        for packet in packets:
            address = ipaddress.ip_address(packet.address)
            to_resolver = packet.address in self._resolvers
            if packet.kind == "query":
                assert to_resolver and packet.name in may_ask, f"a query nobody allowed: {packet}"
            elif packet.kind == "dial" and to_resolver:
                assert packet.port == 53, f"a dial of the resolver: {packet}"
            elif packet.kind == "dial":
                name = f"[{address}]" if address.version == 6 else str(address)
                assert f"{name}:{packet.port}" in may_dial, f"a dial nobody allowed: {packet}; may: {may_dial}"
            else:
                # The kernel tells a resolver that answers too late that nobody listens any more.
                assert to_resolver, f"a packet nobody expected: {packet}"


def listening_on(lines):
    """The readiness line among `lines`: a match with the address and the port."""
    return re.search(r"listening on ([\d.]+):(\d+)", "".join(lines))


def _matching(attempt, wanted):
    """The attempt with only the fields that are compared; an address counts where the test gives one."""
    return {
        field: attempt[field]
        for field in ("method", "host", "port", "allowed", "reason", "address")
        if field in attempt and (field != "address" or "address" in wanted)
    }


def _with_file(replacement, path, argv):
    # `ip netns exec` has given the process a mount namespace of its own: nobody else sees this.
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    return ["sh", "-c", script, "sh", replacement, path, *argv]
