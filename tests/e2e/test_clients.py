"""Real clients, as people run them: what they fetch arrives whole, what is refused they are told."""

import hashlib
import os
import subprocess

from lane import for_each
from network import ORIGIN, ORIGIN_V6, SCRIPTED_ORIGIN
from processes import Service, eventually
from servers import answers
from strait import listed, refused

SMALL = b"a small file\n"
SMALL_SHA256 = hashlib.sha256(SMALL).hexdigest()


def _sha256(data):
    return hashlib.sha256(data).hexdigest()


# -- curl ------------------------------------------------------------------------------------------


@for_each(over_HTTP_1_1=["--http1.1"], over_HTTP_2=["--http2"], with_an_HTTP_1_0_CONNECT=["--proxy1.0"])
def curl_downloads_a_large_file_through_a_tunnel(world, flags):
    with world.proxy(["api.example.com"]) as proxy:
        # --proxy1.0 names the proxy by itself.
        words = [*flags, proxy.url] if flags == ["--proxy1.0"] else ["-x", proxy.url, *flags]
        got = world.run("curl", "-sS", "--max-time", "20", *words, "https://api.example.com/big")
        assert got.code == 0 and _sha256(got.output) == world.big_sha256, got
        proxy.expect(listed("CONNECT", "api.example.com", 443, ORIGIN))
        [close] = proxy.closes()
        assert close["from_origin"] > len(got.output) and close["ended"] == "complete", close


@for_each(over_HTTP_1_1=["--http1.1"], over_HTTP_1_0=["--http1.0"])
def curl_downloads_a_large_file_in_plain_HTTP(world, flags):
    with world.proxy(["www.example.com"]) as proxy:
        got = world.curl(proxy, *flags, "http://www.example.com/big")
        assert got.code == 0 and _sha256(got.output) == world.big_sha256, got
        proxy.expect(listed("GET", "www.example.com", 80, ORIGIN))


def curl_tunnels_plain_HTTP_to_port_80(world):
    with world.proxy(["www.example.com:80"]) as proxy:
        got = world.curl(proxy, "--proxytunnel", "http://www.example.com/small")
        assert got.output == SMALL, got
        proxy.expect(listed("CONNECT", "www.example.com", 80, ORIGIN))


def curl_reaches_an_IPv6_origin(world):
    with world.proxy(["six.example.com"]) as proxy:
        got = world.curl(proxy, "https://six.example.com/small")
        assert got.output == SMALL, got
        proxy.expect(listed("CONNECT", "six.example.com", 443, ORIGIN_V6))


def curl_reaches_a_listed_IPv6_literal(world):
    literal = f"[{ORIGIN_V6}]"
    with world.proxy([f"{literal}:80"], allow_net=[]) as proxy:
        got = world.curl(proxy, "-g", f"http://{literal}/small")
        assert got.output == SMALL, got
        proxy.expect(listed("GET", ORIGIN_V6, 80, ORIGIN_V6))


@for_each(
    through_a_tunnel=("https://api.example.com", "CONNECT", 443, []),
    in_plain_HTTP=("http://api.example.com", "PUT", 80, []),
    in_plain_HTTP_chunked=("http://api.example.com", "PUT", 80, ["-H", "Transfer-Encoding: chunked"]),
    in_plain_HTTP_1_0=("http://api.example.com", "PUT", 80, ["--http1.0"]),
    in_plain_HTTP_after_100_continue=("http://api.example.com", "PUT", 80, ["-H", "Expect: 100-continue"]),
)
def curl_uploads_a_large_file(world, row):
    base, method, port, flags = row
    content = os.urandom(1 << 20) * 24
    source = world.folder / "to-upload"
    source.write_bytes(content)
    name = f"upload-{method}-{len(flags)}"
    with world.proxy(["api.example.com"]) as proxy:
        got = world.curl(proxy, *flags, "-T", source, "-o", "/dev/null", "-w", "%{http_code}", f"{base}/upload/{name}")
        assert got.code == 0 and got.text in ("201", "204"), got
        assert _sha256(world.uploaded(name)) == _sha256(content)
        proxy.expect(listed(method, "api.example.com", port, ORIGIN))
        [close] = proxy.closes()
        assert close["to_origin"] >= len(content), close
    (world.servers.uploads / name).unlink()


def curl_is_told_why_a_tunnel_is_refused(world):
    with world.proxy(["api.example.com"]) as proxy:
        got = world.curl(proxy, "-D", "-", "-w", "%{http_connect}", "https://www.example.com/")
        assert got.code == 56 and got.text.endswith("403"), got
        assert 'details="not_listed"' in got.text, got
        proxy.expect(refused("CONNECT", "www.example.com", 443, "not_listed"))


def curl_shows_why_plain_HTTP_is_refused(world):
    with world.proxy(["api.example.com"]) as proxy:
        got = world.curl(proxy, "-w", "\n%{http_code}", "http://www.example.com/")
        body, status = got.text.rsplit("\n", 1)
        assert status == "403" and '"error":"not_listed"' in body and "www.example.com:80" in body, got
        proxy.expect(refused("GET", "www.example.com", 80, "not_listed"))


def curl_gets_several_plain_files_over_one_connection_and_each_is_an_attempt(world):
    with world.proxy(["api.example.com", "www.example.com"]) as proxy:
        urls = [f"http://{host}.example.com/small" for host in ("api", "www", "dual", "api")]
        got = world.curl(proxy, "-w", "%{http_code} %{num_connects}\\n", *urls)
        assert got.text.count(SMALL.decode()) == 3 and "403 0" in got.text, got
        proxy.expect(
            listed("GET", "api.example.com", 80, ORIGIN),
            listed("GET", "www.example.com", 80, ORIGIN),
            refused("GET", "dual.example.com", 80, "not_listed"),
            listed("GET", "api.example.com", 80, ORIGIN),
        )


def curl_that_stops_early_ends_its_tunnel(world):
    with world.proxy(["api.example.com"]) as proxy:
        # It takes 1 MB of many, then closes: exit 63, "maximum file size exceeded", is its own doing.
        words = ["--max-filesize", "1000000", "-o", "/dev/null", "https://api.example.com/big"]
        got = world.curl(proxy, *words)
        assert got.code == 63, got
        proxy.wait_for_close()
        proxy.expect(listed("CONNECT", "api.example.com", 443, ORIGIN))


def a_client_that_is_killed_in_the_middle_of_a_download_ends_its_tunnel(world):
    with world.proxy(["api.example.com"]) as proxy:
        target = world.folder / "half"
        words = ["-sS", "-x", proxy.url, "--limit-rate", "2M", "-o", target, "https://api.example.com/big"]
        with world.start("curl", *words) as curl:
            eventually(lambda: target.exists() and target.stat().st_size > 100_000, "the download has begun")
            curl.kill()
        [close] = proxy.wait_for_close()
        assert close["ended"] in ("client_gone", "complete") and close["from_origin"] > 100_000, close
        assert world.curl(proxy, "https://api.example.com/small").output == SMALL
        proxy.expect(
            listed("CONNECT", "api.example.com", 443, ORIGIN),
            listed("CONNECT", "api.example.com", 443, ORIGIN),
        )


# -- other programs --------------------------------------------------------------------------------


@for_each(https=("https", "CONNECT", 443), http=("http", "GET", 80))
def wget_downloads_a_large_file(world, row):
    scheme, method, port = row
    with world.proxy(["api.example.com"]) as proxy:
        authority = world.certificates.authority
        words = ["-q", "-O", "-", f"--ca-certificate={authority}", f"{scheme}://api.example.com/big"]
        got = world.run("wget", *words, proxy=proxy)
        assert got.code == 0 and _sha256(got.output) == world.big_sha256, got.errors
        proxy.expect(listed(method, "api.example.com", port, ORIGIN))


def wget_is_told_why_it_is_refused(world):
    with world.proxy(["api.example.com"]) as proxy:
        got = world.run("wget", "-nv", "-O", "-", "https://www.example.com/", proxy=proxy)
        assert got.code != 0 and b"tunneling failed: Forbidden" in got.errors, got
        proxy.expect(refused("CONNECT", "www.example.com", 443, "not_listed"))


def git_clones_fetches_and_pushes_over_https(world):
    repository = world.folder / "git" / "project.git"
    seed, clone = world.folder / "seed", world.folder / "clone"
    _git(world, "init", "-q", "--bare", repository)
    _git(world, "-C", repository, "config", "http.receivepack", "true")
    _git(world, "init", "-q", seed)
    (seed / "data").write_bytes(os.urandom(4 << 20))
    _git(world, "-C", seed, "add", ".")
    commit = ["-c", "user.name=e2e", "-c", "user.email=e2e@example.com", "commit", "-q", "-m"]
    _git(world, "-C", seed, *commit, "one")
    _git(world, "-C", seed, "push", "-q", repository, "HEAD:main")
    _git(world, "-C", repository, "symbolic-ref", "HEAD", "refs/heads/main")
    url = "https://git.example.com/git/project.git"

    with world.proxy(["git.example.com:443"]) as proxy:
        cloned = world.run("git", "clone", "-q", url, clone, proxy=proxy)
        assert cloned.code == 0, cloned
        assert (clone / "data").read_bytes() == (seed / "data").read_bytes()
        (clone / "more").write_bytes(os.urandom(2 << 20))
        _git(world, "-C", clone, "add", ".")
        _git(world, "-C", clone, *commit, "two")
        pushed = world.run("git", "-C", clone, "push", "-q", "origin", "HEAD:main", proxy=proxy)
        assert pushed.code == 0, pushed
        assert _git(world, "-C", repository, "rev-parse", "main") == _git(world, "-C", clone, "rev-parse", "HEAD")
        attempts = len(proxy.egress())
        assert attempts >= 2, proxy.egress()
        proxy.expect(*[listed("CONNECT", "git.example.com", 443, ORIGIN)] * attempts)


def git_is_told_why_it_is_refused(world):
    with world.proxy(["api.example.com"]) as proxy:
        got = world.run("git", "ls-remote", "https://git.example.com/git/project.git", proxy=proxy)
        assert got.code == 128 and b"403" in got.errors, got
        proxy.expect(refused("CONNECT", "git.example.com", 443, "not_listed"))


def _git(world, *words):
    """git on this side of the lane, untouched by the settings of whoever runs it."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(world.folder / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *map(str, words)], check=True, capture_output=True, env=environment).stdout


def openssl_s_client_speaks_TLS_through_a_tunnel(world):
    with world.proxy(["api.example.com"]) as proxy:
        host, port = proxy.address
        got = world.run(
            *("openssl", "s_client", "-proxy", f"{host}:{port}", "-connect", "api.example.com:443"),
            *("-servername", "api.example.com", "-CAfile", world.certificates.authority),
            *("-verify_return_error", "-quiet", "-ign_eof"),
            stdin=b"GET /small HTTP/1.0\r\nHost: api.example.com\r\n\r\n",
        )
        assert got.code == 0 and got.output.endswith(SMALL), got
        proxy.expect(listed("CONNECT", "api.example.com", 443, ORIGIN))


# -- Python ----------------------------------------------------------------------------------------

_PYTHON = {"requests": "with_requests.py", "httpx": "with_httpx.py", "aiohttp": "with_aiohttp.py"}


@for_each(**_PYTHON)
def a_Python_client_finds_the_proxy_in_its_environment_and_downloads_over_https(world, program):
    with world.proxy(["api.example.com"]) as proxy:
        got = world.python(program, "https://api.example.com/big", proxy=proxy).json
        assert got == {"status": 200, "sha256": world.big_sha256}
        proxy.expect(listed("CONNECT", "api.example.com", 443, ORIGIN))


@for_each(**_PYTHON)
def a_Python_client_finds_the_proxy_in_its_environment_and_downloads_in_plain_HTTP(world, program):
    with world.proxy(["api.example.com"]) as proxy:
        got = world.python(program, "http://api.example.com/big", proxy=proxy).json
        assert got == {"status": 200, "sha256": world.big_sha256}
        proxy.expect(listed("GET", "api.example.com", 80, ORIGIN))


@for_each(**_PYTHON)
def a_Python_client_is_told_that_it_is_refused(world, program):
    with world.proxy(["api.example.com"]) as proxy:
        got = world.python(program, "https://www.example.com/", proxy=proxy).json
        assert "403" in got["failed"], got
        attempts = len(proxy.egress())
        assert attempts >= 1
        proxy.expect(*[refused("CONNECT", "www.example.com", 443, "not_listed")] * attempts)


# -- Node ------------------------------------------------------------------------------------------

# undici tunnels http:// URLs too; axios asks for them in absolute-form.
_NODE = {
    "undici": (["with_undici.mjs"], "CONNECT"),
    "fetch": (["with_fetch.mjs"], "CONNECT"),
    "axios": (["with_axios.mjs", "axios"], "GET"),
}


@for_each(**_NODE)
def a_Node_client_downloads_over_https(world, row):
    words, _ = row
    with world.proxy(["api.example.com"]) as proxy:
        got = world.node(*words, "https://api.example.com/big", proxy=proxy).json
        assert got == {"status": 200, "sha256": world.big_sha256}
        proxy.expect(listed("CONNECT", "api.example.com", 443, ORIGIN))


@for_each(**_NODE)
def a_Node_client_downloads_from_port_80(world, row):
    words, method = row
    with world.proxy(["api.example.com"]) as proxy:
        got = world.node(*words, "http://api.example.com/big", proxy=proxy).json
        assert (got["status"], got["sha256"]) == (200, world.big_sha256), got
        proxy.expect(listed(method, "api.example.com", 80, ORIGIN))


@for_each(**_NODE)
def a_Node_client_is_told_that_it_is_refused(world, row):
    words, _ = row
    with world.proxy(["api.example.com"]) as proxy:
        got = world.node(*words, "https://www.example.com/", proxy=proxy).json
        assert "403" in got.get("failed", "") or got.get("status") == 403, got
        proxy.expect(refused("CONNECT", "www.example.com", 443, "not_listed"))


def an_old_axios_that_sends_https_in_absolute_form_is_told_so(world):
    with world.proxy(["api.example.com"]) as proxy:
        words = ["with_axios.mjs", "axios-before-connect"]
        got = world.node(*words, "https://api.example.com/small", proxy=proxy).json
        assert got["status"] == 400 and 'details="absolute_https"' in got["proxyStatus"], got
        got = world.node(*words, "http://api.example.com/small", proxy=proxy).json
        assert (got["status"], got["sha256"]) == (200, SMALL_SHA256), got
        first, second = proxy.wait_for_egress(2)
        assert (first["allowed"], first["reason"]) == (False, "absolute_https"), first
        assert (second["allowed"], second["reason"]) == (True, "listed"), second


# -- WebSocket -------------------------------------------------------------------------------------

_SECURE_PORT, _PLAIN_PORT = 8443, 8080
_WEBSOCKET = {
    "Python_websockets_over_TLS": ("python", "with_websockets.py", "wss", _SECURE_PORT),
    "Python_websockets_in_the_clear": ("python", "with_websockets.py", "ws", _PLAIN_PORT),
    "Node_ws_over_TLS": ("node", "with_ws.mjs", "wss", _SECURE_PORT),
    "Node_ws_in_the_clear": ("node", "with_ws.mjs", "ws", _PLAIN_PORT),
}


@for_each(**_WEBSOCKET)
def a_WebSocket_client_talks_through_a_tunnel(world, row):
    language, program, scheme, port = row
    origin = Service(
        world.network.command(
            *("net", world.pinned_python(), world.program("websocket_origin.py")),
            *(ORIGIN, _SECURE_PORT, _PLAIN_PORT, world.certificates.origin),
        ),
        world.folder / "websocket.log",
        lambda: answers(world.network, ORIGIN, _SECURE_PORT) and answers(world.network, ORIGIN, _PLAIN_PORT),
    )
    try:
        with world.proxy([f"api.example.com:{port}"]) as proxy:
            run = getattr(world, language)
            assert run(program, f"{scheme}://api.example.com:{port}/", proxy=proxy).json == {"echoed": True}
            proxy.expect(listed("CONNECT", "api.example.com", port, ORIGIN))
    finally:
        origin.stop()


# -- a protocol in which the origin speaks first -----------------------------------------------------


def a_protocol_in_which_the_origin_speaks_first_works_through_a_tunnel(world):
    banner, answer = b"SSH-2.0-strait_e2e\r\n", b"SSH-2.0-client\r\n"

    def ssh_like(wire):
        wire.send(banner)
        assert wire.read_until(b"\n") == answer
        wire.send(b"key exchange" * 1000)
        wire.read_to_end()

    with world.origin(ssh_like) as origin, world.proxy([f"raw.example.com:{origin.port}"]) as proxy:
        with world.tunnel(proxy, f"raw.example.com:{origin.port}") as wire:
            assert wire.read_until(b"\n") == banner
            wire.send(answer)
            assert wire.read(12_000) == b"key exchange" * 1000
        proxy.wait_for_close()
        proxy.expect(listed("CONNECT", "raw.example.com", origin.port, SCRIPTED_ORIGIN))


def a_client_cannot_get_out_but_through_the_proxy(world):
    """The lane's own foundation: were there another way out, the tests above would prove nothing."""
    try:
        world.network.connect(ORIGIN, 443, timeout=2).close()
    except OSError as error:
        assert not isinstance(error, ConnectionRefusedError), error
    else:
        raise AssertionError("the client reached an origin directly")
