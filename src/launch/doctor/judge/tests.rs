//! Pairs: each row closed, and open by one finding.

use super::*;
use crate::probe::{Address, DefaultRoute, Limits, Mounted, Status, Try, Writing};

const SERVER: &str = "10.231.0.3";
const GATEWAY: &str = "10.231.0.1";
const HOST: &str = "203.0.113.1";
const HOST_LINK_LOCAL: &str = "fe80::1";
const PROXY: &str = "10.231.0.2:3128";
const NEIGHBOUR: &str = "10.89.0.2:3128";
const METADATA: &str = "169.254.169.254:80";
const DIRECT: &str = "93.184.216.34:443";
const PORT: u16 = 4711;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn to(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn here(address: &str) -> SocketAddr {
    SocketAddr::new(ip(address), PORT)
}

fn tunnel(target: &str) -> Ask {
    Ask::Tunnel(target.to_owned())
}

fn http(status: u16, code: Option<&str>) -> Outcome {
    let code = code.map(str::to_owned);
    Outcome::Http { status, code }
}

fn expected() -> Expected {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Expected {
        network: Some(Network {
            gateway: ip(GATEWAY),
            server: ip(SERVER),
            proxy: to(PROXY),
            neighbour: to(NEIGHBOUR),
            listed: vec!["a.example:443".to_owned(), "b.invalid:443".to_owned()],
            unlisted: vec![
                tunnel("c.invalid:443"),
                Ask::Page("http://c.invalid/".to_owned()),
            ],
            direct: vec![to(DIRECT)],
        }),
        port: PORT,
        host: vec![ip(HOST), ip(HOST_LINK_LOCAL)],
        metadata: vec![to(METADATA)],
        variables: ["TOKEN", "HTTP_PROXY"].map(str::to_owned).into(),
        mounts: words(&["/tmp", "/data", "/workspace/docs"]),
        memory: Some(1 << 30),
        processes: Some(256),
        tmp: 64 << 20,
    }
}

fn tried(to: SocketAddr, ask: Ask, outcome: Outcome) -> Tried {
    Tried {
        of: Try { to, ask },
        outcome,
    }
}

fn mounted(at: &str, kind: &str, is_read_only: bool) -> Mounted {
    Mounted {
        at: at.to_owned(),
        kind: kind.to_owned(),
        root: "/".to_owned(),
        is_read_only,
    }
}

fn writing(folder: &str, outcome: Written) -> Writing {
    Writing {
        folder: folder.to_owned(),
        outcome,
    }
}

fn address(interface: &str, address: &str) -> Address {
    Address {
        interface: interface.to_owned(),
        address: ip(address),
    }
}

fn status() -> Status {
    Status {
        capabilities: BTreeMap::new(),
        no_new_privileges: Some(true),
        seccomp: Some(FILTER),
        user: Some(65534),
    }
}

/// As it is to be.
fn evidence() -> Evidence {
    let datagram = || Ask::Datagram("token".to_owned());
    let question = |name: &str| Ask::Addresses(name.to_owned());
    let servfail = Outcome::Resolved {
        code: 2,
        addresses: vec![],
    };
    let inside = Findings {
        tried: vec![
            tried(here(GATEWAY), Ask::Connection, Outcome::Silence),
            tried(here(GATEWAY), datagram(), Outcome::Sent),
            tried(here(HOST), Ask::Connection, Outcome::NoRoute),
            tried(here(HOST), datagram(), Outcome::NoRoute),
            tried(here(HOST_LINK_LOCAL), Ask::Connection, Outcome::NoAddress),
            tried(to(METADATA), Ask::Connection, Outcome::NoRoute),
            tried(to(NEIGHBOUR), Ask::Connection, Outcome::NoHost),
            tried(to(DIRECT), Ask::Connection, Outcome::Silence),
            tried(to("127.0.0.11:53"), question("a.example"), servfail),
            tried(to("10.231.0.1:53"), question("a.example"), Outcome::Silence),
            tried(to(PROXY), tunnel("a.example:443"), http(200, None)),
            tried(
                to(PROXY),
                tunnel("b.invalid:443"),
                http(502, Some("dns_name_not_found")),
            ),
            tried(
                to(PROXY),
                tunnel("c.invalid:443"),
                http(403, Some("not_listed")),
            ),
            tried(
                to(PROXY),
                Ask::Page("http://c.invalid/".to_owned()),
                http(403, Some("not_listed")),
            ),
        ],
        resolvers: vec![ip("127.0.0.11")],
        addresses: vec![address("eth0", SERVER)],
        default_routes: vec![],
        neighbours: vec![ip("10.231.0.2")],
        hosts: vec![ip("127.0.0.1"), ip(SERVER)],
        writes: vec![
            writing("/", Written::ReadOnly),
            writing("/srv", Written::Missing),
            writing("/tmp", Written::Written),
        ],
        mounts: vec![
            mounted("/", "overlay", true),
            mounted("/tmp", "tmpfs", false),
            mounted("/dev", "tmpfs", false),
            mounted("/sys/firmware", "tmpfs", true),
            mounted("/data", "tmpfs", false),
            mounted("/workspace/docs", "ext4", false),
            mounted("/etc/hosts", "ext4", true),
            Mounted {
                root: "/containers/0f/userdata/passwd".to_owned(),
                ..mounted("/etc/passwd", "ext4", true)
            },
        ],
        environment: ["TOKEN", "HTTP_PROXY", "HOSTNAME"]
            .map(str::to_owned)
            .to_vec(),
        wrong_variables: vec![],
        status: status(),
        limits: Limits {
            memory: Some(1 << 30),
            counts_swap: true,
            memory_and_swap: Some(1 << 30),
            processes: Some(256),
            tmp: Some(64 << 20),
        },
        forwards: Some(false),
    };
    let proxy = Findings {
        addresses: vec![address("eth0", "10.231.0.2"), address("eth1", "10.89.0.3")],
        mounts: vec![mounted("/", "overlay", true)],
        status: status(),
        forwards: Some(false),
        ..Findings::default()
    };
    Evidence {
        inside,
        proxy: Some(proxy),
        heard: BTreeSet::new(),
    }
}

/// The rows that are bad.
fn bad(expected: &Expected, evidence: &Evidence) -> Vec<&'static str> {
    let rows = judge(expected, evidence);
    let bad = rows.iter().filter(|row| row.state.is_bad());
    bad.map(|row| row.id).collect()
}

fn state(expected: &Expected, evidence: &Evidence, id: &str) -> State {
    let rows = judge(expected, evidence);
    rows.iter().find(|row| row.id == id).expect("a row").state
}

fn with(change: impl FnOnce(&mut Evidence)) -> Vec<&'static str> {
    let mut evidence = evidence();
    change(&mut evidence);
    bad(&expected(), &evidence)
}

/// What a try came to, changed.
fn outcome(of: SocketAddr, ask: &Ask, outcome: Outcome) -> impl FnOnce(&mut Evidence) {
    let ask = ask.clone();
    move |evidence| {
        let mut tried = evidence.inside.tried.iter_mut();
        let tried = tried.find(|tried| tried.of.to == of && tried.of.ask == ask);
        tried.expect("it is tried").outcome = outcome;
    }
}

#[test]
fn as_it_is_to_be_nothing_is_bad_and_every_row_says_so() {
    let rows = judge(&expected(), &evidence());
    for row in &rows {
        let is_promise = ["listed", "tmp", "variables"].contains(&row.id);
        let state = if is_promise {
            State::Works
        } else {
            State::Closed
        };
        assert_eq!(row.state, state, "{}: {}", row.id, row.detail);
        assert!(!row.detail.is_empty(), "{}", row.id);
    }
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), ROWS.len(), "ids are told apart");
}

#[test]
fn whatever_is_reached_opens_its_row_and_no_other() {
    let connection = Ask::Connection;
    for (address, id) in [
        (here(GATEWAY), "gateway"),
        (here(HOST), "host"),
        (here(HOST_LINK_LOCAL), "ipv6"),
        (to(METADATA), "metadata"),
        (to(NEIGHBOUR), "containers"),
        (to(DIRECT), "direct"),
    ] {
        // A refusal is an answer too: the packet got there.
        for answer in [Outcome::Connected, Outcome::Refused, Outcome::Ended] {
            assert_eq!(with(outcome(address, &connection, answer)), [id]);
        }
        for none in [
            Outcome::NoRoute,
            Outcome::NoHost,
            Outcome::Silence,
            Outcome::Forbidden,
        ] {
            assert_eq!(with(outcome(address, &connection, none)), [""; 0]);
        }
    }
    for (address, id) in [(to(METADATA), "metadata"), (here(GATEWAY), "gateway")] {
        let untried = Outcome::Other("Too many open files".to_owned());
        assert_eq!(
            with(outcome(address, &connection, untried)),
            [id],
            "it proves nothing"
        );
    }
    for (address, id) in [(GATEWAY, "gateway"), (HOST, "host")] {
        // One that the other side heard, whatever came back.
        assert_eq!(with(|evidence| evidence.heard = [ip(address)].into()), [id]);
    }
}

#[test]
fn another_network_is_open() {
    let add = |one| move |evidence: &mut Evidence| evidence.inside.addresses.push(one);
    assert_eq!(with(add(address("eth1", "10.89.0.4"))), ["networks"]);
    assert_eq!(with(add(address("eth0", "fe80::2"))), ["ipv6"]);
    let mut without = expected();
    without.network = None;
    assert_eq!(
        state(&without, &evidence(), "networks"),
        State::Open,
        "none was to be there"
    );
}

#[test]
fn a_default_route_is_open_when_it_leads_somewhere() {
    let route = |by: Option<&str>| {
        let route = DefaultRoute {
            interface: "eth0".to_owned(),
            by: by.map(ip),
        };
        move |evidence: &mut Evidence| evidence.inside.default_routes.push(route)
    };
    assert_eq!(
        with(route(Some(GATEWAY))),
        [""; 0],
        "nobody has that address"
    );
    assert_eq!(with(route(Some("10.231.0.2"))), ["default_route"]);
    assert_eq!(with(route(Some("fe80::1"))), ["default_route"]);
    assert_eq!(with(route(None)), ["default_route"]);
}

#[test]
fn a_resolver_is_open_when_it_tells_or_is_another_machine() {
    let resolved = |code| Outcome::Resolved {
        code,
        addresses: vec![],
    };
    let name = Ask::Addresses("a.example".to_owned());
    for (resolver, code, expected) in [
        ("127.0.0.11:53", 0, &["dns"][..]),
        ("127.0.0.11:53", 3, &["dns"]),
        ("127.0.0.11:53", 5, &[]),
        ("10.231.0.1:53", 2, &["dns"]),
    ] {
        assert_eq!(
            with(outcome(to(resolver), &name, resolved(code))),
            expected,
            "{resolver} {code}"
        );
    }
    let other = |evidence: &mut Evidence| evidence.inside.resolvers.push(ip("192.0.2.53"));
    assert_eq!(with(other), ["dns"], "it is another's address");
    assert_eq!(
        with(outcome(to("127.0.0.11:53"), &name, Outcome::Refused)),
        [""; 0]
    );
}

#[test]
fn the_proxy_must_let_the_listed_through_and_nothing_else() {
    for (target, answer, expected) in [
        ("a.example:443", http(403, Some("not_listed")), "listed"),
        (
            "a.example:443",
            http(502, Some("dns_name_not_found")),
            "listed",
        ),
        ("a.example:443", Outcome::Refused, "listed"),
        ("b.invalid:443", http(403, Some("not_listed")), "listed"),
        ("c.invalid:443", http(200, None), "unlisted"),
        (
            "c.invalid:443",
            http(502, Some("dns_name_not_found")),
            "unlisted",
        ),
        ("c.invalid:443", Outcome::Silence, "unlisted"),
    ] {
        let changed = with(outcome(to(PROXY), &tunnel(target), answer.clone()));
        assert_eq!(changed, [expected], "{target} {answer:?}");
    }
    let page = Ask::Page("http://c.invalid/".to_owned());
    assert_eq!(
        with(outcome(to(PROXY), &page, http(200, None))),
        ["unlisted"]
    );
    let silent = with(outcome(
        to(PROXY),
        &tunnel("c.invalid:443"),
        Outcome::Silence,
    ));
    assert_eq!(
        silent,
        ["unlisted"],
        "what did not answer has refused nothing"
    );
}

#[test]
fn what_can_be_written_to_is_open() {
    assert_eq!(
        with(|evidence| evidence
            .inside
            .writes
            .push(writing("/etc", Written::Written))),
        ["root"]
    );
    assert_eq!(
        with(|evidence| evidence.inside.mounts[0].is_read_only = false),
        ["root"]
    );
    assert_eq!(
        with(|evidence| evidence.inside.mounts.push(mounted("/", "ext4", false))),
        ["root"]
    );
    for (at, kind) in [
        ("/host", "ext4"),
        ("/dev/disk", "ext4"),
        ("/run", "tmpfs"),
        ("/devices", "tmpfs"),
        ("/etc/passwd", "ext4"),
    ] {
        let add = |evidence: &mut Evidence| evidence.inside.mounts.push(mounted(at, kind, true));
        assert_eq!(with(add), ["folders"], "{at}");
    }
}

#[test]
fn tmp_is_small_and_can_be_written_to() {
    assert_eq!(with(|evidence| evidence.inside.limits.tmp = None), ["tmp"]);
    assert_eq!(
        with(|evidence| evidence.inside.limits.tmp = Some(65 << 20)),
        ["tmp"]
    );
    let locked = |evidence: &mut Evidence| evidence.inside.writes[2].outcome = Written::Forbidden;
    assert_eq!(with(locked), ["tmp"]);
}

#[test]
fn what_is_the_hosts_does_not_show() {
    assert_eq!(
        with(|evidence| evidence.inside.hosts.push(ip(HOST))),
        ["hosts_file"]
    );
    let leak = |evidence: &mut Evidence| evidence.inside.environment.push("AWS_SECRET".to_owned());
    assert_eq!(with(leak), ["environment"]);
    let other = |evidence: &mut Evidence| {
        evidence
            .inside
            .wrong_variables
            .push("HTTP_PROXY".to_owned());
    };
    assert_eq!(with(other), ["variables"]);
}

#[test]
fn privileges_are_none() {
    let grant = |status: &mut Status| {
        status
            .capabilities
            .insert("CapBnd".to_owned(), "400".to_owned());
    };
    assert_eq!(
        with(|evidence| grant(&mut evidence.inside.status)),
        ["capabilities"]
    );
    for unknown in [Some(false), None] {
        let set = |evidence: &mut Evidence| evidence.inside.status.no_new_privileges = unknown;
        assert_eq!(with(set), ["no_new_privileges"]);
    }
    for unknown in [Some(0), None] {
        assert_eq!(
            with(|evidence| evidence.inside.status.seccomp = unknown),
            ["seccomp"]
        );
    }
    let of_the_proxy: [fn(&mut Findings); 5] = [
        |proxy| proxy.status.user = Some(0),
        |proxy| proxy.status.no_new_privileges = Some(false),
        |proxy| proxy.status.seccomp = Some(0),
        |proxy| proxy.mounts.clear(),
        |proxy| {
            proxy
                .status
                .capabilities
                .insert("CapEff".to_owned(), "1".to_owned());
        },
    ];
    for change in of_the_proxy {
        let changed = with(|evidence| change(evidence.proxy.as_mut().expect("it is there")));
        assert_eq!(changed, ["proxy_confinement"]);
    }
}

#[test]
fn the_proxy_leads_nowhere_itself() {
    for forwards in [Some(true), None] {
        let set =
            |evidence: &mut Evidence| evidence.proxy.as_mut().expect("there").forwards = forwards;
        assert_eq!(with(set), ["proxy_forwarding"]);
    }
    let add = |evidence: &mut Evidence| {
        let proxy = evidence.proxy.as_mut().expect("it is there");
        proxy.addresses.push(address("eth0", "fe80::3"));
    };
    assert_eq!(with(add), ["proxy_ipv6"]);
    let unseen = with(|evidence| evidence.proxy = None);
    assert_eq!(
        unseen,
        ["proxy_forwarding", "proxy_ipv6", "proxy_confinement"]
    );
}

#[test]
fn limits_are_in_force_or_the_runtime_cannot() {
    type Change = fn(&mut Limits);
    let changes: [(Change, &str); 5] = [
        (|limits| limits.memory = None, "memory"),
        (|limits| limits.memory = Some(2 << 30), "memory"),
        (|limits| limits.memory_and_swap = None, "memory"),
        (|limits| limits.processes = None, "processes"),
        (|limits| limits.processes = Some(2048), "processes"),
    ];
    for (change, id) in changes {
        assert_eq!(with(|evidence| change(&mut evidence.inside.limits)), [id]);
    }
    let mut unlimited = expected();
    (unlimited.memory, unlimited.processes) = (None, None);
    let mut evidence = evidence();
    assert_eq!(
        state(&unlimited, &evidence, "memory"),
        State::Closed,
        "there is one all the same"
    );
    evidence.inside.limits = Limits::default();
    for id in ["memory", "processes"] {
        assert_eq!(state(&unlimited, &evidence, id), State::NotInForce);
    }
}

#[test]
fn without_a_network_what_needs_one_is_not_there() {
    let mut expected = expected();
    expected.network = None;
    let mut evidence = evidence();
    evidence.proxy = None;
    evidence.inside.addresses.clear();
    assert_eq!(bad(&expected, &evidence), [""; 0]);
    for id in ["listed", "direct", "variables", "proxy_forwarding"] {
        assert_eq!(state(&expected, &evidence, id), State::NotChecked, "{id}");
    }
}

#[test]
fn nothing_found_proves_nothing() {
    let nothing = Evidence::default();
    let rows = judge(&expected(), &nothing);
    let sure: Vec<&str> = rows
        .iter()
        .filter(|row| !row.state.is_bad())
        .map(|row| row.id)
        .collect();
    // Lists of what is too much, and so empty when nothing is.
    let lists = [
        "networks",
        "default_route",
        "ipv6",
        "folders",
        "hosts_file",
        "environment",
        "variables",
        "capabilities",
    ];
    assert!(sure.iter().all(|id| lists.contains(id)), "{sure:?}");
}

#[test]
fn what_others_named_does_nothing_to_a_terminal() {
    let mut evidence = evidence();
    evidence
        .inside
        .environment
        .push("A\u{1b}[2J\u{202e}B".to_owned());
    let rows = judge(&expected(), &evidence);
    let row = rows
        .iter()
        .find(|row| row.id == "environment")
        .expect("a row");
    assert_eq!(row.detail, "A\u{fffd}[2J\u{fffd}B");
}
