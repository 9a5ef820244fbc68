"""However a launch ends, nothing is left of it, and soon.

The cases in QUIET take times; they are run when nothing else is.
"""

import contextlib
import os
import signal
import subprocess
import time

import host
import images
import runtimes
from session import CLIENT, PROMISED, Session, children, eventually
from stage import LISTED, Skip

# Seconds. For a runtime that was killed in the middle of something to have it removed; for docker's daemon to be back.
KILLED, RESTARTED = 30, 60
KILLS_AT_START = 10
# How often a time is taken: the best of them counts, because the machine has other things to do.
ROUNDS = 3


def stubborn(stage, *flags, **options):
    """A server that ends for nothing but SIGKILL; it is up."""
    server = stage.launch(images.busybox(), *flags, "--command", "/server/stubborn", **options)
    server.errors.wait_for("up\n")
    return server


def echo(stage, *flags, **options):
    server = stage.launch(images.busybox(), *flags, **options)
    server.say_back()
    return server


def reaper_of(server):
    """The process id of a launch's reaper."""
    def found():
        return [pid for pid in children(server.pid) if runtimes.command_line(pid).endswith("strait reap")]

    return eventually(found, "the launch has a reaper")[0]


def commands(stage):
    """The runtime's commands that are under way."""
    lines = {pid: runtimes.command_line(pid) for pid in runtimes.pids()}
    return [f"{pid} {line[:300]}" for pid, line in lines.items() if f"/{stage.kind} " in line and "strait-" in line]


# -- its client ------------------------------------------------------------------------------------


def ended_by(stage, start, end, code):
    """Starts, ends and takes the time, a few times; nothing is left when it has ended."""
    times = []
    for _ in range(ROUNDS):
        with start(stage, "--allow", LISTED) as server:
            began = time.monotonic()
            end(server)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(2 * CLIENT)
            late = [] if server.process.poll() is not None else commands(stage)
            got = server.wait()
            times.append(time.monotonic() - began)
            assert not late, f"it took {times[-1]:.2f} s: a client would have killed it; meanwhile {late}"
            assert got == code, f"exit {got} and not {code}: {server.errors.text()}"
        # The runtime's own processes may take a moment longer; what the user can see may not.
        left = stage.runtime.containers() + stage.runtime.networks()
        assert not left, f"left when it had ended: {left}"
        if min(times) < PROMISED:
            break
    assert min(times) < PROMISED, f"it took {min(times):.2f} s at best"
    stage.nothing_is_left()
    return f"{min(times):.2f} s"


def standard_input_ends(stage):
    return ended_by(stage, echo, lambda server: server.close(), 0)


def standard_input_ends_and_the_server_does_not_care(stage):
    return ended_by(stage, stubborn, lambda server: server.close(), 137)


def SIGTERM(stage):
    return ended_by(stage, echo, lambda server: server.signal(signal.SIGTERM), 0)


def SIGTERM_to_a_stubborn_server(stage):
    return ended_by(stage, stubborn, lambda server: server.signal(signal.SIGTERM), 128 + signal.SIGTERM)


def SIGINT(stage):
    return ended_by(stage, stubborn, lambda server: server.signal(signal.SIGINT), 128 + signal.SIGINT)


def SIGINT_to_the_whole_process_group(stage):
    return ended_by(stage, stubborn, lambda server: server.signal(signal.SIGINT, group=True), 128 + signal.SIGINT)


def SIGHUP(stage):
    return ended_by(stage, stubborn, lambda server: server.signal(signal.SIGHUP), 128 + signal.SIGHUP)


def SIGTERM_while_it_starts(stage):
    for seconds in 0.05, 0.3, 0.6:
        with stage.launch(images.busybox(), "--allow", LISTED) as server:
            time.sleep(seconds)  # where in the start it comes is the point, and any place will do
            server.signal(signal.SIGTERM)
            code = server.wait()
            assert code in (0, 128 + signal.SIGTERM, -signal.SIGTERM), f"exit {code}: {server.errors.text()}"
        stage.nothing_is_left()


def its_output_is_closed(stage):
    with stage.launch(images.busybox(), "--allow", LISTED, "--command", "/bin/sh",
                      arguments=["-c", "while :; do echo here; done"]) as server:
        server.out.take(5)
        read_end = server.process.stdout.fileno()
        # The reading thread may be in the middle of a read: what it holds is the pipe, whatever the number is.
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), read_end)
        code = server.wait()
    stage.nothing_is_left()
    return f"exit {code}"


_CLIENT = """
import subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
server.stdin.write(b"hello\\n")
server.stdin.flush()
print(server.stdout.readline().decode(), end="", flush=True)
print(server.pid, flush=True)
server.wait()
"""


def its_client_is_killed(stage):
    words = stage.words(images.busybox(), "--allow", LISTED)
    with Session(stage.runtime.popen(["/usr/bin/python3", "-c", _CLIENT, *words])) as client:
        assert client.out.line() == b"hello\n", client.errors.text()
        launch = int(client.out.line())
        client.kill()
        eventually(lambda: not host.alive(launch), "the launch has ended")
        stage.nothing_is_left()


# -- killed ----------------------------------------------------------------------------------------


def SIGKILL_while_it_runs(stage):
    for start in echo, stubborn:
        with start(stage, "--allow", LISTED) as server:
            server.kill()
            began = time.monotonic()
            stage.nothing_is_left(KILLED)
    return f"{time.monotonic() - began:.1f} s"


def SIGKILL_at_any_moment_of_its_start(stage):
    moments = []
    began = time.monotonic()
    with stage.launch(images.busybox(), "--allow", LISTED) as server:
        server.say_back()
        whole = time.monotonic() - began
    for _ in range(KILLS_AT_START):
        moments.append(stage.random.uniform(0, 1.1 * whole))
        with stage.launch(images.busybox(), "--allow", LISTED, "--command", "/server/stubborn") as server:
            time.sleep(moments[-1])
            server.kill()
    stage.nothing_is_left(KILLED)
    return "after " + ", ".join(f"{moment:.2f}" for moment in moments) + f" s of {whole:.2f} s"


def kill_with_its_reaper(stage, name):
    """Kills a launch and its reaper; what is left after what ends by itself has."""
    with stubborn(stage, "--name", name, "--allow", LISTED) as server:
        os.kill(reaper_of(server), signal.SIGKILL)
        server.kill()
    # The proxy ends by its lifeline, whoever is dead.
    def of_it():
        return [each for each in stage.names() if each.startswith(f"strait-{name}-")]

    eventually(lambda: not any(each.endswith("-proxy") for each in of_it()), "the proxy has ended")
    assert of_it(), "nothing is left to be removed: the case shows nothing"


def sweep_removes_what_is_left_without_a_reaper(stage):
    with echo(stage, "--name", "alive", "--allow", LISTED) as alive:
        kill_with_its_reaper(stage, "dead")
        code, out, errors = stage.ran("sweep", f"--runtime={stage.kind}")
        assert code == 0, (code, out, errors)
        removed = [line.split()[:2] for line in out.splitlines()]
        assert ["removed", "container"] in removed and removed.count(["removed", "network"]) == 2, out
        assert "alive" not in out, out
        alive.say_back()
        assert alive.end() == 0
    stage.nothing_is_left()
    code, out, errors = stage.ran("sweep", f"--runtime={stage.kind}")
    assert (code, out) == (0, "nothing is left of dead launches\n"), (code, out, errors)


def the_next_launch_removes_what_is_left_without_a_reaper(stage):
    kill_with_its_reaper(stage, "dead")
    with echo(stage, "--name", "next", "--allow", LISTED) as server:
        eventually(lambda: not any("dead" in each for each in stage.names() + stage.runtime.networks()),
                   "the next launch has removed it")
        server.say_back()
        assert server.end() == 0
        errors = server.errors.rest().decode()
    assert "which a dead launch left" in errors, errors
    stage.nothing_is_left()


# -- its containers --------------------------------------------------------------------------------


def the_proxy_is_killed_and_the_server_is_stopped(stage):
    with stubborn(stage, "--allow", LISTED) as server:
        stage.runtime.must("kill", stage.container("proxy"))
        assert server.wait() == 125
        assert "the proxy has ended; the server is stopped" in server.errors.text(), server.errors.text()
    stage.nothing_is_left()


def the_server_is_killed(stage):
    with echo(stage, "--allow", LISTED) as server:
        stage.runtime.must("kill", stage.container("server"))
        assert server.wait() == 137
    stage.nothing_is_left()


def the_server_ends_by_itself(stage):
    for code in 0, 7:
        with stage.launch(images.busybox(), "--allow", LISTED, "--command", "/server/exit",
                          arguments=[str(code)]) as server:
            got = server.wait()
            assert got == code, f"exit {got} and not {code}: {server.errors.text()}"
        stage.nothing_is_left()


def a_program_that_cannot_be_started(stage):
    for program, code in ("/server/not-executable", 126), ("/nowhere", 127):
        with stage.launch(images.busybox(), "--allow", LISTED, "--command", program) as server:
            got = server.wait()
            assert got == code, f"{program}: exit {got} and not {code}: {server.errors.text()}"
        stage.nothing_is_left()


def dockers_daemon_stops_and_comes_back(stage):
    if not stage.is_docker:
        raise Skip("there is no daemon")
    with stubborn(stage, "--allow", LISTED) as server:
        stage.runtime.stop_daemon()
        try:
            code = server.wait(KILLED)
        finally:
            stage.runtime.start_daemon()
        began = time.monotonic()
        said = server.errors.text()
    stage.nothing_is_left(RESTARTED)
    assert code != 0, said
    return f"exit {code}; {time.monotonic() - began:.1f} s after it was back"


def two_launches_of_one_server_at_once(stage):
    servers = [stage.launch(images.busybox(), "--name", "twin", "--allow", LISTED) for _ in range(2)]
    with servers[0] as one, servers[1] as other:
        one.say_back(b"one\n")
        other.say_back(b"other\n")
        assert len(stage.names()) == 4, stage.names()
        assert one.end() == 0, one.errors.text()
        other.say_back(b"still\n")
        assert other.end() == 0, other.errors.text()
    stage.nothing_is_left()


CASES = [
    SIGTERM_while_it_starts,
    its_output_is_closed,
    its_client_is_killed,
    SIGKILL_while_it_runs,
    SIGKILL_at_any_moment_of_its_start,
    sweep_removes_what_is_left_without_a_reaper,
    the_next_launch_removes_what_is_left_without_a_reaper,
    the_proxy_is_killed_and_the_server_is_stopped,
    the_server_is_killed,
    the_server_ends_by_itself,
    a_program_that_cannot_be_started,
    two_launches_of_one_server_at_once,
    dockers_daemon_stops_and_comes_back,
]
# With times that need a quiet machine.
QUIET = [
    standard_input_ends,
    standard_input_ends_and_the_server_does_not_care,
    SIGTERM,
    SIGTERM_to_a_stubborn_server,
    SIGINT,
    SIGINT_to_the_whole_process_group,
    SIGHUP,
]
