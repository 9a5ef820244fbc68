"""The machine the runtimes believe they are on: a network namespace of its own, and a second one as its internet.

    host  203.0.113.1 ---- 203.0.113.2  world

Bridges, firewall rules, forwarding (docker switches it on, and sets the FORWARD policy to DROP), addresses and routes
of a container runtime belong to a network namespace. Run on the machine itself, they would change its firewall for
everybody, collide with what another runtime did there, and need a list of what to undo. Here they are gone with the
namespace. For the containers nothing is different: `host` is their host, with loopback services, an uplink, and a
default route. Nothing connects it to the real network, so no packet of a test can leave the machine.

`world` owns every address that a test calls public: `Host.publish("93.184.216.34")`. The containers' outer network
reaches it through the host's masquerading, as it would reach the real one.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

PREFIX = "strait-launch-"
# The uplink: documentation addresses, because they are nobody's, and global unicast for IPv6 likewise.
ADDRESS, WORLD_ADDRESS = "203.0.113.1", "203.0.113.2"
ADDRESS_V6, WORLD_ADDRESS_V6 = "2001:db8:9::1", "2001:db8:9::2"

_CLONE_NEWNET = 0x40000000
_ENDED = 5
_libc = ctypes.CDLL(None, use_errno=True)


class Host:
    """Made by `Host()`, there between `start()` and `stop()` or in a `with` block."""

    def __init__(self, name="host"):
        run = f"{PREFIX}{os.getpid()}"
        self.name, self.world = f"{run}-{name}", f"{run}-{name}-world"

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        sweep()
        for name in self.name, self.world:
            _ip("netns", "add", name)
        _ip("link", "add", "uplink", "netns", self.name, "type", "veth", "peer", "name", "uplink", "netns", self.world)
        ends = ((self.name, ADDRESS, ADDRESS_V6, WORLD_ADDRESS, WORLD_ADDRESS_V6),
                (self.world, WORLD_ADDRESS, WORLD_ADDRESS_V6, ADDRESS, ADDRESS_V6))
        for name, address, address_v6, other, other_v6 in ends:
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "uplink", "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "uplink")
            # Without `nodad` an IPv6 address is unusable for its first second.
            _ip("-n", name, "address", "add", f"{address_v6}/64", "dev", "uplink", "nodad")
            _ip("-n", name, "route", "add", "default", "via", other)
            _ip("-n", name, "-6", "route", "add", "default", "via", other_v6)
        # The far end of the internet answers; it does not send anything on.
        with self.inside(self.world):
            pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("0")

    def stop(self):
        """Ends what still runs in the two namespaces, and removes them."""
        for name in self.name, self.world:
            _remove(name)

    def publish(self, *addresses):
        """Gives addresses to `world`, so that servers there can listen on them."""
        for address in addresses:
            _ip("-n", self.world, "address", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))

    def command(self, *argv, namespace=None):
        """`argv` made to run in the namespace; the process keeps the id it is started with.

        Not `ip netns exec`, which mounts a new /sys over the one that has the control groups.
        """
        return ["nsenter", f"--net=/run/netns/{namespace or self.name}", "--", *map(str, argv)]

    @contextlib.contextmanager
    def inside(self, namespace=None):
        """Sockets made by this thread in the `with` block belong to the namespace, and stay there afterwards."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{namespace or self.name}") as there:
            _enter(there)
            try:
                yield
            finally:
                _enter(home)

    def listen(self, address="127.0.0.1", port=0, namespace=None):
        """A listening TCP socket on the host, or in the world."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with self.inside(namespace):
            listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen()
        return listener

    def links(self):
        """The names of the interfaces on the host, without its own two: bridges and their ports, when any are left."""
        listed = _ip("-n", self.name, "-oneline", "link", "show").splitlines()
        return sorted({line.split(": ")[1].split("@")[0] for line in listed} - {"lo", "uplink"})

    def processes(self):
        """The processes in the host's own namespace (containers have others)."""
        return pids_in(self.name)


def why_not():
    """Why namespaces cannot be made here, or None when they can."""
    if os.geteuid() != 0:
        return "needs root"
    probe = f"{PREFIX}{os.getpid()}-probe"
    try:
        _ip("netns", "add", probe)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespaces here ({getattr(error, 'stderr', None) or error})".replace("\n", " ")
    _remove(probe)
    return None


def sweep():
    """Removes what a run that was killed outright left behind: its process is gone, its namespaces are not."""
    for line in _ip("netns", "list").splitlines():
        found = re.match(rf"({PREFIX}(\d+)-[\w-]+)", line)
        if found and not pathlib.Path(f"/proc/{found[2]}").exists():
            _remove(found[1])


def pids_in(namespace):
    ran = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, timeout=30)
    return [int(word) for word in ran.stdout.split()]


def end(pids, seconds=_ENDED, at_once=False):
    """SIGTERM (unless `at_once`), then SIGKILL, to these processes; returns those that are still there."""
    for number in [signal.SIGKILL] if at_once else [signal.SIGTERM, signal.SIGKILL]:
        for pid in filter(alive, pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while any(map(alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)
    return [pid for pid in pids if alive(pid)]


def alive(pid):
    """A zombie is not: what became of it is between it and its parent."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _enter(namespace):
    if _libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30).stdout


def _remove(name):
    # Best effort: what is not there needs no removal. A name with our prefix is ours, and so is what runs in it.
    end(pids_in(name), at_once=True)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=30)
