//! The decision against [`second_opinion`]: the same verdict on every question, with the same
//! addresses to dial.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arbitrary::Arbitrary;
use ipnet::IpNet;
use strait::address;
use strait::destination::{Destination, Host, Port};
use strait::policy::{NotReached, Policy, PolicyError};
use strait::refusal::{Denied, Failed, Refusal};
use strait::rule::{Rule, RuleError};

use crate::second_opinion::{self, Reach};

/// Each list is cut to this: longer ones repeat themselves.
const MOST: usize = 8;

/// A policy, a question, what the name resolved to, and where the proxy listens.
#[derive(Clone, Debug, Arbitrary)]
pub struct Case {
    rules: Vec<(Asked, Option<u16>)>,
    networks: Vec<(Spelled, u8)>,
    asked: Asked,
    port: u16,
    own: Option<(Spelled, u16)>,
    answers: Vec<Spelled>,
}

/// A host, in a rule or in a request.
#[derive(Clone, Debug, Arbitrary)]
enum Asked {
    First,
    Second,
    Localhost,
    Literal(Spelled),
}

/// An address, in the ways that matter.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Spelled {
    Plain4([u8; 4]),
    Plain6([u8; 16]),
    /// An address this far from one that something begins or ends at.
    Near(u8, i8),
    /// IPv4 in one of the forms of IPv6, with noise in the bits that are free.
    Embedded(Form, Inner, [u8; 16]),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Inner {
    Any([u8; 4]),
    Near(u8, i8),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Form {
    Compatible,
    Mapped,
    Siit,
    Nat64,
    LocalNat64,
    SixToFour,
    TeredoServer,
    TeredoClient,
    Isatap,
    IsatapGlobal,
}

/// First and last addresses of IPv4 networks that are told apart.
const EDGES_4: [&str; 34] = [
    "0.0.0.0",
    "0.255.255.255",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.80.80.80",
    "100.96.0.96",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.0",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.0.0",
    "169.254.169.254",
    "169.254.255.255",
    "172.16.0.0",
    "172.31.255.255",
    "192.0.0.0",
    "192.0.0.9",
    "192.0.0.192",
    "192.0.0.255",
    "192.0.2.0",
    "192.88.99.0",
    "192.168.0.0",
    "192.168.255.255",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.0",
    "203.0.113.255",
    "224.0.0.0",
    "239.255.255.255",
    "240.0.0.0",
    "255.255.255.255",
    "8.8.8.8",
];

/// The same for IPv6.
const EDGES_6: [&str; 34] = [
    "::",
    "::1",
    "::ffff:ffff:ffff",
    "64:ff9b::",
    "64:ff9b::ffff:ffff",
    "64:ff9b:1::",
    "64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
    "100::",
    "2000::",
    "2001::",
    "2001:1::1",
    "2001:1::3",
    "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:3::",
    "2001:4:112::",
    "2001:20::",
    "2001:3f:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:db8::",
    "2002::",
    "2606:4700::1111",
    "3fff::",
    "3fff:1000::",
    "4000::",
    "5f00::",
    "fc00::",
    "fd00:ec2::",
    "fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff",
    "fd00:42::42",
    "fd00:c1::a9fe:a9fe",
    "fd00:100::100:200",
    "fd00:a9fe:a9fe::1",
    "fd20:ce::254",
    "fe80::",
    "fec0::",
];

impl Asked {
    fn host(&self) -> Host {
        let text = match self {
            Self::First => "first.test",
            Self::Second => "second.test",
            Self::Localhost => "localhost",
            Self::Literal(address) => return Host::Ip(address.ip()),
        };
        Host::parse(text).expect("a name")
    }
}

impl Spelled {
    fn ip(self) -> IpAddr {
        match self {
            Self::Plain4(octets) => octets.into(),
            Self::Plain6(octets) => octets.into(),
            Self::Near(pick, step) => {
                let edges = EDGES_4.iter().chain(&EDGES_6);
                let count = EDGES_4.len() + EDGES_6.len();
                let edge = edges.clone().nth(usize::from(pick) % count);
                neighbour(edge.unwrap_or(&"::"), step)
            }
            Self::Embedded(form, inner, noise) => form.spell(inner.ip(), noise).into(),
        }
    }
}

impl Inner {
    fn ip(self) -> Ipv4Addr {
        match self {
            Self::Any(octets) => octets.into(),
            Self::Near(pick, step) => {
                match neighbour(EDGES_4[usize::from(pick) % EDGES_4.len()], step) {
                    IpAddr::V4(address) => address,
                    IpAddr::V6(_) => unreachable!("IPv4 has IPv4 neighbours"),
                }
            }
        }
    }
}

fn neighbour(edge: &str, step: i8) -> IpAddr {
    match edge.parse().expect("an address") {
        IpAddr::V4(edge) => {
            Ipv4Addr::from_bits(edge.to_bits().wrapping_add_signed(step.into())).into()
        }
        IpAddr::V6(edge) => {
            Ipv6Addr::from_bits(edge.to_bits().wrapping_add_signed(step.into())).into()
        }
    }
}

impl Form {
    fn spell(self, inner: Ipv4Addr, noise: [u8; 16]) -> Ipv6Addr {
        let [a, b, c, d] = inner.octets();
        let mut octets = noise;
        let mut set = |from: usize, bytes: &[u8]| {
            octets[from..from + bytes.len()].copy_from_slice(bytes);
        };
        match self {
            Self::Compatible => set(0, &[0; 12]),
            Self::Mapped => set(0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]),
            Self::Siit => set(0, &[0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]),
            Self::Nat64 => set(0, &[0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]),
            Self::LocalNat64 => set(0, &[0, 0x64, 0xff, 0x9b, 0, 1]),
            Self::SixToFour => set(0, &[0x20, 2]),
            Self::TeredoServer | Self::TeredoClient => set(0, &[0x20, 1, 0, 0]),
            Self::Isatap => set(8, &[0, 0, 0x5e, 0xfe]),
            Self::IsatapGlobal => set(8, &[2, 0, 0x5e, 0xfe]),
        }
        match self {
            Self::SixToFour => set(2, &[a, b, c, d]),
            Self::TeredoServer => set(4, &[a, b, c, d]),
            Self::TeredoClient => set(12, &[!a, !b, !c, !d]),
            _ => set(12, &[a, b, c, d]),
        }
        octets.into()
    }
}

/// Decides twice, and compares.
pub fn check(case: &Case) {
    for spelled in &case.answers {
        check_spelling(*spelled);
    }
    let mut naive = second_opinion::Policy::default();
    let rules = compile_rules(case, &mut naive);
    let networks = compile_networks(case, &mut naive);
    let policy =
        Policy::new(rules, networks).expect("no entry twice, and none that is never opened");

    let Some(port) = port(case.port) else {
        return;
    };
    let host = case.asked.host();
    let destination = Destination::new(host.clone(), port);
    let answers: Vec<IpAddr> = case.answers.iter().take(MOST).map(|it| it.ip()).collect();
    let own = case.own.map(|(ip, port)| SocketAddr::new(ip.ip(), port));
    let own: Vec<SocketAddr> = own.into_iter().collect();

    let permit = policy.permit(destination);
    assert_eq!(
        permit.is_ok(),
        naive.permits(&host.to_string(), port.number())
    );
    let Ok(permit) = permit else {
        return;
    };
    assert_eq!(permit.name().is_some(), matches!(host, Host::Name(_)));
    let outcome = permit.check(&answers, &own);

    let candidates = match host {
        Host::Ip(literal) => vec![literal],
        Host::Name(_) => answers,
    };
    let candidates: Vec<SocketAddr> = candidates
        .into_iter()
        .map(|ip| SocketAddr::new(ip, port.number()))
        .collect();
    let is_bad = |address: &&SocketAddr| is_own(&own, **address) || !naive.opens(**address);
    match (candidates.iter().find(is_bad), outcome) {
        (None, Ok(dialable)) => {
            let mut expected: Vec<SocketAddr> = Vec::new();
            for address in candidates {
                if !expected.contains(&address) {
                    expected.push(address);
                }
            }
            let dialled: Vec<SocketAddr> = dialable.addresses().iter().map(|it| it.get()).collect();
            assert_eq!(dialled, expected);
            assert!(!dialled.is_empty());
        }
        (None, Err(failure)) => {
            assert!(candidates.is_empty(), "{failure:?}");
            assert_eq!(failure.refusal, Refusal::Failed(Failed::DnsNoRecords));
        }
        (Some(bad), Err(failure)) => check_failure(*bad, &own, failure),
        (Some(bad), Ok(dialable)) => panic!("{bad} is among {dialable:?}"),
    }
}

/// Whether the proxy listens there, in either spelling of an IPv4 address.
fn is_own(own: &[SocketAddr], address: SocketAddr) -> bool {
    own.iter().any(|own| {
        own.port() == address.port() && own.ip().to_canonical() == address.ip().to_canonical()
    })
}

fn check_failure(bad: SocketAddr, own: &[SocketAddr], failure: NotReached) {
    assert_eq!(failure.address, Some(bad));
    let Refusal::Denied(denied) = failure.refusal else {
        panic!("{failure:?}");
    };
    match denied {
        Denied::OwnAddress => assert!(is_own(own, bad)),
        Denied::Address(class) => assert_eq!(reach(class.reach()), second_opinion::reach(bad.ip())),
        Denied::NotListed | Denied::Loop | Denied::MethodRefused => panic!("{failure:?}"),
    }
}

/// An embedded never-set address is never-set, and only NAT64 makes a spelling public.
fn check_spelling(spelled: Spelled) {
    let ip = spelled.ip();
    let reached = reach(address::classify(ip).reach());
    assert_eq!(reached, second_opinion::reach(ip), "{ip}");
    let Spelled::Embedded(form, inner, _) = spelled else {
        return;
    };
    let inner = inner.ip();
    // `::` and `::1` are addresses of their own.
    let is_own = matches!(form, Form::Compatible) && inner.to_bits() <= 1;
    let inner = reach(address::classify(inner.into()).reach());
    if inner == Reach::Never && !is_own {
        assert_eq!(reached, Reach::Never, "{ip}");
    }
    if reached == Reach::Public {
        assert!(
            matches!(form, Form::Nat64) && inner == Reach::Public,
            "{ip}"
        );
    }
}

fn reach(reach: address::Reach) -> Reach {
    match reach {
        address::Reach::Never => Reach::Never,
        address::Reach::Restricted => Reach::Restricted,
        address::Reach::Public => Reach::Public,
    }
}

fn port(number: u16) -> Option<Port> {
    Port::parse(&number.to_string()).ok()
}

/// The rules that can be written, each once; what cannot is refused for the expected reason.
fn compile_rules(case: &Case, naive: &mut second_opinion::Policy) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (asked, number) in case.rules.iter().take(MOST) {
        let host = asked.host();
        let entry = match number {
            Some(number) => format!("{host}:{number}"),
            None => host.to_string(),
        };
        let rule = match Rule::parse(&entry) {
            Ok(rule) => rule,
            Err(error) => {
                check_rule_error(&error, &host, *number);
                continue;
            }
        };
        if rules.contains(&rule) {
            continue;
        }
        for port in number.map_or(vec![443, 80], |number| vec![number]) {
            naive.grants.push((host.to_string(), port));
        }
        rules.push(rule);
    }
    rules
}

fn check_rule_error(error: &RuleError, host: &Host, number: Option<u16>) {
    let is_expected = match (error, host) {
        (RuleError::Port(_), _) => number == Some(0),
        (RuleError::Localhost(_), Host::Name(name)) => name.is_localhost(),
        (RuleError::NeverAddress { .. }, Host::Ip(ip)) => {
            second_opinion::reach(*ip) == Reach::Never
        }
        (RuleError::Mapped { .. }, Host::Ip(IpAddr::V6(ip))) => ip.to_ipv4_mapped().is_some(),
        _ => false,
    };
    assert!(is_expected, "{error}");
}

/// The networks that can be opened, each once; of one that cannot, no address could be.
fn compile_networks(case: &Case, naive: &mut second_opinion::Policy) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for (spelled, length) in case.networks.iter().take(MOST) {
        let ip = spelled.ip();
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        let network = IpNet::new_assert(ip, length % (longest + 1)).trunc();
        if let Err(error) = Policy::new([], [network]) {
            assert!(matches!(error, PolicyError::NeverNetwork { .. }), "{error}");
            for address in [network.network(), ip, network.broadcast()] {
                assert_eq!(second_opinion::reach(address), Reach::Never, "{network}");
            }
        } else if !networks.contains(&network) {
            naive
                .networks
                .push((network.network(), network.prefix_len()));
            networks.push(network);
        }
    }
    networks
}
