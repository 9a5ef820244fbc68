"""How the proxy starts, how it ends, and that a crowd or a shortage does not end it."""

import asyncio
import collections
import json
import os
import signal
import subprocess
import time

import processes
import strait
from lane import for_each
from network import ORIGIN, PROXY_ADDRESS, RESOLVER, SCRIPTED_ORIGIN
from processes import eventually
from strait import fail_to_start, failed, listed, refused

ATTEMPTS = 10_000


# -- the start ------------------------------------------------------------------------------------------------


@for_each(
    a_rule_that_could_never_match=(["--allow", "localhost"], "localhost"),
    a_rule_for_loopback=(["--allow", "127.0.0.1:8080"], "127.0.0.1"),
    a_wildcard=(["--allow", "*.example.com"], "*.example.com"),
    a_rule_with_a_bad_port=(["--allow", "api.example.com:0"], "api.example.com:0"),
    a_URL=(["--allow", "http://api.example.com"], "http://api.example.com"),
    a_network_that_is_never_opened=(["--allow", "api.example.com", "--allow-net", "127.0.0.0/8"], "127.0.0.0/8"),
    a_network_that_is_none=(["--allow-net", "10.0.0.0/33"], "10.0.0.0/33"),
    a_policy_file_that_is_not_there=(["--policy", "/nonexistent/policy.json"], "/nonexistent/policy.json"),
    an_unknown_flag=(["--allow-everything"], "--allow-everything"),
)
def it_does_not_start_with_a_bad_setting_and_names_it(world, row):
    words, named = row
    code, errors = fail_to_start(world, [*words, "--resolver", RESOLVER])
    assert code == 2 and named in errors, (code, errors)
    assert "panicked" not in errors and "listening on" not in errors, errors


def it_does_not_start_where_something_else_listens(world):
    with world.proxy() as proxy:
        host, port = proxy.address
        code, errors = fail_to_start(world, ["--listen", f"{host}:{port}", "--resolver", RESOLVER])
        assert code not in (0, None) and f"{host}:{port}" in errors, (code, errors)
        proxy.expect()


def an_empty_allowlist_allows_nothing(world):
    with world.proxy() as proxy:
        got = world.curl(proxy, "-w", "%{http_connect}", "https://api.example.com/")
        assert got.text.endswith("403"), got
        proxy.expect(refused("CONNECT", "api.example.com", 443, "not_listed"))


def a_policy_file_says_the_same_as_flags(world):
    policy = world.file(json.dumps({"allow": ["api.example.com"], "allow_net": ["198.51.100.0/24"]}))
    with world.proxy(allow_net=[], policy=policy) as proxy:
        assert world.curl(proxy, "https://api.example.com/small").code == 0
        proxy.expect(listed("CONNECT", "api.example.com", 443, ORIGIN))


# -- the end ---------------------------------------------------------------------------------------------------


def when_standard_input_ends_tunnels_are_cut_at_once_and_it_exits_0(world):
    with world.origin(lambda wire: wire.is_gone()) as origin:
        with world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
            with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
                began = time.monotonic()
                proxy.cut_lifeline()
                assert wire.is_gone()
                assert proxy.exit_code() == 0
                assert time.monotonic() - began < 1, "at once"
            [close] = proxy.closes()
            assert close["ended"] == "shutdown", close
            proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN), stop=False)


def when_standard_input_ends_idle_connections_do_not_hold_it_up(world):
    with world.proxy(["www.example.com"]) as proxy:
        idle = [world.connect(proxy) for _ in range(8)]
        for wire in idle:
            wire.send(b"GET http://www.example.com/small HTTP/1.1\r\nHost: x\r\n\r\n")
            assert wire.read_response().status == 200
        began = time.monotonic()
        proxy.cut_lifeline()
        assert proxy.exit_code() == 0
        assert time.monotonic() - began < 0.5, f"at once, and it took {time.monotonic() - began:.2f} s"
        for wire in idle:
            wire.socket.close()
        proxy.expect(*[listed("GET", "www.example.com", 80, ORIGIN)] * len(idle), stop=False)


def when_standard_input_is_empty_from_the_start_it_exits_0(world):
    words = ["--listen", f"{PROXY_ADDRESS}:0", "--resolver", RESOLVER]
    with strait.start(world, words, stdin=subprocess.DEVNULL) as process:
        try:
            assert process.wait(5) == 0
        finally:
            processes.end(process)


@for_each(SIGTERM=signal.SIGTERM, SIGINT=signal.SIGINT, SIGHUP=signal.SIGHUP)
def a_signal_lets_open_tunnels_finish_and_takes_no_new_ones(world, number):
    def echo(wire):
        wire.send(b"hello")
        wire.send(wire.read(5))
        wire.read_to_end()

    with world.origin(echo) as origin:
        authority = f"raw.example.com:{origin.port}"
        with world.proxy([authority], grace="10s") as proxy:
            with world.tunnel(proxy, authority) as wire:
                assert wire.read(5) == b"hello"
                proxy.process.send_signal(number)
                eventually(lambda: _is_closed(world, proxy), "the listener is closed")
                assert proxy.process.poll() is None, "it ended with a tunnel open"
                wire.send(b"still")
                assert wire.read(5) == b"still"
            began = time.monotonic()
            assert proxy.exit_code() == 0
            assert time.monotonic() - began < 3, "it waited for the grace although nothing was open"
            proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN), stop=False)


def a_signal_cuts_what_is_still_open_when_the_grace_is_over(world):
    with world.origin(lambda wire: wire.is_gone()) as origin:
        with world.proxy([f"raw.example.com:{origin.port}"], grace="300ms", lifeline=False) as proxy:
            with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
                began = time.monotonic()
                proxy.process.send_signal(signal.SIGTERM)
                assert wire.is_gone()
                assert proxy.exit_code() == 0
                assert 0.2 < time.monotonic() - began < 2, time.monotonic() - began
            [close] = proxy.closes()
            assert close["ended"] == "shutdown", close
            proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN), stop=False)


def a_second_signal_cuts_at_once(world):
    with world.origin(lambda wire: wire.is_gone()) as origin:
        with world.proxy([f"raw.example.com:{origin.port}"], grace="30s") as proxy:
            with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
                proxy.process.send_signal(signal.SIGTERM)
                eventually(lambda: _is_closed(world, proxy), "the listener is closed")
                proxy.process.send_signal(signal.SIGTERM)
                assert wire.is_gone()
                assert proxy.exit_code(3) == 0
            proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN), stop=False)


def what_comes_in_on_standard_input_is_ignored(world):
    with world.proxy(["www.example.com"]) as proxy:
        proxy.process.stdin.write(b"quit\n" * 100_000)
        proxy.process.stdin.flush()
        assert world.curl(proxy, "http://www.example.com/small").code == 0
        proxy.expect(listed("GET", "www.example.com", 80, ORIGIN))


def a_signal_ends_an_idle_keep_alive_connection_without_waiting(world):
    with world.proxy(["www.example.com"], grace="10s") as proxy, world.connect(proxy) as wire:
        wire.send(b"GET http://www.example.com/small HTTP/1.1\r\nHost: www.example.com\r\n\r\n")
        assert wire.read_response().status == 200
        began = time.monotonic()
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.exit_code() == 0
        assert time.monotonic() - began < 3, time.monotonic() - began
        proxy.expect(listed("GET", "www.example.com", 80, ORIGIN), stop=False)


def a_signal_in_the_middle_of_a_dial_leaves_its_line(world):
    with world.proxy(["blackhole.example.com"], grace="200ms", connect_timeout="20s") as proxy:
        with world.connect(proxy) as wire:
            wire.send(b"CONNECT blackhole.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
            eventually(world.wiretap.sees_a_dial, "the dial has begun")
            proxy.process.send_signal(signal.SIGTERM)
            assert proxy.exit_code() == 0
        [line] = proxy.egress()
        assert line["reason"] == "shutdown", line


def without_an_audit_there_is_no_traffic(world):
    """The reader of its standard output goes away: the proxy says so and stops, as broken."""
    words = ["--listen", f"{PROXY_ADDRESS}:0", "--resolver", RESOLVER, "--allow", "api.example.com"]
    words += ["--allow-net", "198.51.100.0/24"]
    with strait.start(world, words) as process:
        try:
            errors = processes.Lines(process.stderr)
            ready = errors.wait_for(strait.listening_on)
            process.stdout.close()
            with world.network.connect(ready[1], int(ready[2])) as client:
                client.sendall(b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
                client.settimeout(5)
                try:
                    assert not client.recv(100).startswith(b"HTTP/1.1 200"), "a tunnel without a record"
                except ConnectionResetError:
                    pass
            assert process.wait(5) == 1
            assert "audit" in "".join(errors.to_end()), errors.all()
        finally:
            processes.end(process)


def while_nobody_reads_the_audit_attempts_wait_and_then_go_on(world):
    """A pipe holds 64 KiB: some hundreds of lines. The attempt that does not fit waits with its answer."""
    words = ["--listen", f"{PROXY_ADDRESS}:0", "--resolver", RESOLVER]
    with strait.start(world, words) as process:
        try:
            ready = processes.Lines(process.stderr).wait_for(strait.listening_on)
            waiting, answered = None, 0
            while waiting is None:
                client = world.network.connect(ready[1], int(ready[2]), timeout=1)
                client.sendall(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
                try:
                    assert client.recv(12) == b"HTTP/1.1 403"
                    answered += 1
                    client.close()
                except TimeoutError:
                    waiting = client
                assert answered < 2000, "attempts are answered that nobody has a record of"
            lines = processes.Lines(process.stdout)
            waiting.settimeout(5)
            assert waiting.recv(12) == b"HTTP/1.1 403"
            waiting.close()
            process.stdin.close()
            assert process.wait(5) == 0
            assert len(lines.to_end()) == answered + 1
        finally:
            processes.end(process)


# -- crowds and shortages ------------------------------------------------------------------------------------------


def ten_thousand_attempts_leave_ten_thousand_lines_and_a_proxy_that_works(world):
    """Half are refused, half are let through to an origin that answers and ends."""
    with world.proxy(["www.example.com"], log_close=False) as proxy:
        statuses = _storm(world, proxy, ATTEMPTS, at_a_time=500)
        assert set(statuses) == {200, 403}, statuses
        assert statuses[200] == statuses[403] == ATTEMPTS // 2, statuses
        assert world.curl(proxy, "http://www.example.com/small").code == 0
        lines = proxy.wait_for_egress(ATTEMPTS + 1, 20)
        reasons = collections.Counter(line["reason"] for line in lines)
        assert reasons == {"listed": ATTEMPTS // 2 + 1, "not_listed": ATTEMPTS // 2}, reasons
        eventually(lambda: _descriptors(proxy) < 32, "all connections are closed again")
        proxy.cut_lifeline()
        assert proxy.exit_code() == 0, proxy.errors
        assert len(proxy.egress()) == ATTEMPTS + 1
        proxy.check_packets()


def a_crowd_beyond_its_limit_leaves_a_line_each_and_a_proxy_that_works(world):
    """Four times as many at a time as may be: those that are turned away hear 503, or nothing when they are many."""
    attempts, limit = 3000, 100
    with world.proxy(["www.example.com"], log_close=False, max_connections=limit) as proxy:
        statuses = _storm(world, proxy, attempts, at_a_time=4 * limit)
        assert statuses[200] and statuses[403], statuses
        assert sum(statuses.values()) == attempts and set(statuses) <= {200, 403, 503, "closed"}, statuses
        eventually(lambda: world.curl(proxy, "-f", "http://www.example.com/small").code == 0, "it works again")
        lines = collections.Counter(line["reason"] for line in proxy.wait_for_egress(attempts + 1))
        assert set(lines) <= {"listed", "not_listed", "full"}, lines
        assert lines["not_listed"] == statuses[403], (lines, statuses)
        assert lines["full"] >= statuses[503], (lines, statuses)


def _storm(world, proxy, attempts, at_a_time):
    """Requests on a connection each, every other one to a name that is not listed; how many ended how."""
    with world.network.inside("client"):
        return asyncio.run(_requests(proxy.address, attempts, at_a_time))


async def _requests(address, attempts, at_a_time):
    outcomes = collections.Counter()
    places = asyncio.Semaphore(at_a_time)

    async def request(host):
        async with places:
            try:
                reader, writer = await asyncio.open_connection(*address)
                writer.write(f"GET http://{host}/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                first = await reader.readline()
                await reader.read()
                writer.close()
            except ConnectionResetError:
                first = b""
            status = int(first.split()[1]) if first else "closed"
            outcomes[200 if status == 204 else status] += 1

    hosts = ["evil.example", "www.example.com"] * (attempts // 2)
    await asyncio.wait_for(asyncio.gather(*map(request, hosts)), 50)
    return outcomes


def beyond_its_limit_of_connections_clients_are_told_so_and_leave_a_line(world):
    with world.proxy(["www.example.com"], max_connections=4) as proxy:
        held = [world.connect(proxy) for _ in range(4)]
        for wire in held:  # an answered request proves that the connection was admitted
            wire.send(b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
            assert wire.read_response().status == 403
        response = world.ask(proxy, b"GET http://www.example.com/small HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (response.status, response.code) == (503, "full"), response.head.raw
        for wire in held:
            wire.socket.close()
        eventually(lambda: world.curl(proxy, "-f", "http://www.example.com/small").code == 0, "a place is free again")
        lines = [line["reason"] for line in proxy.egress()]
        assert lines.count("not_listed") == 4 and lines.count("listed") == 1 and "full" in lines, lines


def without_a_file_descriptor_to_spare_it_waits_and_then_goes_on(world):
    with world.proxy(["www.example.com"], files=40) as proxy:
        crowd = [world.connect(proxy) for _ in range(80)]  # the kernel completes what accept cannot take
        eventually(lambda: "cannot accept" in proxy.errors, "it is short of files, and says so")
        began, before = time.monotonic(), _cpu_seconds(proxy)
        time.sleep(0.5)  # the span that is measured
        busy = (_cpu_seconds(proxy) - before) / (time.monotonic() - began)
        assert busy < 0.5, f"it spins: {busy:.0%} of a processor"
        # It has tried again several times by now.
        assert proxy.errors.count("cannot accept") == 1, f"a client can have it said often: {proxy.errors}"
        for wire in crowd:
            wire.socket.close()
        eventually(lambda: world.curl(proxy, "-f", "http://www.example.com/small").code == 0, "it works again", 15)
        assert proxy.process.poll() is None, proxy.errors
        proxy.expect(listed("GET", "www.example.com", 80, ORIGIN))


def a_dial_without_a_file_descriptor_is_a_failure_with_a_line(world):
    most = 40
    with world.proxy(["www.example.com"], files=most) as proxy:
        held = []
        while _descriptors(proxy) < most:
            held.append(world.connect(proxy))
            # Answered, so it has been accepted and holds its descriptor.
            held[-1].send(b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
            assert held[-1].read_response().status == 403
        held[-1].send(b"GET http://www.example.com/small HTTP/1.1\r\nHost: x\r\n\r\n")
        response = held[-1].read_response()
        assert response.status == 502 and response.code in ("dns_failed", "connect_failed"), response.head.raw
        for wire in held:
            wire.socket.close()
        lines = [refused("GET", "evil.example", 80, "not_listed")] * len(held)
        proxy.expect(*lines, failed("GET", "www.example.com", 80, response.code))


def a_client_that_sends_its_head_too_slowly_is_cut(world):
    with world.proxy(["www.example.com"], header_timeout="500ms") as proxy, world.connect(proxy) as wire:
        began = time.monotonic()
        wire.send(b"GET http://www.example.com/ HTTP/1.1\r\nX: ")
        data = wire.read_to_end()
        assert time.monotonic() - began < 3
        assert data.startswith(b"HTTP/1.1 408"), data
        [line] = proxy.wait_for_egress(1)
        assert (line["allowed"], line["reason"]) == (False, "head_timeout"), line


def a_connection_on_which_nothing_is_said_is_no_attempt(world):
    with world.proxy(["www.example.com"], header_timeout="300ms") as proxy:
        with world.connect(proxy) as wire:
            assert wire.is_gone()
        world.connect(proxy).socket.close()
        assert world.curl(proxy, "http://www.example.com/small").code == 0
        proxy.expect(listed("GET", "www.example.com", 80, ORIGIN))


def a_kept_alive_connection_is_closed_after_its_idle_time(world):
    with world.proxy(["www.example.com"], keepalive_timeout="400ms") as proxy, world.connect(proxy) as wire:
        wire.send(b"GET http://www.example.com/small HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.read_response().status == 200
        began = time.monotonic()
        assert wire.is_gone() and time.monotonic() - began < 3
        proxy.expect(listed("GET", "www.example.com", 80, ORIGIN))


def the_environment_of_the_proxy_changes_nothing(world):
    binary = world.binary
    elsewhere = "export http_proxy=http://203.0.113.66:1 https_proxy=$http_proxy ALL_PROXY=$http_proxy NO_PROXY="
    try:
        wrapper = world.file(f'#!/bin/sh\n{elsewhere}\nexec {binary} "$@"\n')
        os.chmod(wrapper, 0o755)
        world.binary = wrapper
        with world.proxy(["api.example.com"]) as proxy:
            assert world.curl(proxy, "https://api.example.com/small").code == 0
            proxy.expect(listed("CONNECT", "api.example.com", 443, ORIGIN))
    finally:
        world.binary = binary


def _is_closed(world, proxy):
    try:
        world.network.connect(*proxy.address, timeout=1).close()
    except OSError:
        return True
    return False


def _descriptors(proxy):
    return len(os.listdir(f"/proc/{proxy.process.pid}/fd"))


def _cpu_seconds(proxy):
    with open(f"/proc/{proxy.process.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
