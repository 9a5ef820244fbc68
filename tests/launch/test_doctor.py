"""`strait doctor` on the real runtimes: green as it is, and red, in the right row, when any one thing that closes it is
taken away.

    python3 tests/launch/test_doctor.py [podman|rootless|docker]… --binary FILE

FILE is the static program. Each of `CASES` is a function of a `Bench`: a runtime that is up, with what the cases share.
What is taken away is taken from the runtime's command line, behind the doctor's back, by a program that stands in
front of the real one and has its name; so what is tried is what the doctor sees, and not what it was told.
"""

import argparse
import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import images
import runtimes

HERE = pathlib.Path(__file__).parent
# Seconds, for one examination.
PATIENCE = 90
# An origin in the world, and the service that tells clouds' secrets.
ORIGIN, METADATA = "93.184.216.34", "169.254.169.254"
# Rows that tell of a promise rather than of a hole.
PROMISES = {"listed", "tmp", "variables"}

_IN_FRONT = """\
#!/usr/bin/python3 -S
import os, subprocess, sys
REAL, EDITS = {real!r}, {edits!r}
words = sys.argv[1:]
for command, part, drop, replace, add, append, then in EDITS:
    if words[:len(command)] != command or not any(word.endswith("-" + part) for word in words):
        continue
    words = [word for word in words if not word.startswith(tuple(drop))]
    for old, new in replace:
        words = [word.replace(old, new) for word in words]
    words = command + add + words[len(command):] + append
    if then:
        name = next(word for word in words if word.startswith("--name=")).split("=")[1]
        made = subprocess.run([REAL, *words])
        if made.returncode == 0:
            outer = name[:-len(part)] + "out"
            made = subprocess.run([REAL, *(word.format(name=name, outer=outer) for word in then)])
        sys.exit(made.returncode)
os.execv(REAL, [REAL, *words])
"""


def edit(command, part, drop=(), replace=(), add=(), append=(), then=()):
    """What is changed in the command line that makes `part`: in, out, proxy, server or neighbour."""
    drop = list(drop) or ["\0"]
    return command.split(), part, drop, [list(each) for each in replace], list(add), list(append), list(then)


def server(**changes):
    return edit("create", "server", **changes)


def proxy(**changes):
    return edit("create", "proxy", **changes)


def inner(**changes):
    return edit("network create", "in", **changes)


class Bench:
    """A runtime, and how it is examined."""

    def __init__(self, runtime, binary):
        self.runtime = runtime
        self.binary = runtime.readable(binary)
        if pathlib.Path(self.binary) != pathlib.Path(binary).resolve():
            pathlib.Path(self.binary).chmod(0o755)
        image = images.busybox()
        runtime.load(image.archive)
        self.image = image.id
        self.real = f"/usr/bin/{self.kind}"
        self._count = 0

    @property
    def kind(self):
        return "docker" if self.runtime.name == "docker" else "podman"

    @property
    def is_podman(self):
        return self.kind == "podman"

    @property
    def has_limits(self):
        """Rootless podman has none on control groups of version 1."""
        return self.runtime.name != "rootless" or pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()

    def front(self, *edits):
        """A program in front of the real one, with its name."""
        self._count += 1
        folder = self.runtime.home / f"front-{self._count}"
        folder.mkdir(mode=0o755)
        program = folder / self.kind
        program.write_text(_IN_FRONT.format(real=self.real, edits=list(edits)))
        program.chmod(0o755)
        return program

    def examine(self, *edits, network=True, flags=(), **options):
        """The exit code and the rows by id; without edits, as it is."""
        program = self.front(*edits) if edits else self.real
        words = [self.binary, "doctor", "--json", f"--runtime={program}", f"--proxy-binary={self.binary}"]
        if not network or flags:
            words += [f"--image={self.image}", *flags]
        process = self.runtime.popen(words, **options)
        try:
            out, err = process.communicate(b"", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AssertionError("the doctor did not come to an end") from None
        try:
            report = json.loads(out)
        except json.JSONDecodeError:
            raise AssertionError(f"exit {process.returncode}, no table: {err.decode()}") from None
        rows = {row["id"]: row for row in report["rows"]}
        assert (process.returncode == 0) == report["is_sound"], (process.returncode, report["is_sound"])
        assert process.returncode in (0, 1), process.returncode
        left = self.runtime.containers(), self.runtime.networks()
        assert left == ([], []), f"left: {left}"
        return process.returncode, rows

    def red(self, *edits, rows, also=(), **options):
        """These rows are bad, and no other but for those that may be."""
        code, found = self.examine(*edits, **options)
        bad = {name: row for name, row in found.items() if row["state"] in ("open", "fails")}
        shown = {name: (row["state"], row["detail"]) for name, row in bad.items()}
        assert code == 1, f"exit {code}"
        assert set(rows) <= set(bad) <= set(rows) | set(also), f"wanted {sorted(rows)}, got {shown}"
        return found


# -- as it is --------------------------------------------------------------------------------------


def closed_with_a_network(bench):
    code, rows = bench.examine()
    for name, row in rows.items():
        wanted = {"works"} if name in PROMISES else {"closed"}
        if name in ("memory", "processes") and not bench.has_limits:
            wanted = {"not_in_force"}
        assert row["state"] in wanted, row
    assert code == 0


def closed_without_a_network(bench):
    code, rows = bench.examine(network=False)
    states = {name: row["state"] for name, row in rows.items()}
    assert code == 0, states
    assert not {"open", "fails"} & set(states.values()), states
    for name in "networks", "gateway", "host", "ipv6", "dns", "metadata", "containers", "unlisted", "root", "environment":
        assert states[name] == "closed", rows[name]


def closed_around_any_image(bench):
    """What an image asks for opens nothing, and a user, a folder or a variable of its own is no false alarm."""
    for user in "", "1000:1000":
        image = images.hostile(user=user)
        bench.runtime.load(image.archive)
        words = [bench.binary, "doctor", "--json", f"--runtime={bench.real}", f"--proxy-binary={bench.binary}",
                 f"--image={image.id}", "--allow=strait.invalid", "--secret=TOKEN"]
        ran = bench.runtime.popen(words, extra_env={"TOKEN": "1", "http_proxy": "http://strait.invalid:1"})
        out, err = ran.communicate(b"", timeout=PATIENCE)
        assert ran.returncode == 0, (user, out, err)


def closed_around_a_real_origin(bench):
    """A listed address in the world: reached by the proxy, and by nothing else."""
    with origins(bench):
        code, rows = bench.examine(flags=[f"--allow={ORIGIN}:443"])
    assert code == 0, rows
    assert rows["listed"]["state"] == "works" and rows["direct"]["state"] == "closed", rows


def the_table_fits_a_terminal(bench):
    words = [bench.binary, "doctor", f"--runtime={bench.real}", f"--proxy-binary={bench.binary}"]
    process = bench.runtime.popen(words)
    out, err = process.communicate(b"", timeout=PATIENCE)
    assert process.returncode == 0, err
    lines = out.decode().splitlines()
    assert lines and all(len(line) <= 80 for line in lines), out.decode()
    assert "What must be closed is closed" in out.decode()
    assert err == b"", err


# -- the network -----------------------------------------------------------------------------------


def open_without_internal(bench):
    drop = ["--internal"] if bench.is_podman else ["--internal", "--opt="]
    with origins(bench):
        bench.red(inner(drop=drop), flags=[f"--allow={ORIGIN}:443"],
                  rows=["default_route", "gateway", "host", "direct", "metadata"], also=["containers", "dns"])


def open_with_a_gateway(bench):
    if bench.is_podman:
        with resolver(bench):
            # podman's own name server is there a moment later, or not yet.
            bench.red(inner(drop=["--disable-dns"]), rows=["gateway"], also=["dns"])
    else:
        bench.red(inner(drop=["--opt="]), rows=["gateway", "default_route", "host"])


def open_by_ipv6(bench):
    # docker switches it off itself, unless told otherwise.
    changes = {"drop": ["--sysctl=net.ipv6"]} if bench.is_podman else {"replace": [("disable_ipv6=1", "disable_ipv6=0")]}
    rows = bench.red(server(**changes), rows=["ipv6"])
    if bench.runtime.name == "podman":
        assert "the host answers at fe80:" in rows["ipv6"]["detail"], rows["ipv6"]
    bench.red(proxy(**changes), rows=["proxy_ipv6"])


def open_by_dns(bench):
    with resolver(bench):
        bench.red(server(drop=["--dns="]), rows=["dns"])


def open_by_another_network(bench):
    then = ["network", "connect", "{outer}", "{name}"]
    with origins(bench):
        bench.red(server(then=then), rows=["networks", "default_route", "host", "metadata", "containers", "direct"],
                  also=["gateway", "dns"])


def open_through_the_proxys_container(bench):
    bench.red(proxy(drop=["--sysctl=net.ipv4.ip_forward"]), rows=["proxy_forwarding"])


def open_by_the_policy(bench):
    bench.red(proxy(append=["--allow=strait-doctor-unlisted.invalid:443"]), rows=["unlisted"])


def failing_without_the_policy(bench):
    bench.red(proxy(drop=["--allow="]), rows=["listed"])


# -- the container ---------------------------------------------------------------------------------


def open_with_capabilities(bench):
    bench.red(server(drop=["--cap-drop"]), rows=["capabilities"])
    bench.red(proxy(drop=["--cap-drop"]), rows=["proxy_confinement"])


def open_to_new_privileges(bench):
    drop = ["--security-opt=no-new-privileges"]
    bench.red(server(drop=drop), rows=["no_new_privileges"])
    bench.red(proxy(drop=drop), rows=["proxy_confinement"])


def open_by_a_proxy_that_is_root(bench):
    bench.red(proxy(drop=["--user="]), rows=["proxy_confinement"])


def open_to_system_calls(bench):
    bench.red(server(add=["--security-opt=seccomp=unconfined"]), rows=["seccomp"])


def open_to_writes(bench):
    bench.red(server(drop=["--read-only"]), rows=["root"])
    bench.red(proxy(drop=["--read-only"]), rows=["proxy_confinement"])
    if bench.is_podman:
        # It would put folders without a limit where programs like to write.
        bench.red(server(drop=["--read-only-tmpfs"]), rows=["root", "folders"])


def open_to_a_folder(bench):
    bench.red(server(add=["--volume=/:/host:ro"]), rows=["folders"])


def open_without_a_small_tmp(bench):
    bench.red(server(drop=["--tmpfs=/tmp"]), rows=["tmp"])


def open_to_the_hosts_addresses(bench):
    if bench.is_podman:
        bench.red(server(replace=[("target=/etc/hosts", "target=/tmp/hosts")]), rows=["hosts_file"], also=["folders"])
    else:
        bench.red(server(add=["--add-host=machine:203.0.113.1"]), rows=["hosts_file"])


def open_to_the_environment(bench):
    bench.red(server(add=["--env=STRAIT_DOCTOR_CANARY"]), rows=["environment"])


def failing_without_its_variables(bench):
    bench.red(server(drop=["--env=HTTPS_PROXY="]), rows=["variables"])


def open_without_limits(bench):
    if not bench.has_limits:
        return
    bench.red(server(drop=["--memory"]), rows=["memory"])
    bench.red(server(drop=["--memory-swap"]), rows=["memory"])
    bench.red(server(drop=["--pids-limit"]), rows=["processes"])


# -- its own end -----------------------------------------------------------------------------------


def nothing_is_left_behind(bench):
    """After a signal it cleans up; after SIGKILL its reaper does."""
    words = [bench.binary, "doctor", f"--runtime={bench.real}", f"--proxy-binary={bench.binary}"]
    for number, code in (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL):
        process = bench.runtime.popen(words)
        _until(lambda: len(bench.runtime.containers()) == 3, "three containers")
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == code, process.returncode
        _until(lambda: not bench.runtime.containers() and not bench.runtime.networks(), "nothing")


def _until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"there was never {what}"
        time.sleep(0.1)


CASES = [
    closed_with_a_network,
    closed_without_a_network,
    closed_around_any_image,
    closed_around_a_real_origin,
    the_table_fits_a_terminal,
    open_without_internal,
    open_with_a_gateway,
    open_by_ipv6,
    open_by_dns,
    open_by_another_network,
    open_through_the_proxys_container,
    open_by_the_policy,
    failing_without_the_policy,
    open_with_capabilities,
    open_to_new_privileges,
    open_by_a_proxy_that_is_root,
    open_to_system_calls,
    open_to_writes,
    open_to_a_folder,
    open_without_a_small_tmp,
    open_to_the_hosts_addresses,
    open_to_the_environment,
    failing_without_its_variables,
    open_without_limits,
    nothing_is_left_behind,
]


# -- the world -------------------------------------------------------------------------------------


@contextlib.contextmanager
def origins(bench):
    """Something that listens in the world, at an origin's address and at the metadata service's."""
    host = bench.runtime.host
    _publish(host, ORIGIN, METADATA)
    with host.listen(ORIGIN, 443, namespace=host.world), host.listen(METADATA, 80, namespace=host.world):
        yield


@contextlib.contextmanager
def resolver(bench):
    """A resolver that knows no name, where this machine's is: in the world, or on the host's loopback for docker, whose
    daemon sees another /etc/resolv.conf for that time. Queries to a loopback resolver are those that old daemons take
    out of internal networks (CVE-2024-29018)."""
    host = bench.runtime.host
    if bench.is_podman:
        lines = pathlib.Path("/etc/resolv.conf").read_text().splitlines()
        found = [line.split()[1] for line in lines if line.startswith("nameserver ") and "." in line]
        _publish(host, *(address for address in found if not address.startswith("127.")))
        with _answering(host, "0.0.0.0", host.world):
            yield
        return
    settings = bench.runtime.folder / "resolv.conf"
    settings.write_text("nameserver 127.0.0.1\n")
    daemon = ["nsenter", f"--target={bench.runtime.daemon_pid}", "--mount", "--"]
    subprocess.run([*daemon, "mount", "--bind", settings, "/etc/resolv.conf"], check=True, timeout=PATIENCE)
    try:
        with _answering(host, "127.0.0.1", host.name):
            yield
    finally:
        subprocess.run([*daemon, "umount", "/etc/resolv.conf"], check=True, timeout=PATIENCE)


@contextlib.contextmanager
def _answering(host, address, namespace):
    with host.inside(namespace):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))
    server.settimeout(0.1)
    over = threading.Event()

    def answer():
        while not over.is_set():
            with contextlib.suppress(OSError):
                query, client = server.recvfrom(4096)
                # An answer, recursion available, NXDOMAIN; the rest is the question's.
                server.sendto(query[:2] + b"\x81\x83" + query[4:], client)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        server.close()


def _publish(host, *addresses):
    # Again is an error, and no harm.
    for address in addresses:
        with contextlib.suppress(subprocess.CalledProcessError):
            host.publish(address)


# -- alone -----------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="podman, rootless, docker; all of them when none is named")
    parser.add_argument("--binary", required=True, type=pathlib.Path, help="the static program")
    parser.add_argument("--only", help="cases with this in their names")
    options = parser.parse_args()
    known = {kind.name: kind for kind in runtimes.KINDS}
    failed = 0
    for name in options.names or known:
        try:
            with known[name]() as runtime:
                bench = Bench(runtime, options.binary)
                for case in CASES:
                    if options.only and options.only not in case.__name__:
                        continue
                    try:
                        case(bench)
                        print(f"{name}: {case.__name__}: ok", flush=True)
                    except AssertionError as error:
                        failed += 1
                        print(f"{name}: {case.__name__}: FAILED: {error}", flush=True)
        except runtimes.Unavailable as error:
            print(f"{name}: NOT RUN: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
