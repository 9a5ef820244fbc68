"""What a resolver may say, and lie about: the proxy decides on the addresses, and dials what it checked."""

import time

import network
from lane import for_each
from network import BLACK_HOLE, ORIGIN, ORIGIN_V6, SCRIPTED_RESOLVER
from servers import CROWD_SIZE
from strait import fail_to_start, failed, listed, refused
from toy_dns import GARBAGE, SILENCE, Alias, Code, InTurn, Late, OtherName, Truncated

# -- answers of a real resolver ------------------------------------------------------------------------


@for_each(
    private=("private", "private_address", "10.0.0.5"),
    one_private_among_good=("mixed", "private_address", "10.0.0.5"),
    one_loopback_among_good_of_the_other_family=("mixed-six", "loopback_address", "::1"),
    private_behind_a_CNAME=("alias-private", "private_address", "10.0.0.5"),
    one_private_among_a_hundred=("crowd-mixed", "private_address", "10.0.0.5"),
    loopback=("loopback", "loopback_address", "127.0.0.1"),
    IPv6_loopback=("loopback-six", "loopback_address", "::1"),
    loopback_mapped_into_IPv6=("mapped-loopback", "loopback_address", "::ffff:127.0.0.1"),
    metadata=("metadata", None, "169.254.169.254"),
    metadata_mapped_into_IPv6=("mapped-metadata", None, "::ffff:169.254.169.254"),
    metadata_behind_NAT64=("nat64-metadata", None, "64:ff9b::a9fe:a9fe"),
    metadata_behind_6to4=("sixtofour-metadata", None, "2002:a9fe:a9fe::1"),
    metadata_in_IPv6=("metadata-six", "metadata_address", "fd00:ec2::254"),
    metadata_outside_link_local=("cloud-metadata", "metadata_address", "100.100.100.200"),
    carrier_grade_NAT=("carrier", "shared_address", "100.64.0.1"),
    IPv6_link_local=("linklocal-six", "link_local_address", "fe80::1"),
    unspecified=("unspecified", "unspecified_address", "0.0.0.0"),
    multicast=("multicast", "multicast_address", "224.0.0.1"),
    broadcast=("broadcast", "broadcast_address", "255.255.255.255"),
    benchmarking=("unopened", "benchmarking_address", "198.18.0.1"),
)
def a_listed_name_with_a_forbidden_address_is_refused_and_nothing_is_dialled(world, row):
    name, reason, address = row
    host = f"{name}.example.com"
    with world.proxy([host]) as proxy:
        got = world.curl(proxy, "-w", "%{http_connect}", f"https://{host}/small")
        assert got.code == 56 and got.text.endswith("403"), got
        # Link-local metadata may be called by either name; that it is refused is what counts.
        said = proxy.wait_for_egress(1)[0]["reason"]
        assert reason in (said, None) and said.endswith("_address"), said
        _same_address(proxy.egress()[0], address)
        proxy.expect(refused("CONNECT", host, 443, said), aliases=["inside.corp.example.net"])


def _same_address(line, address):
    wanted = f"[{address}]:443" if ":" in address else f"{address}:443"
    assert line.get("address") == wanted, f"{line} is not about {wanted}"


def a_documentation_address_is_refused_unless_it_is_opened(world):
    with world.proxy(["api.example.com"], allow_net=["203.0.113.0/24"]) as proxy:
        got = world.curl(proxy, "-w", "%{http_connect}", "https://api.example.com/")
        assert got.text.endswith("403"), got
        proxy.expect(refused("CONNECT", "api.example.com", 443, "documentation_address", ORIGIN))


def a_private_address_is_reached_when_its_network_is_opened(world):
    with world.proxy(["private.example.com"], allow_net=["10.0.0.0/8"]) as proxy:
        got = world.curl(proxy, "http://private.example.com/small")
        assert got.output == b"a small file\n", got
        proxy.expect(listed("GET", "private.example.com", 80, "10.0.0.5"))


def a_name_that_leads_back_to_the_proxy_is_refused(world):
    listen = network.PROXY_ADDRESS
    port = _free_port(world)
    with world.proxy([f"self.example.com:{port}"], listen=f"{listen}:{port}") as proxy:
        response = world.ask(proxy, f"CONNECT self.example.com:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (response.status, response.code) == (403, "own_address"), response.head.raw
        proxy.expect(refused("CONNECT", "self.example.com", port, "own_address", listen))


def a_proxy_that_listens_everywhere_knows_all_its_addresses(world):
    port, other_side = _free_port(world), "198.51.100.1"
    hosts = [f"self.example.com:{port}", f"{other_side}:{port}"]
    with world.proxy(hosts, listen=f"0.0.0.0:{port}") as proxy:
        proxy.address = (network.PROXY_ADDRESS, port)
        for host in hosts:
            response = world.ask(proxy, f"CONNECT {host} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert (response.status, response.code) == (403, "own_address"), response.head.raw
        proxy.expect(
            refused("CONNECT", "self.example.com", port, "own_address", network.PROXY_ADDRESS),
            refused("CONNECT", other_side, port, "own_address", other_side),
        )


def _free_port(world):
    """A port nobody has: one that a proxy had, and gave back."""
    with world.proxy() as proxy:
        _, port = proxy.address
        proxy.expect()
    return port


@for_each(
    name_that_does_not_exist=("no-such-name", "dns_name_not_found"),
    name_without_an_address=("empty", "dns_no_records"),
    CNAME_to_a_name_that_does_not_exist=("alias-nowhere", "dns_name_not_found"),
)
def a_listed_name_without_an_address_is_a_failure_of_its_own_kind(world, row):
    name, reason = row
    host = f"{name}.example.com"
    with world.proxy([host]) as proxy:
        response = world.ask(proxy, f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert (response.status, response.code) == (502, reason), response.head.raw
        proxy.expect(failed("CONNECT", host, 443, reason), aliases=["no-such-name.example.com"])


def a_chain_of_CNAMEs_to_a_good_address_is_followed(world):
    with world.proxy(["alias.example.com"]) as proxy:
        got = world.curl(proxy, "https://alias.example.com/small")
        assert got.output == b"a small file\n", got
        hops = [f"{name}.example.com" for name in ("hop1", "hop2", "api")]
        proxy.expect(listed("CONNECT", "alias.example.com", 443, ORIGIN), aliases=hops)


def an_answer_that_fits_TCP_only_is_fetched_over_TCP(world):
    with world.proxy(["crowd.example.com"]) as proxy:
        got = world.curl(proxy, "https://crowd.example.com/small")
        assert got.output == b"a small file\n", got
        [line] = proxy.egress()
        assert line["address"].startswith("203.0.113."), line
        proxy.expect(listed("CONNECT", "crowd.example.com", 443))
    assert CROWD_SIZE * 16 > 1232, "the crowd's answer must be too big for UDP"


@for_each(
    IPv6_is_a_black_hole=("broken-six", network.BLACK_HOLE_V6),
    the_first_of_two_may_be_a_black_hole=("half-dead", BLACK_HOLE),
)
def a_name_with_one_dead_address_is_reached_by_the_other_within_a_second(world, row):
    name, dead = row
    host = f"{name}.example.com"
    with world.proxy([host]) as proxy:
        began = time.monotonic()
        got = world.curl(proxy, f"https://{host}/small")
        took = time.monotonic() - began
        assert got.output == b"a small file\n", got
        assert took < 2, f"it took {took:.2f} s"
        bracketed = f"[{dead}]" if ":" in dead else dead
        proxy.expect(listed("CONNECT", host, 443, ORIGIN), tried=[f"{bracketed}:443"])


def a_dual_stack_name_is_reached_over_IPv6(world):
    with world.proxy(["dual.example.com"]) as proxy:
        assert world.curl(proxy, "https://dual.example.com/small").code == 0
        proxy.expect(listed("CONNECT", "dual.example.com", 443, ORIGIN_V6))


# -- what only a scripted resolver says -------------------------------------------------------------------

NAME = "odd.example.com"
GOOD = {"A": [ORIGIN]}


def a_name_is_asked_for_again_and_checked_again_when_its_answer_may_not_be_kept(world):
    zone = {NAME: {"A": InTurn([[ORIGIN], ["127.0.0.1"]])}}
    with world.resolver(zone) as resolver, world.proxy([NAME], resolver=SCRIPTED_RESOLVER) as proxy:
        assert world.curl(proxy, f"https://{NAME}/small").code == 0
        assert resolver.questions.count((NAME, "A")) == 1, f"one resolution per attempt: {resolver.questions}"
        second = world.curl(proxy, "-w", "%{http_connect}", f"https://{NAME}/small")
        assert second.text.endswith("403"), second
        assert resolver.questions.count((NAME, "A")) == 2, resolver.questions
        proxy.expect(
            listed("CONNECT", NAME, 443, ORIGIN),
            refused("CONNECT", NAME, 443, "loopback_address", "127.0.0.1"),
        )


def an_answer_with_a_lifetime_is_kept_for_it(world):
    with world.resolver({NAME: GOOD}, ttl=60) as resolver:
        with world.proxy([NAME], resolver=SCRIPTED_RESOLVER) as proxy:
            for _ in range(3):
                assert world.curl(proxy, f"https://{NAME}/small").code == 0
            assert resolver.questions.count((NAME, "A")) == 1, resolver.questions
            proxy.expect(*[listed("CONNECT", NAME, 443, ORIGIN)] * 3)


@for_each(
    is_late=({"A": [ORIGIN], "AAAA": Late(3, [])}, 1.5),
    never_comes=({"A": [ORIGIN], "AAAA": SILENCE}, 1.5),
    is_an_error=({"A": [ORIGIN], "AAAA": Code(2)}, 1.5),
)
def IPv4_is_used_when_the_IPv6_answer(world, row):
    answers, most = row
    with world.resolver({NAME: answers}), world.proxy([NAME], resolver=SCRIPTED_RESOLVER) as proxy:
        began = time.monotonic()
        assert world.curl(proxy, f"https://{NAME}/small").code == 0
        assert time.monotonic() - began < most, f"it took {time.monotonic() - began:.2f} s"
        proxy.expect(listed("CONNECT", NAME, 443, ORIGIN))


def a_late_answer_is_waited_for(world):
    answers = {"A": Late(0.7, [ORIGIN]), "AAAA": Late(0.7, [])}
    with world.resolver({NAME: answers}), world.proxy([NAME], resolver=SCRIPTED_RESOLVER) as proxy:
        assert world.curl(proxy, f"https://{NAME}/small").code == 0
        proxy.expect(listed("CONNECT", NAME, 443, ORIGIN))


@for_each(
    SERVFAIL=(Code(2), (502, "dns_failed")),
    REFUSED=(Code(5), (502, "dns_failed")),
    silence=(SILENCE, (504, "dns_timeout")),
    garbage=(GARBAGE, None),
    addresses_for_another_name=(OtherName("api.example.com", [ORIGIN]), None),
)
def a_resolver_that_answers_with_nothing_usable_is_a_failure_within_the_limit(world, row):
    answer, wanted = row
    zone = {NAME: {"A": answer, "AAAA": answer}}
    with world.resolver(zone), world.proxy([NAME], resolver=SCRIPTED_RESOLVER, dns_timeout="1s") as proxy:
        began = time.monotonic()
        response = world.ask(proxy, f"CONNECT {NAME}:443 HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        took = time.monotonic() - began
        assert took < 2, f"the limit is 1 s, it took {took:.2f} s"
        said = (response.status, response.code)
        assert said == wanted or (wanted is None and said[1].startswith("dns_")), said
        proxy.expect(failed("CONNECT", NAME, 443, response.code))


def a_resolver_that_nobody_runs_is_a_failure_within_the_limit(world):
    with world.proxy([NAME], resolver=BLACK_HOLE, dns_timeout="1s") as proxy:
        began = time.monotonic()
        response = world.ask(proxy, f"CONNECT {NAME}:443 HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        took = time.monotonic() - began
        assert (response.status, response.code) == (504, "dns_timeout") and took < 2, (response.code, took)
        # What is not listed needs no resolver, and waits for none.
        got = world.curl(proxy, "-w", "%{http_connect}", "https://www.example.com/")
        assert got.text.endswith("403"), got
        proxy.expect(
            failed("CONNECT", NAME, 443, "dns_timeout"),
            refused("CONNECT", "www.example.com", 443, "not_listed"),
        )


def a_truncated_answer_is_fetched_over_TCP(world):
    zone = {NAME: {"A": Truncated([ORIGIN])}}
    with world.resolver(zone), world.proxy([NAME], resolver=SCRIPTED_RESOLVER) as proxy:
        assert world.curl(proxy, f"https://{NAME}/small").code == 0
        proxy.expect(listed("CONNECT", NAME, 443, ORIGIN))


def an_answer_with_hundreds_of_addresses_is_taken(world):
    crowd = [f"203.0.113.{128 + number % 100}" for number in range(500)]
    with world.resolver({NAME: {"A": Truncated(crowd)}}):
        with world.proxy([NAME], resolver=SCRIPTED_RESOLVER) as proxy:
            assert world.curl(proxy, f"https://{NAME}/small").code == 0
            proxy.expect(listed("CONNECT", NAME, 443, crowd[0]))


def a_forbidden_address_that_comes_a_moment_later_still_refuses_the_answer(world):
    answers = {"A": [ORIGIN], "AAAA": Late(0.02, ["::1"])}
    with world.resolver({NAME: answers}), world.proxy([NAME], resolver=SCRIPTED_RESOLVER) as proxy:
        response = world.ask(proxy, f"CONNECT {NAME}:443 HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        assert (response.status, response.code) == (403, "loopback_address"), response.head.raw
        proxy.expect(refused("CONNECT", NAME, 443, "loopback_address", "::1"))


def a_question_that_gets_lost_is_asked_again(world):
    answers = {"A": InTurn([SILENCE, [ORIGIN]]), "AAAA": InTurn([SILENCE, []])}
    with world.resolver({NAME: answers}), world.proxy([NAME], resolver=SCRIPTED_RESOLVER) as proxy:
        assert world.curl(proxy, f"https://{NAME}/small").code == 0
        proxy.expect(listed("CONNECT", NAME, 443, ORIGIN))


def a_truncated_answer_may_hide_a_forbidden_address_and_is_refused_with_it(world):
    zone = {NAME: {"A": Truncated([ORIGIN, "127.0.0.1"])}}
    with world.resolver(zone), world.proxy([NAME], resolver=SCRIPTED_RESOLVER) as proxy:
        response = world.ask(proxy, f"CONNECT {NAME}:443 HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        assert (response.status, response.code) == (403, "loopback_address"), response.head.raw
        proxy.expect(refused("CONNECT", NAME, 443, "loopback_address", "127.0.0.1"))


def control_characters_in_a_CNAME_never_reach_the_audit_line(world):
    labels = [b'evil"\n{"event":"egress"}\x1b[2J', b"a.b\x00", b"example", b"com"]
    zone = {NAME: {"A": Alias(labels, [ORIGIN]), "AAAA": []}}
    with world.resolver(zone), world.proxy([NAME], resolver=SCRIPTED_RESOLVER) as proxy:
        response = world.tunnel_or_refusal(proxy, f"{NAME}:443")
        [line] = proxy.wait_for_egress(1)
        # Following such a name is a choice; what may not be is a line that shows it.
        assert response in (200, 502), response
        assert not any(mark in str(line) for mark in ("evil", "\x1b", "\n")), line
        outcome = listed if line["reason"] == "listed" else failed
        expected = outcome("CONNECT", NAME, 443) | {"reason": line["reason"]}
        proxy.expect(expected)


# -- the machine's own files -----------------------------------------------------------------------------


def without_a_resolver_given_the_machine_s_is_used_and_its_search_list_is_not(world):
    resolv_conf = f"search corp.example.net example.com\noptions ndots:5 timeout:1\nnameserver {SCRIPTED_RESOLVER}\n"
    with world.resolver({"odd.example.com": GOOD}) as resolver:
        with world.proxy([NAME, "odd"], resolver=None, resolv_conf=resolv_conf) as proxy:
            assert world.curl(proxy, f"https://{NAME}/small").code == 0
            response = world.ask(proxy, b"CONNECT odd:443 HTTP/1.1\r\nHost: odd\r\n\r\n")
            assert (response.status, response.code) == (502, "dns_name_not_found"), response.head.raw
            asked = {name for name, _ in resolver.questions}
            assert asked == {NAME, "odd"}, f"a search list was applied: {asked}"
            proxy.expect(
                listed("CONNECT", NAME, 443, ORIGIN),
                failed("CONNECT", "odd", 443, "dns_name_not_found"),
            )


def the_hosts_file_is_not_read(world):
    hosts = "127.0.0.1 localhost api.example.com\n203.0.113.200 www.example.com\n"
    with world.proxy(["api.example.com", "www.example.com"], hosts=hosts) as proxy:
        assert world.curl(proxy, "https://api.example.com/small").code == 0
        assert world.curl(proxy, "https://www.example.com/small").code == 0
        proxy.expect(
            listed("CONNECT", "api.example.com", 443, ORIGIN),
            listed("CONNECT", "www.example.com", 443, ORIGIN),
        )


def a_machine_without_a_resolver_is_told_so_at_start(world):
    code, errors = fail_to_start(world, ["--allow", "api.example.com"], resolv_conf="# nothing here\n")
    assert code not in (0, None) and "resolv" in errors.lower(), (code, errors)
