"""Standard input and output are the server's, byte for byte and at once."""

import statistics
import threading
import time

import images
from session import Session
from stage import LISTED, of_server

MIB = 1 << 20
ROUND_TRIPS = 200


def a_line_of_20_MiB_passes_both_ways_unchanged(stage):
    line = bytes(range(32, 127)) * (20 * MIB // 95) + b"\n"
    with stage.launch(images.busybox()) as server:
        server.say_back()
        began = time.monotonic()
        writer = threading.Thread(target=server.send, args=(line,), daemon=True)
        writer.start()
        got = server.out.take(len(line))
        took = time.monotonic() - began
        writer.join()
        assert got == line, "it came back as something else"
        assert server.end() == 0
        assert server.out.rest() == b"", "more came than was sent"
    return f"{took:.2f} s"


def every_byte_passes(stage):
    # With what would detach a terminal's client (ctrl-p, ctrl-q), in one piece and typed one by one.
    pieces = [bytes(range(256)), b"\x10\x11", b"\x10", b"\x11", b"\x00", b"\x03", b"\x04", b"\x1a", b"\xff\xfe\r\r\n\n"]
    with stage.launch(images.busybox()) as server:
        for piece in pieces * 2:
            server.say_back(piece)
        assert server.end() == 0
        assert server.out.rest() == b""


def nothing_of_ours_is_on_standard_output(stage):
    with stage.launch(images.busybox(), "--allow", LISTED, "--command", "/bin/sh",
                      arguments=["-c", "echo one; echo two >&2; cat >/dev/null; echo three"]) as server:
        assert server.out.line() == b"one\n"
        assert server.end() == 0
        assert server.out.rest() == b"three\n", server.out.text()
        assert of_server(server.errors.text()) == "two\n", server.errors.text()


def what_is_said_before_the_server_is_up_is_not_lost(stage):
    with stage.launch(images.busybox(), "--allow", LISTED) as server:
        said = b"".join(b"line %d\n" % number for number in range(1000))
        server.send(said)
        server.close()
        assert server.wait() == 0
        assert server.out.rest() == said


def what_is_said_last_is_not_lost(stage):
    with stage.launch(images.busybox(), "--command", "/bin/sh",
                      arguments=["-c", "head -c 3000000 /dev/zero; echo bye >&2; exit 3"]) as server:
        assert server.wait() == 3
        assert server.out.rest() == bytes(3_000_000)
        assert server.errors.text().endswith("bye\n"), server.errors.text()[-200:]


def it_adds_no_delay(stage):
    def trips(server):
        server.say_back()
        times = []
        for number in range(ROUND_TRIPS):
            message = b'{"jsonrpc": "2.0", "id": %d, "method": "ping"}\n' % number
            began = time.perf_counter()
            server.say_back(message)
            times.append(time.perf_counter() - began)
        assert server.end() == 0
        return statistics.median(times) * 1e6

    bare = [stage.kind, "run", "--rm", "-i", "--pull=never", "--network=none", "--log-driver=none",
            stage.id_of(images.busybox())]
    with Session(stage.runtime.popen(bare)) as server:
        without = trips(server)
    with stage.launch(images.busybox()) as server:
        within = trips(server)
    # Two threads stand between; a queue or a timer would be milliseconds.
    assert within < without + 1500, f"p50 {within:.0f} µs, and {without:.0f} µs without strait"
    return f"p50 {within:.0f} µs, {without:.0f} µs with {stage.kind} alone"


CASES = [
    a_line_of_20_MiB_passes_both_ways_unchanged,
    every_byte_passes,
    nothing_of_ours_is_on_standard_output,
    what_is_said_before_the_server_is_up_is_not_lost,
    what_is_said_last_is_not_lost,
]
QUIET = [it_adds_no_delay]
