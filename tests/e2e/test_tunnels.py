"""Tunnels: every byte arrives, both ends hear of an end or a break, nothing is held for ever."""

import fcntl
import hashlib
import os
import socket
import struct
import threading
import time

import network
from lane import for_each
from network import BLACK_HOLE, ORIGIN, SCRIPTED_ORIGIN, SCRIPTED_RESOLVER, UNREACHABLE
from processes import eventually
from strait import failed, listed, refused
from wire import Closed

_MEGABYTE = os.urandom(1 << 20)


def bytes_sent_along_with_CONNECT_reach_the_origin_after_the_200(world):
    received = []

    def origin_script(wire):
        received.append(wire.read(11))
        wire.send(b"pong")

    with world.origin(origin_script) as origin, world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
        authority = f"raw.example.com:{origin.port}"
        with world.connect(proxy) as wire:
            wire.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\nearly bytes".encode())
            assert wire.read_head().status == 200
            assert wire.read(4) == b"pong"
        proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))
    assert received == [b"early bytes"], received


def megabytes_sent_while_the_origin_is_dialled_wait_and_arrive_in_order(world):
    """The first address is dead, so the dial takes a while; the client does not wait for the 200."""
    content = os.urandom(1 << 20) * 8
    sums = []

    def sum_up(wire):
        sums.append(hashlib.sha256(wire.read_to_end()).hexdigest())

    zone = {"odd.example.com": {"A": [SCRIPTED_ORIGIN], "AAAA": [network.BLACK_HOLE_V6]}}
    with world.resolver(zone), world.origin(sum_up) as origin:
        authority = f"odd.example.com:{origin.port}"
        with world.proxy([authority], resolver=SCRIPTED_RESOLVER) as proxy:
            with world.connect(proxy) as wire:
                sending = threading.Thread(target=lambda: wire.send(content) or wire.finish())
                wire.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
                sending.start()
                assert wire.read_head().status == 200
                sending.join()
                assert wire.read_to_end() == b""
            proxy.wait_for_close()
            dead = f"[{network.BLACK_HOLE_V6}]:{origin.port}"
            proxy.expect(listed("CONNECT", "odd.example.com", origin.port, SCRIPTED_ORIGIN), tried=[dead])
    assert sums == [hashlib.sha256(content).hexdigest()], "what the origin got is not what was sent"


def bytes_sent_while_the_origin_is_dialled_are_held_by_the_client_s_kernel(world):
    with world.proxy(["blackhole.example.com"], connect_timeout="1500ms") as proxy, world.connect(proxy) as wire:
        wire.send(b"CONNECT blackhole.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        before, sent = _resident(proxy), 0
        wire.socket.settimeout(0.5)
        try:
            while sent < 64 << 20:
                sent += wire.socket.send(_MEGABYTE)
        except TimeoutError:
            pass
        grown = _resident(proxy) - before
        assert sent < 64 << 20 and grown < 4 << 20, f"the proxy took {sent} bytes and grew by {grown}"
        wire.socket.settimeout(10)
        response = wire.read_response()
        assert (response.status, response.code) == (504, "connect_timeout"), response.head.raw
        proxy.expect(failed("CONNECT", "blackhole.example.com", 443, "connect_timeout", BLACK_HOLE))


def bytes_sent_along_with_a_refused_CONNECT_are_no_second_request(world):
    with world.proxy(["api.example.com"]) as proxy:
        with world.connect(proxy) as wire:
            tls_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500)
            wire.send(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n" + tls_hello)
            response = wire.read_response()
            assert response.status == 403 and response.head.get("connection") == "close", response.head.raw
            assert wire.read_to_end() == b""
        proxy.expect(refused("CONNECT", "evil.example", 443, "not_listed"))


def a_client_that_ends_its_direction_still_gets_the_answer(world):
    def sum_up(wire):
        wire.send(hashlib.sha256(wire.read_to_end()).hexdigest().encode())

    with world.origin(sum_up) as origin, world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
        with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
            wire.send(_MEGABYTE)
            wire.finish()
            assert wire.read_to_end() == hashlib.sha256(_MEGABYTE).hexdigest().encode()
        [close] = proxy.wait_for_close()
        assert (close["to_origin"], close["from_origin"], close["ended"]) == (1 << 20, 64, "complete"), close
        proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))


def an_origin_that_ends_its_direction_still_gets_the_rest(world):
    received = []

    def listen_on(wire):
        wire.send(b"that is all from here")
        wire.finish()
        received.append(wire.read_to_end())

    with world.origin(listen_on) as origin, world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
        with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
            assert wire.read_to_end() == b"that is all from here"
            wire.send(_MEGABYTE)
        [close] = proxy.wait_for_close()
        assert (close["to_origin"], close["from_origin"], close["ended"]) == (1 << 20, 21, "complete"), close
        proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))
    assert received == [_MEGABYTE]


def megabytes_cross_both_ways_at_the_same_time(world):
    sums = []

    def both_ways(wire):
        sending = threading.Thread(target=lambda: [wire.send(_MEGABYTE) for _ in range(32)] and wire.finish())
        sending.start()
        sums.append(hashlib.sha256(wire.read_to_end()).hexdigest())
        sending.join()

    wanted = hashlib.sha256(_MEGABYTE * 32).hexdigest()
    with world.origin(both_ways) as origin, world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
        with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
            sending = threading.Thread(target=lambda: [wire.send(_MEGABYTE) for _ in range(32)] and wire.finish())
            sending.start()
            assert hashlib.sha256(wire.read_to_end()).hexdigest() == wanted
            sending.join()
        proxy.wait_for_close()
        proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))
    assert sums == [wanted], "what the origin got is not what was sent"


def a_client_that_does_not_read_holds_the_origin_up_and_costs_no_memory(world):
    sent = [0]

    def pour(wire):
        wire.socket.setblocking(False)
        deadline = time.monotonic() + 30
        stuck_since = None
        # Full when nothing more has been taken for half a second.
        while time.monotonic() < deadline:
            try:
                sent[0] += wire.socket.send(_MEGABYTE)
                stuck_since = None
            except BlockingIOError:
                stuck_since = stuck_since or time.monotonic()
                if time.monotonic() - stuck_since > 0.5:
                    break
                time.sleep(0.01)
        wire.socket.settimeout(10)
        wire.finish()

    with world.origin(pour) as origin, world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
        with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
            total = len(wire.read(1))
            before = _resident(proxy)
            eventually(lambda: sent[0] > 1 << 20, "the origin has begun")
            # The client reads nothing until the origin gives up, then all of it.
            eventually(origin.is_done, "the origin is held up", 30)
            grown = _resident(proxy) - before
            total += len(wire.read_to_end())
        assert total == sent[0], (total, sent[0])
        assert grown < 8 << 20, f"the proxy grew by {grown} bytes"
        proxy.wait_for_close()
        proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))


def _resident(proxy):
    with open(f"/proc/{proxy.process.pid}/status", encoding="ascii") as status:
        [line] = [line for line in status if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def an_origin_s_reset_reaches_the_client_as_a_reset_and_its_bytes_are_counted(world):
    def break_off(wire):
        wire.send(_MEGABYTE)
        assert wire.read(4) == b"go!\n"
        wire.reset()

    with world.origin(break_off) as origin, world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
        with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
            assert wire.read(1 << 20) == _MEGABYTE
            wire.send(b"go!\n")
            try:
                wire.read_to_end()
            except Closed:
                pass
            else:
                raise AssertionError("the client saw an orderly end")
        [close] = proxy.wait_for_close()
        assert (close["to_origin"], close["from_origin"], close["ended"]) == (4, 1 << 20, "origin_gone"), close
        proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))


def a_client_s_reset_reaches_the_origin_as_a_reset_and_its_bytes_are_counted(world):
    seen = []

    def wait_for_it(wire):
        wire.send(b"ready")
        wire.read(1 << 20)
        try:
            seen.append(wire.read_to_end())
        except Closed as closed:
            seen.append(closed)

    with world.origin(wait_for_it) as origin, world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
        wire = world.tunnel(proxy, f"raw.example.com:{origin.port}")
        wire.read(5)
        wire.send(_MEGABYTE)
        # Sent is not arrived: a reset overtakes what still waits on this side.
        eventually(lambda: not _unsent(wire), "the client's kernel has sent it all")
        eventually(lambda: not _unread(proxy), "the proxy has read it all")
        wire.reset()
        [close] = proxy.wait_for_close()
        assert (close["from_origin"], close["ended"]) == (5, "client_gone"), close
        assert close["to_origin"] == 1 << 20, close
        proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))
    assert len(seen) == 1 and isinstance(seen[0], Closed), f"the origin saw an orderly end: {seen}"


def _unsent(wire):
    """Bytes the client's kernel still holds."""
    siocoutq = 0x5411
    return struct.unpack("i", fcntl.ioctl(wire.socket.fileno(), siocoutq, b"\0" * 4))[0]


def _unread(proxy):
    """Bytes that wait in a socket of the proxy's namespace, by its kernel's own table."""
    with open(f"/proc/{proxy.process.pid}/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table][1:]
    return sum(int(row[4].split(":")[1], 16) for row in rows if row[3] == "01")


def a_tunnel_in_which_nothing_moves_is_cut(world):
    with world.origin(lambda wire: wire.is_gone()) as origin:
        with world.proxy([f"raw.example.com:{origin.port}"], tunnel_idle_timeout="500ms") as proxy:
            with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
                began = time.monotonic()
                assert wire.is_gone()
                assert 0.3 < time.monotonic() - began < 3, time.monotonic() - began
            [close] = proxy.wait_for_close()
            assert close["ended"] == "idle", close
            proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))


def a_tunnel_in_which_one_direction_moves_is_not_idle(world):
    def trickle(wire):
        for _ in range(8):
            time.sleep(0.2)  # the pace under test, not a wait for something
            wire.send(b".")

    with world.origin(trickle) as origin:
        with world.proxy([f"raw.example.com:{origin.port}"], tunnel_idle_timeout="600ms") as proxy:
            with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
                assert wire.read_to_end() == b"." * 8
            [close] = proxy.wait_for_close()
            assert close["ended"] == "complete", close
            proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))


def a_half_closed_tunnel_in_which_nothing_moves_is_cut_sooner(world):
    def end_and_linger(wire):
        wire.finish()
        wire.is_gone()

    with world.origin(end_and_linger) as origin:
        with world.proxy([f"raw.example.com:{origin.port}"], half_close_timeout="500ms") as proxy:
            with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
                assert wire.read_to_end() == b""
                # Its own direction stays open, and silent.
                [close] = proxy.wait_for_close()
                assert close["ended"] == "idle" and close["ms"] < 3000, close
            proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))


@for_each(
    closed_port=("api", 9, 502, "connect_refused", ORIGIN, []),
    no_route=("unreachable", 443, 502, "connect_unreachable", UNREACHABLE, []),
    no_answer=("blackhole", 443, 504, "connect_timeout", BLACK_HOLE, []),
    no_answer_from_the_first_and_a_closed_port=("half-dead", 9, None, None, None, [f"{BLACK_HOLE}:9", f"{ORIGIN}:9"]),
)
def a_dial_that_fails_is_told_within_the_limit(world, row):
    name, port, status, reason, address, tried = row
    host = f"{name}.example.com"
    with world.proxy([f"{host}:{port}"], connect_timeout="1s") as proxy:
        began = time.monotonic()
        response = world.ask(proxy, f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        took = time.monotonic() - began
        assert took < 2, f"the limit is 1 s for all addresses together, it took {took:.2f} s"
        assert status in (response.status, None) and reason in (response.code, None), response.head.raw
        assert response.code.startswith("connect_"), response.head.raw
        proxy.expect(failed("CONNECT", host, port, response.code, address), tried=tried)


def a_client_that_leaves_while_its_origin_is_dialled_leaves_one_line(world):
    with world.proxy(["blackhole.example.com"], connect_timeout="8s") as proxy:
        wire = world.connect(proxy)
        wire.send(b"CONNECT blackhole.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(world.wiretap.sees_a_dial, "the dial has begun")
        began = time.monotonic()
        wire.socket.close()
        [line] = proxy.wait_for_egress(1, 3)
        assert time.monotonic() - began < 2, "the dial went on without its client"
        assert line["reason"] == "client_gone" and "address" not in line, line
        proxy.expect(failed("CONNECT", "blackhole.example.com", 443, "client_gone"), tried=[f"{BLACK_HOLE}:443"])


def two_refused_tunnels_in_a_row_are_two_attempts(world):
    with world.proxy(["api.example.com"]) as proxy:
        for host in ("one.example", "two.example"):
            response = world.ask(proxy, f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert response.code == "not_listed"
        proxy.expect(
            refused("CONNECT", "one.example", 443, "not_listed"),
            refused("CONNECT", "two.example", 443, "not_listed"),
        )


def CONNECT_with_Expect_gets_no_100_before_the_200(world):
    with world.proxy(["api.example.com"]) as proxy:
        with world.connect(proxy) as wire:
            wire.send(b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n")
            head = wire.read_head()
            assert head.status in (200, 417), head.raw
        expected = listed("CONNECT", "api.example.com", 443, ORIGIN)
        proxy.expect(expected)


def urgent_data_does_no_harm(world):
    def echo(wire):
        wire.send(wire.read(2))

    with world.origin(echo) as origin, world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
        with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
            wire.socket.send(b"!", socket.MSG_OOB)
            wire.send(b"ab")
            assert b"b" in wire.read(2)
        proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))


def a_listed_literal_address_is_reached_and_nothing_is_resolved(world):
    literal = network.ORIGIN
    with world.proxy([f"{literal}:443"], allow_net=[], resolver=BLACK_HOLE) as proxy:
        got = world.curl(proxy, "-k", f"https://{literal}/small")
        assert got.output == b"a small file\n", got
        proxy.expect(listed("CONNECT", literal, 443, literal))
