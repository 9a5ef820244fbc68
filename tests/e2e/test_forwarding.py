"""Plain HTTP: one exchange at a time, streamed, nothing of one hop on the next, no end that is not one."""

import threading
import time

from lane import for_each
from network import ORIGIN, SCRIPTED_ORIGIN
from strait import failed, listed, refused
from wire import Closed


class _Exchange:
    """An origin at raw.example.com that runs a script, and a proxy that may reach it."""

    def __init__(self, world, script, **limits):
        self._world = world
        self._origin = world.origin(script)
        self.host = f"raw.example.com:{self._origin.port}"
        self.port = self._origin.port
        self.url = f"http://{self.host}"
        self.proxy = world.proxy([self.host], **limits)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.proxy.__exit__(*failure)
        self._origin.__exit__(*failure)

    def connect(self):
        return self._world.connect(self.proxy)

    def request(self, method="GET", path="/", fields="", version="HTTP/1.1"):
        return f"{method} {self.url}{path} {version}\r\nHost: {self.host}\r\n{fields}\r\n".encode()

    def ask(self, method="GET", path="/", fields="", body=b""):
        return self._world.ask(self.proxy, self.request(method, path, fields) + body, to_head=method == "HEAD")

    def expect_listed(self, method="GET", count=1):
        self.proxy.expect(*[listed(method, "raw.example.com", self.port, SCRIPTED_ORIGIN)] * count)


def _answering(*pieces):
    """An origin that reads a head, then sends the pieces and ends."""

    def script(wire):
        wire.read_head()
        for piece in pieces:
            wire.send(piece)

    return script


# -- bodies ------------------------------------------------------------------------------------------------


@for_each(
    counted=[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"],
    chunked=[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nhe\r\n", b"3;x=y\r\nllo\r\n0\r\n\r\n"],
    chunked_with_trailers=[
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\n",
    ],
    ended_by_close=[b"HTTP/1.1 200 OK\r\n\r\n", b"hel", b"lo"],
    ended_by_close_in_HTTP_1_0=[b"HTTP/1.0 200 OK\r\n\r\nhello"],
    length_beside_chunked=[
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\n",
    ],
)
def a_response_body_arrives_whole_however_its_end_is_told(world, pieces):
    with _Exchange(world, _answering(*pieces)) as exchange:
        response = exchange.ask()
        assert (response.status, response.body) == (200, b"hello"), (response.head.raw, response.body)
        assert not ("content-length" in response.head.names and "transfer-encoding" in response.head.names)
        exchange.expect_listed()


def a_chunked_response_is_unchunked_for_an_HTTP_1_0_client(world):
    script = _answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    with _Exchange(world, script) as exchange, exchange.connect() as wire:
        wire.send(exchange.request(version="HTTP/1.0"))
        response = wire.read_response()
        assert "transfer-encoding" not in response.head.names and response.body == b"hello", response.head.raw
        exchange.expect_listed()


@for_each(
    counted=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
    chunked=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
    chunked_in_the_middle_of_a_chunk=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort",
    chunked_with_a_bad_size=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nxyz\r\n",
)
def a_truncated_response_is_never_a_clean_end_for_the_client(world, sent):
    with _Exchange(world, _answering(sent)) as exchange:
        try:
            response = exchange.ask()
        except Closed:
            pass
        else:
            assert response.status == 502, f"the client took it for whole: {response.head.raw} {response.body}"
        [close] = exchange.proxy.wait_for_close()
        assert close["ended"] == "origin_gone", close
        exchange.expect_listed()


def an_origin_s_reset_in_the_middle_of_a_body_is_never_a_clean_end(world):
    def break_off(wire):
        wire.read_head()
        wire.send(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000)
        wire.reset()

    with _Exchange(world, break_off) as exchange:
        try:
            response = exchange.ask()
        except Closed:
            pass
        else:
            assert response.status == 502, f"the client took it for whole: {len(response.body)} bytes"
        exchange.proxy.wait_for_close()
        exchange.expect_listed()


@for_each(
    status_204=("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
    status_204_with_a_length=("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
    status_304_with_a_length=("GET", b'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: "x"\r\n\r\n'),
    HEAD=("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
    HEAD_with_chunked=("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
)
def a_response_without_content_leaves_the_connection_usable(world, row):
    method, sent = row
    with _Exchange(world, _answering(sent)) as exchange, exchange.connect() as wire:
        for _ in range(2):
            wire.send(exchange.request(method))
            response = wire.read_response(to_head=method == "HEAD")
            assert sent.startswith(f"HTTP/1.1 {response.status} ".encode()), response.head.raw
            assert response.status != 204 or "content-length" not in response.head.names, response.head.raw
        exchange.expect_listed(method, count=2)


def a_response_streams_piece_by_piece(world):
    """The origin sends the next piece only when the client has read the last: any buffering would hang."""
    turn = threading.Semaphore(0)

    def events(wire):
        wire.read_head()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(5):
            wire.send(b"data: %d\n\n" % number)
            assert turn.acquire(timeout=10)

    with _Exchange(world, events) as exchange, exchange.connect() as wire:
        wire.send(exchange.request())
        assert wire.read_head().status == 200
        for number in range(5):
            wire.read_until(b"data: %d\n\n" % number)
            turn.release()
        exchange.proxy.wait_for_close()
        exchange.expect_listed()


def a_request_streams_piece_by_piece(world):
    """The client sends the next piece only when the origin has read the last."""
    turn = threading.Semaphore(0)

    def take(wire):
        head = wire.read_head()
        assert "content-length" not in head.names and head.get("transfer-encoding") == "chunked", head.raw
        for number in range(5):
            wire.read_until(b"piece %d" % number)
            turn.release()
        wire.read_until(b"0\r\n\r\n")
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with _Exchange(world, take) as exchange, exchange.connect() as wire:
        wire.send(exchange.request("POST", fields="Transfer-Encoding: chunked\r\n"))
        for number in range(5):
            wire.send(b"7\r\npiece %d\r\n" % number)
            assert turn.acquire(timeout=10), f"piece {number} did not get through"
        wire.send(b"0\r\n\r\n")
        assert wire.read_response().status == 200
        exchange.expect_listed("POST")


def a_response_before_the_request_body_has_ended_arrives(world):
    def early(wire):
        wire.read_head()
        wire.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")

    with _Exchange(world, early) as exchange, exchange.connect() as wire:
        wire.send(exchange.request("POST", fields="Content-Length: 1000000\r\n") + b"x" * 1000)
        response = wire.read_response()
        assert (response.status, response.body) == (413, b"no\n"), response.head.raw
        assert wire.is_gone(), "the rest of the body would be the next request"
        exchange.expect_listed("POST")


def an_early_response_is_not_lost_when_the_origin_resets_the_rest_of_the_upload(world):
    """Closing with unread bytes makes an origin's kernel send a reset behind the response. A client that speaks
    to such an origin directly gets the response every time; so it must through the proxy."""

    def early(wire):
        wire.read_head()
        wire.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")

    tries = 20
    with _Exchange(world, early) as exchange:
        big = world.servers.www / "big"
        words = ["-T", big, "-o", "/dev/null", "-w", "%{http_code}", f"{exchange.url}/"]
        got = [world.curl(exchange.proxy, *words).text for _ in range(tries)]
        assert got == ["413"] * tries, got
        exchange.expect_listed("PUT", tries)


def an_upload_whose_response_came_early_goes_on_as_long_as_the_origin_reads(world):
    """nginx answers `return 204` at once and reads the upload to its end; curl sends all of it before it is content."""
    with world.proxy(["www.example.com"]) as proxy:
        big = world.servers.www / "big"
        got = world.curl(proxy, "-T", big, "-o", "/dev/null", "-w", "%{http_code}", "http://www.example.com/nothing")
        assert got.code == 0 and got.text == "204", got
        proxy.expect(listed("PUT", "www.example.com", 80, ORIGIN))


def a_response_and_its_request_can_stream_at_the_same_time(world):
    def echo(wire):
        wire.read_head()
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        size = None
        while size != 0:
            size = int(wire.read_until(b"\r\n"), 16)
            wire.send(b"%x\r\n" % size + wire.read(size + 2))

    with _Exchange(world, echo) as exchange, exchange.connect() as wire:
        wire.send(exchange.request("POST", fields="Transfer-Encoding: chunked\r\n"))
        assert wire.read_head().status == 200
        for number in range(5):
            wire.send(b"7\r\nsaying%d\r\n" % number)
            assert wire.read(12) == b"7\r\nsaying%d\r\n" % number
        wire.send(b"0\r\n\r\n")
        assert wire.read(5) == b"0\r\n\r\n"
        # And the connection is good for another.
        wire.send(b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.read_response().status == 403
        exchange.proxy.expect(
            listed("POST", "raw.example.com", exchange.port, SCRIPTED_ORIGIN),
            refused("GET", "evil.example", 80, "not_listed"),
        )


@for_each(closes=lambda wire: wire.socket.close(), resets=lambda wire: wire.reset())
def an_origin_hears_of_it_when_the_client_leaves_a_download_and(world, leave):
    seen = []

    def pour(wire):
        wire.read_head()
        wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                wire.send(b"x" * 65536)
        except OSError as error:
            seen.append(error)

    with _Exchange(world, pour) as exchange:
        wire = exchange.connect()
        wire.send(exchange.request())
        wire.read(100_000)
        leave(wire)
        [close] = exchange.proxy.wait_for_close()
        assert close["ended"] == "client_gone" and close["from_origin"] > 90_000, close
        exchange.expect_listed()
    assert seen, "the origin still sends"


def a_response_that_stalls_is_cut_and_never_a_clean_end(world):
    def stall(wire):
        wire.read_head()
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        wire.is_gone()

    with _Exchange(world, stall, tunnel_idle_timeout="500ms") as exchange, exchange.connect() as wire:
        wire.send(exchange.request())
        began = time.monotonic()
        try:
            response = wire.read_response()
        except Closed:
            pass
        else:
            raise AssertionError(f"the client took it for whole: {response.body}")
        assert time.monotonic() - began < 3, "the limit is 500 ms"
        [close] = exchange.proxy.wait_for_close()
        assert close["ended"] == "idle", f"nobody left, nothing moved: {close}"
        exchange.expect_listed()


def a_client_that_leaves_in_the_middle_of_an_upload_is_the_one_that_left(world):
    with _Exchange(world, lambda wire: wire.read_head() and wire.read(5) and wire.is_gone()) as exchange:
        with exchange.connect() as wire:
            wire.send(exchange.request("POST", fields="Content-Length: 10\r\n") + b"hello")
            exchange.proxy.wait_for_egress(1)
        [close] = exchange.proxy.wait_for_close()
        assert close["ended"] == "client_gone", close
        exchange.expect_listed("POST")


def a_request_body_that_breaks_off_is_never_a_whole_one_for_the_origin(world):
    outcome = []

    def take(wire):
        wire.read_head()
        wire.read(5)
        try:
            outcome.append(wire.read_until(b"0\r\n\r\n"))
        except Closed as closed:
            outcome.append(closed)

    with _Exchange(world, take) as exchange:
        with exchange.connect() as wire:
            wire.send(exchange.request("POST", fields="Transfer-Encoding: chunked\r\n") + b"5\r\nhello\r\n")
        exchange.proxy.wait_for_close()
        exchange.expect_listed("POST")
    assert isinstance(outcome[0], Closed), f"the origin took it for whole: {outcome}"


# -- interim responses, and what is no response ------------------------------------------------------------------


def a_client_that_waits_for_100_sends_its_body_and_it_arrives(world):
    bodies = []

    def take(wire):
        wire.read_head()
        wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        bodies.append(wire.read(5))
        wire.send(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")

    with _Exchange(world, take) as exchange, exchange.connect() as wire:
        wire.send(exchange.request("PUT", fields="Content-Length: 5\r\nExpect: 100-continue\r\n"))
        interim = wire.read_head()
        assert interim.status == 100, interim.raw
        wire.send(b"hello")
        assert wire.read_response().status == 201
        assert bodies == [b"hello"]
        exchange.expect_listed("PUT")


def a_client_that_waits_for_100_where_it_is_refused_gets_the_refusal_at_once(world):
    with world.proxy(["www.example.com"]) as proxy, world.connect(proxy) as wire:
        wire.send(b"PUT http://evil.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        head = wire.read_head()
        assert head.status == 403, head.raw
        proxy.expect(refused("PUT", "evil.example", 80, "not_listed"))


@for_each(
    a_103_first=b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
    a_100_first=b"HTTP/1.1 100 Continue\r\n\r\n",
    two_interim_ones=b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n",
)
def interim_responses_never_hide_the_final_one(world, interim):
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    with _Exchange(world, _answering(interim + final)) as exchange, exchange.connect() as wire:
        wire.send(exchange.request())
        response = wire.read_response()
        while 100 <= response.status < 200:
            response = wire.read_response()
        assert (response.status, response.body) == (200, b"hello"), response.head.raw
        exchange.expect_listed()


@for_each(
    garbage=(b"\x00\x01garbage\r\n\r\n", 502, "response_invalid"),
    another_protocol=(b"SSH-2.0-OpenSSH_9.2\r\n", 502, "response_invalid"),
    a_status_below_100=(b"HTTP/1.1 099 x\r\nContent-Length: 0\r\n\r\n", 502, "response_invalid"),
    a_101_that_nobody_asked_for=(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        502,
        "response_invalid",
    ),
    a_head_without_end=(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000, 502, "response_invalid"),
    a_thousand_fields=(b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 1000 + b"\r\n", 502, "response_invalid"),
    a_space_before_the_colon=(b"HTTP/1.1 200 OK\r\nX : 1\r\nContent-Length: 0\r\n\r\n", 502, "response_invalid"),
    two_lengths=(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 502, "response_invalid"),
    nothing=(b"", 502, "response_incomplete"),
    half_a_head=(b"HTTP/1.1 200 OK\r\nX: 1\r\n", 502, "response_incomplete"),
)
def an_origin_that_answers_with_no_response_is_a_502_of_its_own_kind(world, row):
    sent, status, code = row

    def script(wire):
        wire.read_head()
        try:
            wire.send(sent)
        except OSError:
            pass  # the proxy need not read to the end of it

    with _Exchange(world, script) as exchange:
        response = exchange.ask()
        assert (response.status, response.code) == (status, code), (response.head.raw, response.body)
        [close] = exchange.proxy.wait_for_close()
        assert close["ended"] == code, close
        exchange.expect_listed()


def an_origin_that_says_nothing_is_a_504_within_the_limit(world):
    with _Exchange(world, lambda wire: wire.is_gone() or wire.is_gone(), response_timeout="500ms") as exchange:
        began = time.monotonic()
        response = exchange.ask()
        assert (response.status, response.code) == (504, "response_timeout"), response.head.raw
        assert time.monotonic() - began < 3
        [close] = exchange.proxy.wait_for_close()
        assert close["ended"] == "response_timeout", close
        exchange.expect_listed()


def an_origin_that_is_not_there_is_a_502(world):
    with world.proxy(["api.example.com:9"]) as proxy:
        response = world.ask(proxy, b"GET http://api.example.com:9/ HTTP/1.1\r\nHost: api.example.com:9\r\n\r\n")
        assert (response.status, response.code) == (502, "connect_refused"), response.head.raw
        proxy.expect(failed("GET", "api.example.com", 9, "connect_refused", ORIGIN))


# -- fields --------------------------------------------------------------------------------------------------------


def no_field_that_speaks_of_one_hop_crosses_to_the_next(world):
    heads = []

    def note(wire):
        heads.append(wire.read_head())
        wire.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
            b"Proxy-Authenticate: Basic\r\nX-End: 1\r\n\r\n"
        )

    with _Exchange(world, note) as exchange:
        response = exchange.ask(
            fields="Connection: close, X-Foo\r\nConnection: X-Bar\r\nX-Foo: 1\r\nX-Bar: 1\r\nKeep-Alive: 300\r\n"
            "Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\nTE: trailers\r\nTrailer: X\r\n"
            "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nX-End: 1\r\nCookie: a=b\r\n"
        )
        [head] = heads
        gone = {
            *("x-foo", "x-bar", "keep-alive", "proxy-connection", "proxy-authorization"),
            *("te", "trailer", "upgrade", "http2-settings"),
        }
        assert not gone & set(head.names), head.raw
        assert head.get("x-end") == "1" and head.get("cookie") == "a=b", head.raw
        assert head.all("host") == [exchange.host] and head.all("via") == ["1.1 strait"], head.raw
        assert not {"x-hop", "keep-alive", "proxy-authenticate"} & set(response.head.names), response.head.raw
        assert response.head.get("x-end") == "1" and response.head.get("via") == "1.1 strait", response.head.raw
        exchange.expect_listed()


def a_request_that_was_here_before_is_a_loop(world):
    with world.proxy(["www.example.com"]) as proxy:
        request = b"GET http://www.example.com/ HTTP/1.1\r\nHost: x\r\nVia: 1.1 a, 1.1 strait\r\n\r\n"
        response = world.ask(proxy, request)
        assert (response.status, response.code) == (508, "loop"), response.head.raw
        [line] = proxy.wait_for_egress(1)
        assert line["reason"] == "loop", line


def TRACE_is_not_forwarded(world):
    with world.proxy(["www.example.com"]) as proxy:
        response = world.ask(proxy, b"TRACE http://www.example.com/ HTTP/1.1\r\nHost: x\r\nCookie: secret\r\n\r\n")
        assert (response.status, response.code) == (403, "method_refused"), response.head.raw
        assert b"secret" not in response.body
        [line] = proxy.wait_for_egress(1)
        assert line["reason"] == "method_refused", line


def OPTIONS_that_may_not_be_forwarded_any_further_is_answered_here(world):
    with world.proxy(["www.example.com"]) as proxy:
        request = b"OPTIONS http://www.example.com/ HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n"
        response = world.ask(proxy, request)
        assert response.status == 200, response.head.raw
        [line] = proxy.wait_for_egress(1)
        assert line["allowed"] is True, line


def a_plain_WebSocket_upgrade_works_or_is_refused_but_never_half(world):
    """An origin that answers 101 regardless must never be taken for one that was asked to."""
    seen = []

    def upgrade(wire):
        head = wire.read_head()
        seen.append(head)
        if "upgrade" in head.names:
            wire.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
            wire.send(wire.read(4))
        else:
            wire.send(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n")

    with _Exchange(world, upgrade) as exchange, exchange.connect() as wire:
        wire.send(exchange.request(fields="Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"))
        head = wire.read_head()
        if head.status == 101:
            wire.send(b"ping")
            assert wire.read(4) == b"ping"
        else:
            assert head.status in (426, 501) and "upgrade" not in seen[0].names, (head.raw, seen[0].raw)
        exchange.expect_listed()


# -- several requests on one connection ------------------------------------------------------------------------------


def requests_sent_in_one_packet_are_decided_one_by_one_in_order(world):
    with world.proxy(["www.example.com"]) as proxy, world.connect(proxy) as wire:
        hosts = ["www.example.com", "evil.example", "www.example.com"]
        wire.send(b"".join(f"GET http://{host}/small HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() for host in hosts))
        assert [wire.read_response().status for _ in hosts] == [200, 403, 200]
        proxy.expect(
            listed("GET", "www.example.com", 80, ORIGIN),
            refused("GET", "evil.example", 80, "not_listed"),
            listed("GET", "www.example.com", 80, ORIGIN),
        )


def a_connection_to_an_origin_is_never_shared_between_requests(world):
    ports = []

    def note(wire):
        ports.append(wire.socket.getpeername()[1])
        wire.read_head()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n")

    with _Exchange(world, note) as exchange, exchange.connect() as one, exchange.connect() as other:
        for wire in (one, other, one):
            wire.send(exchange.request())
            assert wire.read_response().status == 200
        assert len(set(ports)) == 3, ports
        exchange.expect_listed(count=3)


def bytes_after_a_body_are_the_next_request_and_malformed(world):
    def take(wire):
        wire.read_head()
        wire.read(5)
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with _Exchange(world, take) as exchange, exchange.connect() as wire:
        wire.send(exchange.request("POST", fields="Content-Length: 5\r\n") + b"hello" + b"X\r\n\r\n")
        assert wire.read_response().status == 200
        response = wire.read_response()
        assert response.status == 400 and response.head.get("connection") == "close", response.head.raw
        [_, second] = exchange.proxy.wait_for_egress(2)
        assert (second["allowed"], second["reason"]) == (False, "bad_request"), second
