"""Three network namespaces in a row, joined by veth pairs and by nothing else:

    client  192.0.2.2 ---- 192.0.2.1  proxy  198.51.100.1 ---- 198.51.100.2  net

`client` has no route beyond its own link, so whatever a client there reaches, it reached through the
proxy. `net` plays the internet: it owns the documentation addresses the origins listen on, and also the
forbidden ones (private, metadata, translated), so that a proxy which wrongly dials one gets an answer and is
found out. Nothing is connected to the machine's own network: no packet of a test can leave it.
"""

import atexit
import contextlib
import ctypes
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

CLIENT_ADDRESS = "192.0.2.2"
PROXY_ADDRESS = "192.0.2.1"

RESOLVER = "198.51.100.53"
ORIGIN = "198.51.100.10"
ORIGIN_V6 = "2001:db8:2::10"
SCRIPTED_ORIGIN = "198.51.100.20"
SCRIPTED_RESOLVER = "198.51.100.54"

# Routed to `net` but owned by nobody there: packets vanish without an answer, as in a broken network.
BLACK_HOLE = "203.0.113.66"
BLACK_HOLE_V6 = "2001:db8:dead::1"
# The proxy's own kernel has no route to it, so connect() fails at once.
UNREACHABLE = "203.0.113.77"
# Every address in it is an origin (for answers with very many addresses).
CROWD = "203.0.113.128/25"

# What the tests open with --allow-net: documentation addresses are refused without.
DOCUMENTATION = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"]

# Owned by `net` as a bait: a proxy that dials one would succeed.
FORBIDDEN = [
    "10.0.0.5",
    "169.254.169.254",
    "100.100.100.200",
    "64:ff9b::a9fe:a9fe",
    "fd00:ec2::254",
]

_PREFIX = "strait-e2e-"
_NAMES = ("client", "proxy", "net")
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class Network:
    """The namespaces of this run; made by `Network()`, gone after `remove()`, also when Python exits early."""

    def __init__(self):
        sweep()
        self._run = f"{_PREFIX}{os.getpid()}"
        # Before the first namespace: a signal in the middle of the set-up must not leave half of it behind.
        atexit.register(self.remove)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda received, _frame: sys.exit(128 + received))

        for name in _NAMES:
            _ip("netns", "add", self.name(name))
        self._link("client", "proxy", f"{CLIENT_ADDRESS}/24", f"{PROXY_ADDRESS}/24")
        self._link("proxy", "net", "198.51.100.1/24", "198.51.100.2/24")
        self._address("proxy", "2001:db8:1::1/64", "to-net")
        self._address("net", "2001:db8:1::2/64", "to-proxy")
        self._route("proxy", "default", "via", "198.51.100.2")
        self._route("proxy", "default", "via", "2001:db8:1::2")
        self._route("proxy", "unreachable", UNREACHABLE)

        for address in (RESOLVER, ORIGIN, SCRIPTED_ORIGIN, SCRIPTED_RESOLVER, ORIGIN_V6, *FORBIDDEN):
            self._address("net", address, "lo")
        self._route("net", "local", CROWD, "dev", "lo")
        # The way back to the proxy for everything else, so that a wrong dial would complete.
        self._route("net", "default", "via", "198.51.100.1")

        for name in _NAMES:
            with self.inside(name):
                # Two interfaces must not make a router, whatever the machine's defaults are.
                pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
                pathlib.Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("0")

    def name(self, name):
        """The name `ip netns` knows the namespace by."""
        return f"{self._run}-{name}"

    def command(self, name, *argv):
        """`argv` made to run in the namespace; the process keeps the id it is started with."""
        return ["ip", "netns", "exec", self.name(name), *map(str, argv)]

    @contextlib.contextmanager
    def inside(self, name):
        """Sockets made by this thread in the `with` block belong to the namespace, and stay there afterwards."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.name(name)}") as there:
            _enter(there)
            try:
                yield
            finally:
                _enter(home)

    def connect(self, address, port, timeout=10):
        """A TCP connection from the client's namespace."""
        with self.inside("client"):
            return socket.create_connection((address, port), timeout)

    def remove(self):
        """Removes the namespaces and whatever still runs in them; their links and addresses go with them."""
        atexit.unregister(self.remove)
        for name in _NAMES:
            _remove(self.name(name))

    def _link(self, left, right, left_address, right_address):
        _ip(
            *("link", "add", f"to-{right}", "netns", self.name(left), "type", "veth"),
            *("peer", "name", f"to-{left}", "netns", self.name(right)),
        )
        self._address(left, left_address, f"to-{right}")
        self._address(right, right_address, f"to-{left}")
        for name, device in ((left, f"to-{right}"), (right, f"to-{left}")):
            for up in (device, "lo"):
                _ip("-n", self.name(name), "link", "set", up, "up")

    def _address(self, name, address, device):
        # Without `nodad` an IPv6 address is unusable for its first second.
        nodad = ["nodad"] if ":" in address else []
        _ip("-n", self.name(name), "address", "add", address, "dev", device, *nodad)

    def _route(self, name, *words):
        family = "-6" if any(":" in word for word in words) else "-4"
        _ip("-n", self.name(name), family, "route", "add", *words)


def why_not():
    """Why namespaces cannot be made here, even by root, or None when they can."""
    probe = f"{_PREFIX}{os.getpid()}-probe"
    try:
        _ip("netns", "add", probe)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here ({getattr(error, 'stderr', None) or error})".replace("\n", " ")
    _remove(probe)
    return None


def sweep():
    """Removes what a run that was killed outright left behind: its process is gone, its namespaces are not."""
    for line in _ip("netns", "list").splitlines():
        found = re.match(rf"({_PREFIX}(\d+)-\w+)", line)
        if found and not pathlib.Path(f"/proc/{found[2]}").exists():
            _remove(found[1])


def _enter(namespace):
    if _libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words):
    ran = subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
    return ran.stdout


def _remove(name):
    # Removing is best effort and goes on: what is not there needs no removal. A name with our prefix and a
    # process id is this lane's own, and so is every process in it.
    inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
    for process in map(int, inside.stdout.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)
