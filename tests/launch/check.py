#!/usr/bin/env python3
"""Does the ground of the launch tests hold? Each runtime is started, used, ended, and must leave nothing.

    tests/launch/check.py [podman] [rootless] [docker]        all three unless named

A container says something back; a real MCP server in Node and one in Python are greeted by the official client; an
image is pushed to a registry and pulled by digest; an internal network comes and goes. Then: no container, network,
process, mount, bridge, network namespace, firewall rule, user or folder that was not there before.

Last line `N passed, N failed`. Exit: 0 all passed, 1 something failed, 2 wrong usage, 77 no runtime could be had.
"""

import os
import pathlib
import pwd
import signal
import subprocess
import sys
import tempfile
import time

import host
import images
import mcp
import registry
import runtimes

# Seconds: for everything; for other people's containers on this machine to end.
WHOLE, PATIENCE = 900, 20


def says_back(runtime):
    ran = runtime.must("run", "--rm", "-i", "--pull=never", "--network=none", images.busybox().id, input="hello\n")
    assert ran == "hello\n", repr(ran)


def passes_exit_codes_on(runtime):
    for program, code in ("/server/exit", 42), ("/server/not-executable", 126), ("/nowhere", 127):
        words = [program, "42"] if code == 42 else [program]
        ran = runtime.run("run", "--rm", "--pull=never", "--network=none", images.busybox().id, *words)
        assert ran.returncode == code, f"{program}: exit {ran.returncode}: {ran.stderr}"


def runs_a_node_server(runtime):
    command = runtime.argv("run", "--rm", "-i", "--pull=never", "--network=none", images.node().id)
    report = mcp.talk(command, runtime.env, calls=[("echo", {"message": "hello"})])
    assert not report.error and "hello" in report.text(0), report
    return f"{len(report.tools)} tools, handshake {report.seconds['handshake']} s, end {report.seconds['shutdown']} s"


def runs_a_python_server(runtime):
    base = ["run", "--rm", "-i", "--pull=never", "--network=none", images.python().id]
    report = mcp.talk(runtime.argv(*base), runtime.env, calls=[("identity", {})])
    assert not report.error and report.json(0)["pid"] == 1, report
    report = mcp.talk(runtime.argv(*base, "python3", "-m", "mcp_server_time"), runtime.env, modern=True,
                      calls=[("get_current_time", {"timezone": "UTC"})])
    assert not report.error and "UTC" in report.text(0), report
    return f"mcp-server-time: handshake {report.seconds['handshake']} s"


def an_internal_network_comes_and_goes(runtime):
    runtime.must("network", "create", "--internal", "--label=strait-test=1", "--subnet=10.231.9.0/29", "checked")
    assert runtime.networks("label=strait-test=1") == ["checked"], runtime.networks()
    with runtime.host.listen(host.WORLD_ADDRESS, namespace=runtime.host.world) as listener:
        words = ["nc", "-w", "1", host.WORLD_ADDRESS, str(listener.getsockname()[1])]
        ran = runtime.run("run", "--rm", "--pull=never", "--network=checked", images.busybox().id, *words)
        assert ran.returncode != 0, "the world is reached from an internal network"
    runtime.must("network", "rm", "checked")
    assert runtime.networks() == [], runtime.networks()


def the_world_is_reached_from_an_ordinary_network(runtime):
    runtime.must("network", "create", "checked")
    public = "93.184.216.34"
    runtime.host.publish(f"{public}/32")
    with runtime.host.listen(public, namespace=runtime.host.world) as listener:
        listener.settimeout(20)
        words = ["nc", "-w", "5", public, str(listener.getsockname()[1])]
        with runtime.popen([runtime.program, "run", "--rm", "-i", "--pull=never", "--network=checked",
                            images.busybox().id, *words]) as process:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"hello from the world\n")
            out, err = process.communicate(timeout=20)
    assert out == b"hello from the world\n", (out, err)
    runtime.must("network", "rm", "checked")


def pulls_by_digest_from_a_registry(runtime):
    image = images.hostile()
    with registry.Registry(runtime) as local:
        name = local.push(image)
        runtime.must("rmi", image.tag)
        runtime.must("pull", name)
        assert runtime.image_id(name) == image.id, name
        # Under its own id, as everything else is run.
        runtime.must("rmi", name)
    return name


def a_stubborn_server_is_removed(runtime):
    words = ["run", "--rm", "-i", "--pull=never", "--network=none", images.busybox().id, "/server/stubborn"]
    with runtime.popen([runtime.program, *words]) as process:
        assert process.stderr.readline() == b"up\n"
        began = time.monotonic()
        runtime.remove_all()
        took = time.monotonic() - began
        process.communicate(timeout=20)
        assert process.returncode == 137, process.returncode
    assert runtime.containers() == [], runtime.containers()
    return f"{took:.2f} s"


def another_client_does_too(runtime):
    said = []
    for client in runtime.clients()[1:]:
        other = runtime.with_client(client)
        other.must("run", "--rm", "--pull=never", "--network=none", images.busybox().id, "true")
        said.append(other.version())
    return "; ".join(said) or "there is none"


CASES = [
    says_back,
    passes_exit_codes_on,
    runs_a_node_server,
    runs_a_python_server,
    an_internal_network_comes_and_goes,
    the_world_is_reached_from_an_ordinary_network,
    pulls_by_digest_from_a_registry,
    a_stubborn_server_is_removed,
    another_client_does_too,
]


# --- before and after -----------------------------------------------------------------------------


def machine():
    """What a runtime could leave on the machine, by kind. Others use it too: theirs does not have our name."""
    ours = f"{host.PREFIX}{os.getpid()}"

    def lines(*words):
        return subprocess.run(words, capture_output=True, text=True, timeout=60).stdout.splitlines()

    def rules(program):
        # Counters and comments change by themselves.
        return {line for line in lines(program) if not line.startswith(("#", ":"))}

    def words(path, number):
        with open(path, encoding="utf-8") as file:
            return {line.split()[number] for line in file}

    folders = tempfile.gettempdir(), "/var/tmp", "/dev/shm"
    return {
        "interface": {line.split(": ")[1].split("@")[0] for line in lines("ip", "-oneline", "link", "show")},
        "network namespace": {name for name in os.listdir("/run/netns") if name.startswith((ours, "netns-"))}
        if os.path.isdir("/run/netns") else set(),
        "firewall": rules("iptables-save") | rules("ip6tables-save"),
        "mount": {point for point in words("/proc/self/mountinfo", 4) if ours in point},
        "process": {f"{pid} {line}" for pid in runtimes.pids() if ours in (line := runtimes.command_line(pid))},
        "user": {entry.pw_name for entry in pwd.getpwall() if entry.pw_name == ours},
        "subordinate ids": {word for word in words("/etc/subuid", 0) | words("/etc/subgid", 0) if ours in word},
        "folder": {str(path) for place in folders for path in pathlib.Path(place).glob(f"{ours}*")},
        "/dev/net/tun": {oct(os.stat("/dev/net/tun").st_mode)} if os.path.exists("/dev/net/tun") else set(),
        "policy-rc.d": set(filter(os.path.exists, ["/usr/sbin/policy-rc.d"])),
    }


def check(kind):
    """Returns how many cases passed and failed; raises Unavailable."""
    before = machine()
    passed = failed = 0

    def case(name, run):
        nonlocal passed, failed
        began = time.monotonic()
        try:
            note = run()
        except (AssertionError, OSError, LookupError, ValueError, subprocess.SubprocessError,
                runtimes.Unavailable) as error:
            print(f"  FAIL  {name}: {error}", flush=True)
            failed += 1
        else:
            print(f"  ok    {name} ({time.monotonic() - began:.1f} s{f'; {note}' if note else ''})", flush=True)
            passed += 1

    runtime = kind()
    began = time.monotonic()
    try:
        with runtime:
            print(f"{runtime.name}: {runtime.version()}, started in {time.monotonic() - began:.1f} s", flush=True)
            for image in images.busybox(), images.hostile(), images.node(), images.python():
                runtime.load(image.archive)
                assert runtime.image_id(image.tag) == image.id, image
            for each in CASES:
                case(each.__name__.replace("_", " "), lambda each=each: each(runtime))
            case("no container and no network is left", lambda: left_inside(runtime))
            began = time.monotonic()
    except (runtimes.Failed, AssertionError, OSError, subprocess.SubprocessError) as error:
        print(f"  FAIL  {runtime.name}: {error}", flush=True)
        failed += 1
    case("nothing is left on the machine", lambda: left_outside(runtime, before, began))
    return passed, failed


def left_inside(runtime):
    found = runtime.containers() + runtime.networks()
    found += [link for link in runtime.host.links() if link != "docker0"]
    assert not found, found


def left_outside(runtime, before, began):
    took = time.monotonic() - began
    deadline = time.monotonic() + PATIENCE
    # Others use this machine too: what they brought meanwhile goes away again.
    while (found := differences(runtime, before)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not found, "; ".join(map(str.strip, found))
    return f"stopped in {took:.1f} s"


def differences(runtime, before):
    found = runtime.leftovers()
    for kind, now in machine().items():
        found += [f"{kind}: {each}" for each in sorted(now - before[kind])]
        # Another's container may have ended meanwhile.
        if kind != "network namespace":
            found += [f"{kind}: gone: {each}" for each in sorted(before[kind] - now)]
    return found


def stop(number, _frame):
    signal.signal(number, signal.SIG_IGN)
    sys.exit(f"check: stopped by {signal.Signals(number).name}")


def main(arguments):
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    known = {kind.name: kind for kind in runtimes.KINDS}
    if unknown := set(arguments) - set(known):
        print(f"check: no runtime {', '.join(sorted(unknown))} (see -h)", file=sys.stderr)
        return 2
    for each in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM:
        signal.signal(each, stop)
    signal.alarm(WHOLE)
    runtimes.install()
    passed = failed = 0
    for name in arguments or known:
        try:
            more = check(known[name])
        except runtimes.Unavailable as reason:
            print(f"SKIPPED: {name}: {reason}", flush=True)
            continue
        passed, failed = passed + more[0], failed + more[1]
    if passed + failed == 0:
        return 77
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
