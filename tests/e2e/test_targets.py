"""What a client may ask for, in bytes: one answer, one line, and nothing leaves for what is refused."""

from lane import for_each
from network import ORIGIN, SCRIPTED_ORIGIN
from strait import listed, refused

_ALLOW = ["api.example.com:443", "www.example.com:80"]
_HOST = b"Host: www.example.com\r\n\r\n"


def _get(target, method=b"GET", version=b"HTTP/1.1"):
    return method + b" " + target + b" " + version + b"\r\n" + _HOST


@for_each(
    origin_form=(_get(b"/path"), 400, "bad_target_form"),
    origin_form_that_looks_like_an_authority=(_get(b"//evil.example/"), 400, "bad_target_form"),
    asterisk=(_get(b"*", b"OPTIONS"), 400, "bad_target_form"),
    authority_without_CONNECT=(_get(b"api.example.com:443"), 400, "bad_target_form"),
    ftp=(_get(b"ftp://www.example.com/"), 400, "bad_scheme"),
    file=(_get(b"file:///etc/passwd"), 400, "bad_scheme"),
    websocket=(_get(b"ws://www.example.com/"), 400, "bad_scheme"),
    https=(_get(b"https://api.example.com/"), 400, "absolute_https"),
    one_slash=(_get(b"http:/www.example.com/"), 400, None),
    no_host=(_get(b"http:///x"), 400, None),
    user_name=(_get(b"http://www.example.com@evil.example/"), 400, "userinfo"),
    CONNECT_with_a_user_name=(_get(b"api.example.com@evil.example:443", b"CONNECT"), 400, "userinfo"),
    CONNECT_with_a_path=(_get(b"api.example.com:443/evil", b"CONNECT"), 400, None),
    CONNECT_to_an_asterisk=(_get(b"*", b"CONNECT"), 400, None),
    CONNECT_without_a_port=(_get(b"api.example.com", b"CONNECT"), 400, "bad_port"),
    CONNECT_to_port_0=(_get(b"api.example.com:0", b"CONNECT"), 400, "bad_port"),
    CONNECT_to_a_port_with_a_sign=(_get(b"api.example.com:+443", b"CONNECT"), 400, "bad_port"),
    CONNECT_in_lower_case=(_get(b"api.example.com:443", b"connect"), 400, "bad_method"),
    CONNECT_with_a_body=(
        b"CONNECT api.example.com:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + _HOST,
        400,
        "bad_framing",
    ),
    a_percent_sign_in_the_host=(_get(b"%61pi.example.com:443", b"CONNECT"), 400, "bad_host"),
    raw_UTF_8_in_the_host=(_get("b\u00fccher.example:443".encode(), b"CONNECT"), 400, None),
    a_NUL_in_the_host=(_get(b"evil.example\0.api.example.com:443", b"CONNECT"), 400, None),
    an_IPv6_zone=(_get(b"[fe80::1%25eth0]:443", b"CONNECT"), 400, "bad_host"),
    loopback_in_short_form=(_get(b"127.1:443", b"CONNECT"), 400, "bad_host"),
    metadata_in_hexadecimal=(_get(b"http://0xA9FEA9FE/"), 400, "bad_host"),
    two_spaces=(_get(b" http://www.example.com/"), 400, None),
    HTTP_0_9=(b"GET http://www.example.com/\r\n\r\n", 400, None),
    HTTP_2=(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "bad_version"),
    TLS_on_the_plain_port=(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, None),
    two_Host_fields=(b"GET http://www.example.com/ HTTP/1.1\r\nHost: a.example\r\n" + _HOST, 400, "bad_host_field"),
    two_lengths=(
        b"POST http://www.example.com/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n" + _HOST,
        400,
        "bad_framing",
    ),
    length_and_chunked=(
        b"POST http://www.example.com/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n" + _HOST,
        400,
        "bad_framing",
    ),
    a_head_over_the_limit=(
        b"GET http://www.example.com/ HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n" + _HOST,
        431,
        "head_too_large",
    ),
    a_target_over_the_limit=(_get(b"http://www.example.com/" + b"x" * 70_000), 414, "target_too_long"),
    too_many_fields=(
        b"GET http://www.example.com/ HTTP/1.1\r\n" + b"X: 1\r\n" * 101 + _HOST,
        431,
        "head_too_large",
    ),
)
def a_malformed_request_is_refused_before_anything_is_resolved(world, row):
    request, status, code = row
    with world.proxy(_ALLOW) as proxy:
        response = world.ask(proxy, request)
        assert response.status == status, (response.status, response.code, response.body)
        assert response.code and code in (response.code, None), (response.code, code)
        assert f'"error":"{response.code}"'.encode() in response.body, response.body
        [line] = proxy.wait_for_egress(1)
        assert (line["allowed"], line["reason"]) == (False, response.code), line
        # The proxy goes on as if nothing had been.
        assert world.curl(proxy, "http://www.example.com/small").code == 0
        first = {field: line[field] for field in ("method", "host", "port", "allowed", "reason") if field in line}
        proxy.expect(first, listed("GET", "www.example.com", 80, ORIGIN))


@for_each(
    another_name=(_get(b"http://evil.example/"), "GET", "evil.example", 80),
    another_port=(_get(b"api.example.com:80", b"CONNECT"), "CONNECT", "api.example.com", 80),
    a_port_listed_for_another_name=(_get(b"http://www.example.com:443/"), "GET", "www.example.com", 443),
    a_name_that_ends_alike=(_get(b"evilapi.example.com:443", b"CONNECT"), "CONNECT", "evilapi.example.com", 443),
    a_name_that_begins_alike=(
        _get(b"api.example.com.evil.example:443", b"CONNECT"),
        "CONNECT",
        "api.example.com.evil.example",
        443,
    ),
    an_address=(_get(f"http://{ORIGIN}/".encode()), "GET", ORIGIN, 80),
    localhost=(_get(b"localhost:443", b"CONNECT"), "CONNECT", "localhost", 443),
    loopback=(_get(b"[::1]:443", b"CONNECT"), "CONNECT", "::1", 443),
)
def a_destination_that_is_not_listed_is_refused_and_never_resolved(world, row):
    request, method, host, port = row
    with world.proxy(_ALLOW) as proxy:
        response = world.ask(proxy, request)
        assert (response.status, response.code) == (403, "not_listed"), response.head.raw
        proxy.expect(refused(method, host, port, "not_listed"))


@for_each(
    upper_case=(b"CONNECT API.Example.COM:443 HTTP/1.1\r\n"),
    a_trailing_dot=(b"CONNECT api.example.com.:443 HTTP/1.1\r\n"),
    HTTP_1_0=(b"CONNECT api.example.com:443 HTTP/1.0\r\n"),
    another_Host_field=(b"CONNECT api.example.com:443 HTTP/1.1\r\nX-Forwarded-Host: evil.example\r\n"),
    an_empty_line_before_it=(b"\r\nCONNECT api.example.com:443 HTTP/1.1\r\n"),
)
def a_tunnel_is_asked_for_in_other_words_and_the_line_has_the_canonical_name(world, line):
    with world.proxy(_ALLOW) as proxy:
        with world.connect(proxy) as wire:
            wire.send(line + b"Host: evil.example\r\n\r\n")
            head = wire.read_head()
            assert head.status == 200, head.raw
            assert "content-length" not in head.names and "transfer-encoding" not in head.names, head.raw
        proxy.expect(listed("CONNECT", "api.example.com", 443, ORIGIN))


@for_each(
    no_path=(b"GET", b"http://raw.example.com:PORT", "GET / HTTP/1.1"),
    a_query_without_a_path=(b"GET", b"http://raw.example.com:PORT?x=1", "GET /?x=1 HTTP/1.1"),
    upper_case=(b"GET", b"HTTP://RAW.EXAMPLE.COM:PORT/A", "GET /A HTTP/1.1"),
    dot_segments=(b"GET", b"http://raw.example.com:PORT/../%2e%2e/x", "GET /../%2e%2e/x HTTP/1.1"),
    the_whole_server=(b"OPTIONS", b"http://raw.example.com:PORT", "OPTIONS * HTTP/1.1"),
    an_unknown_method=(b"PROPFIND", b"http://raw.example.com:PORT/d", "PROPFIND /d HTTP/1.1"),
)
def an_absolute_target_reaches_the_origin_in_the_form_that_origins_take(world, row):
    method, target, first_line = row
    heads = []

    def note(wire):
        heads.append(wire.read_head())
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with world.origin(note) as origin, world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
        target = target.replace(b"PORT", str(origin.port).encode())
        response = world.ask(proxy, method + b" " + target + b" HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert response.status == 200, response.head.raw
        [head] = heads
        assert head.first == first_line, head.raw
        assert head.all("host") == [f"raw.example.com:{origin.port}"], head.raw
        proxy.expect(listed(method.decode(), "raw.example.com", origin.port, SCRIPTED_ORIGIN))
