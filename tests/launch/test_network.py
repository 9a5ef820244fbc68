"""What a server reaches, and what is written down of it."""

import socket
import time

import images
from host import ADDRESS, WORLD_ADDRESS
from stage import LISTED, ORIGIN, PRIVATE, UNLISTED, audit_lines, said

# Seconds, for what needs nobody else.
AT_ONCE = 2


def a_listed_host_is_reached_and_no_other(stage):
    flags, variables = stage.trusting()
    audit = stage.folder() / "audit.jsonl"
    with stage.launch(images.python(), "--name", "main-job", "--allow", LISTED, *flags, audit=audit,
                      extra_env=variables) as server:
        server.greet()
        got = server.call("fetch", url=f"https://{LISTED}/one")
        assert got == {"status": 200, "body": f"<html><body><p>the answer of {LISTED}</p></body></html>"}, got
        assert server.call("fetch", url=f"http://{LISTED}/two")["status"] == 200
        for _ in range(3):
            got = server.call("fetch", url=f"https://{UNLISTED}/three")
            assert "403" in got["error"], got
        got = server.call("fetch", url=f"http://{UNLISTED}/four")
        assert got["status"] == 403 and "not_listed" in got["body"], got
        assert server.end() == 0
        errors = server.errors.rest().decode()
    assert stage.world.requests[-2:] == [(LISTED, "/one"), (LISTED, "/two")], stage.world.requests

    assert audit.stat().st_mode & 0o777 == 0o600, oct(audit.stat().st_mode)
    lines = audit_lines(audit)
    assert all(line["event"] == "egress" and line["server"] == "main-job" for line in lines), lines
    listed, refused = {"allowed": True, "reason": "listed"}, {"allowed": False, "reason": "not_listed"}
    wanted = [
        {"method": "CONNECT", "host": LISTED, "port": 443, **listed, "address": f"{ORIGIN}:443"},
        {"method": "GET", "host": LISTED, "port": 80, **listed, "address": f"{ORIGIN}:80"},
        *[{"method": "CONNECT", "host": UNLISTED, "port": 443, **refused}] * 3,
        {"method": "GET", "host": UNLISTED, "port": 80, **refused},
    ]
    seen = [{name: value for name, value in line.items() if name not in ("time", "event", "server", "id", "ms")}
            for line in lines]
    assert seen == wanted, seen
    assert len({line["id"] for line in lines}) == len(lines), "ids that are used twice"

    # Each host once when it happens, and all of them at the end, with what to do.
    lines = said(errors)
    at_once = [line for line in lines if line.startswith(f"refused {UNLISTED}:")]
    assert at_once == [f"refused {UNLISTED}:{port}, which is not listed; to allow it, add --allow {UNLISTED}"
                       for port in (443, 80)], lines
    assert lines[-5:] == [
        "refused, for server `main-job`:", f"  3 x {UNLISTED}:443 (not listed)", f"  1 x {UNLISTED}:80 (not listed)",
        "to allow what is not listed, if the server should reach it:", f"  --allow {UNLISTED}",
    ], lines


def a_listed_name_that_leads_inside_is_refused(stage):
    audit = stage.folder() / "audit.jsonl"
    with stage.launch(images.python(), "--allow", PRIVATE, audit=audit) as server:
        server.greet()
        got = server.call("fetch", url=f"http://{PRIVATE}/")
        assert got["status"] == 403, got
        assert server.end() == 0
        errors = server.errors.rest().decode()
    [line] = audit_lines(audit)
    assert (line["allowed"], line["reason"]) == (False, "private_address"), line
    assert "add --allow-net 10.0.0.5/32" in errors, errors


# Tries all places at once; the first address of the small network is the gateway's, where there is one.
_AROUND = """
proxy=${HTTP_PROXY#http://}; proxy=${proxy%:*}; gateway=${proxy%.*}.$((${proxy##*.} - 1))
try() { nc -w 2 "$1" "$2" </dev/null >/dev/null 2>&1 && echo "reached $1 $2"; }
for place in "$@"; do try ${place%:*} ${place##*:} & done
try $gateway 7100 & try $proxy 7100 & try $proxy 53 &
for route in $(ip route | sed -n 's/.* via \\([0-9.]*\\) .*/\\1/p'); do try $route 7100 & done
ip link add x type dummy 2>/dev/null && echo made an interface
ip route add default via $proxy 2>/dev/null && echo made a route
nslookup listed.example.com 2>/dev/null | grep -q 93.184 && echo resolved
cat /proc/net/if_inet6 2>/dev/null
wait
nc -w 2 $proxy 3128 </dev/null && echo the proxy alone
"""


def there_is_no_way_around_the_proxy(stage):
    machine = stage.runtime.host
    places = [f"{ORIGIN}:443", f"{ORIGIN}:80", f"{WORLD_ADDRESS}:7100", f"{ADDRESS}:7100", "169.254.169.254:80",
              "10.0.2.2:7100", "172.17.0.1:7100", "10.88.0.1:7100"]
    asked = len(stage.world.dns.questions)
    with (machine.listen("0.0.0.0", 7100), machine.listen("::", 7100),
          machine.listen(WORLD_ADDRESS, 7100, namespace=machine.world)):
        with machine.inside():
            socket.create_connection((ADDRESS, 7100), 5).close()
            socket.create_connection((WORLD_ADDRESS, 7100), 5).close()
        with stage.launch(images.busybox(), "--allow", LISTED, "--command", "/bin/sh",
                          arguments=["-c", _AROUND, "-", *places]) as server:
            assert server.wait() == 0, server.errors.text()
            assert server.out.rest() == b"the proxy alone\n", server.out.text()
    assert len(stage.world.dns.questions) == asked, "a name was asked for"


def a_name_that_is_looked_up_past_the_proxy_fails_at_once(stage):
    """Many clients look first, and go to the proxy then."""
    with stage.launch(images.python(), "--allow", LISTED) as server:
        server.greet()
        began = time.monotonic()
        assert "error" in server.call("resolve", name=LISTED)
        took = time.monotonic() - began
        assert server.call("resolve", name="localhost") == ["127.0.0.1"]
        assert server.end() == 0
    assert took < AT_ONCE, f"it took {took:.2f} s"


def without_a_network_there_is_none(stage):
    with stage.launch(images.python()) as server:
        server.greet()
        assert stage.runtime.networks() == [], stage.runtime.networks()
        assert len(stage.names()) == 1, stage.names()
        interfaces = {line.split(":")[0].strip() for line in server.call("read", path="/proc/net/dev").splitlines()[2:]}
        # The kernel's own tunnel devices are in every namespace, and down.
        up = [name for name in interfaces
              if int(server.call("read", path=f"/sys/class/net/{name}/flags").strip(), 16) & 1]
        assert up == ["lo"], up
        for address, port in (ORIGIN, 443), (ADDRESS, 22), ("169.254.169.254", 80):
            assert not server.call("connect", host=address, port=port)["connected"], address
        environment = server.call("environment")
        assert not any(value for name, value in environment.items() if name.lower().endswith("_proxy")), environment
        assert server.end() == 0
    stage.nothing_is_left()


CASES = [
    a_listed_host_is_reached_and_no_other,
    a_listed_name_that_leads_inside_is_refused,
    there_is_no_way_around_the_proxy,
    a_name_that_is_looked_up_past_the_proxy_fails_at_once,
    without_a_network_there_is_none,
]
