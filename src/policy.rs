//! What is allowed, as data, and the two questions that can be asked of it.
//!
//! Denying is the absence of a grant: an empty policy allows nothing. Each answer that says yes is a
//! token which the next step takes and nothing else can make:
//!
//! ```text
//! Destination ──Policy::permit──▶ Permit ──Permit::check──▶ Dialable ──addresses──▶ Checked
//! ```
//!
//! A [`Checked`] address is what a dialer is given. It cannot be made of an address that was not
//! checked:
//!
//! ```compile_fail,E0423
//! let unchecked: std::net::SocketAddr = "127.0.0.1:443".parse().unwrap();
//! let checked = strait::policy::Checked(unchecked);
//! ```
//!
//! only out of a destination that the policy permits, with the addresses it turned out to have:
//!
//! ```
//! # use strait::{destination::Destination, policy::{Checked, Policy}, rule::Rule};
//! let policy = Policy::new([Rule::parse("api.example.com")?], [])?;
//! let destination = Destination::from_authority_form("api.example.com:443")?;
//! let dialable = policy.permit(destination)?.check(&["93.184.216.34".parse()?], &[])?;
//! let checked: &[Checked] = dialable.addresses();
//! assert_eq!(checked[0].get().to_string(), "93.184.216.34:443");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use thiserror::Error;

use crate::address::{self, Class, Reach};
use crate::destination::{Destination, Host, HostName};
use crate::refusal::{Denied, Failed, Refusal};
use crate::rule::Rule;

/// The compiled set of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    networks: Vec<IpNet>,
    /// Every destination granted, with the index of its rule.
    grants: HashMap<Destination, usize>,
}

/// Rules that cannot stand in one policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// The same rule twice: one of them was meant to be something else.
    #[error("`{0}` is listed twice; remove one of the two")]
    DuplicateRule(Rule),
    /// The same network twice.
    #[error("the network `{0}` is listed twice; remove one of the two")]
    DuplicateNetwork(IpNet),
    /// A network that could never open anything.
    #[error("`{network}` leads to nothing but {}, which is never opened; remove it", .class.describe())]
    NeverNetwork {
        /// The network as given.
        network: IpNet,
        /// Why its addresses are refused whatever is configured.
        class: Class,
    },
}

impl Policy {
    /// Compiles rules, and networks whose addresses may be reached although they are not public.
    pub fn new(
        rules: impl IntoIterator<Item = Rule>,
        networks: impl IntoIterator<Item = IpNet>,
    ) -> Result<Self, PolicyError> {
        let mut policy = Self::default();
        let mut seen = HashSet::new();
        for rule in rules {
            if !seen.insert(rule.clone()) {
                return Err(PolicyError::DuplicateRule(rule));
            }
            for destination in rule.grants() {
                policy
                    .grants
                    .entry(destination)
                    .or_insert(policy.rules.len());
            }
            policy.rules.push(rule);
        }
        for network in networks {
            if let Some(class) = address::never(&network) {
                return Err(PolicyError::NeverNetwork { network, class });
            }
            if policy.networks.contains(&network) {
                return Err(PolicyError::DuplicateNetwork(network));
            }
            policy.networks.push(network);
        }
        Ok(policy)
    }

    /// Asks whether a destination may be reached, by its name and port alone.
    pub fn permit(&self, destination: Destination) -> Result<Permit<'_>, Denied> {
        match self
            .grants
            .get(&destination)
            .and_then(|index| self.rules.get(*index))
        {
            Some(rule) => Ok(Permit {
                policy: self,
                rule,
                destination,
            }),
            None => Err(Denied::NotListed),
        }
    }

    /// The rules, as listed.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The networks opened beside the public ones, as listed.
    pub fn networks(&self) -> &[IpNet] {
        &self.networks
    }

    /// Whether a rule names a host that a resolver is needed for.
    pub fn needs_resolver(&self) -> bool {
        self.rules
            .iter()
            .any(|rule| matches!(rule.host(), Host::Name(_)))
    }

    /// Whether one address may be dialled on one port.
    fn check_address(&self, address: SocketAddr) -> Result<(), Denied> {
        let ip = address.ip();
        // Dialling a mapped address is dialling its IPv4 address, which must be open by itself:
        // whoever opens `::/0` has opened no IPv4 network.
        if ip.to_canonical() != ip {
            self.check_address(SocketAddr::new(ip.to_canonical(), address.port()))?;
        }
        let class = address::classify(ip);
        let is_open = match class.reach() {
            Reach::Public => true,
            Reach::Never => false,
            Reach::Restricted => {
                self.networks.iter().any(|network| network.contains(&ip)) || self.lists(address)
            }
        };
        if is_open {
            Ok(())
        } else {
            Err(Denied::Address(class))
        }
    }

    /// Whether the address itself is a listed literal, with this port.
    fn lists(&self, address: SocketAddr) -> bool {
        self.rules.iter().any(|rule| {
            *rule.host() == Host::Ip(address.ip())
                && rule.ports().any(|port| port.number() == address.port())
        })
    }
}

/// A destination that the policy permits, for one attempt: checking its addresses uses it up.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Permit<'a> {
    policy: &'a Policy,
    rule: &'a Rule,
    destination: Destination,
}

/// Why a destination is not reached, and the address that is the reason, for the audit line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReached {
    /// Why nothing is dialled.
    pub refusal: Refusal,
    /// The address at fault.
    pub address: Option<SocketAddr>,
}

impl<R: Into<Refusal>> From<R> for NotReached {
    fn from(refusal: R) -> Self {
        Self {
            refusal: refusal.into(),
            address: None,
        }
    }
}

impl std::error::Error for NotReached {}

impl std::fmt::Display for NotReached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.refusal.fmt(f)
    }
}

impl Permit<'_> {
    /// The name to resolve; `None` for a literal, which is its own address.
    pub fn name(&self) -> Option<&HostName> {
        match self.destination.host() {
            Host::Name(name) => Some(name),
            Host::Ip(_) => None,
        }
    }

    /// The rule that granted it.
    pub fn rule(&self) -> &Rule {
        self.rule
    }

    /// The destination permitted.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Checks every address the name resolved to; `answers` are ignored for a literal. `own` are
    /// the socket addresses this proxy listens on.
    ///
    /// One bad address refuses the whole answer: a listed name that also resolves to the inside is
    /// an attack or a mistake.
    pub fn check(self, answers: &[IpAddr], own: &[SocketAddr]) -> Result<Dialable, NotReached> {
        let answers = match self.destination.host() {
            Host::Name(_) => answers,
            Host::Ip(literal) => std::slice::from_ref(literal),
        };
        let port = self.destination.port().number();
        let mut addresses = Vec::with_capacity(answers.len());
        for ip in answers {
            let address = SocketAddr::new(*ip, port);
            let failure = |denied: Denied| NotReached {
                refusal: denied.into(),
                address: Some(address),
            };
            if own.iter().any(|own| is_same(*own, address)) {
                return Err(failure(Denied::OwnAddress));
            }
            self.policy.check_address(address).map_err(failure)?;
            if !addresses.contains(&Checked(address)) {
                addresses.push(Checked(address));
            }
        }
        if addresses.is_empty() {
            return Err(Failed::DnsNoRecords.into());
        }
        Ok(Dialable { addresses })
    }
}

/// Whether two addresses lead to one socket: an IPv4 address has a second, mapped, spelling.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.ip().to_canonical() == other.ip().to_canonical() && one.port() == other.port()
}

/// The addresses of a permitted destination, all of them checked; never empty.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialable {
    addresses: Vec<Checked>,
}

impl Dialable {
    /// The addresses, in the resolver's order, each once.
    pub fn addresses(&self) -> &[Checked] {
        &self.addresses
    }
}

/// One address that may be dialled. Only [`Permit::check`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked(SocketAddr);

impl Checked {
    /// The address and port.
    pub fn get(self) -> SocketAddr {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Few hosts and ports, so that rules and requests meet.
    fn entry() -> impl Strategy<Value = Rule> {
        let host = prop::sample::select(vec![
            "a.test",
            "b.test",
            "c.a.test",
            "10.1.2.3",
            "[fd12::1]",
        ]);
        let port = prop::option::of(prop::sample::select(vec![80, 443, 8080]));
        (host, port).prop_map(|(host, port)| {
            let entry = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
            Rule::parse(&entry).expect("a rule")
        })
    }

    fn destination() -> impl Strategy<Value = Destination> {
        entry().prop_flat_map(|rule| prop::sample::select(rule.grants().collect::<Vec<_>>()))
    }

    /// Addresses of every kind, many of them at the edges that matter.
    fn address() -> impl Strategy<Value = IpAddr> {
        let edges = [
            "10.1.2.3",
            "10.1.2.4",
            "127.0.0.1",
            "169.254.169.254",
            "192.168.0.1",
            "8.8.8.8",
            "1.1.1.1",
            "100.64.0.1",
            "100.100.100.200",
            "::1",
            "fd12::1",
            "fe80::1",
            "2606:4700::1111",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "2002:7f00:1::",
        ];
        let edges: Vec<IpAddr> = edges
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect();
        prop_oneof![
            prop::sample::select(edges),
            any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
            any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
        ]
    }

    fn network() -> impl Strategy<Value = IpNet> {
        let networks = [
            "10.0.0.0/8",
            "10.1.2.0/24",
            "192.168.0.0/16",
            "fc00::/7",
            "0.0.0.0/0",
            "::/0",
        ];
        let networks: Vec<IpNet> = networks
            .iter()
            .map(|text| text.parse().expect("a network"))
            .collect();
        prop::sample::select(networks)
    }

    fn compile(rules: &[Rule], networks: &[IpNet]) -> Policy {
        let mut distinct: Vec<Rule> = Vec::new();
        for rule in rules {
            if !distinct.contains(rule) {
                distinct.push(rule.clone());
            }
        }
        let mut networks = networks.to_vec();
        networks.sort();
        networks.dedup();
        Policy::new(distinct, networks).expect("networks that can match")
    }

    proptest! {
        #[test]
        fn adding_a_rule_never_removes_a_grant(
            rules in prop::collection::vec(entry(), 0..6),
            more in entry(),
            networks in prop::collection::vec(network(), 0..3),
            asked in destination(),
            answers in prop::collection::vec(address(), 0..4),
        ) {
            let before = compile(&rules, &networks);
            let after = compile(&[&rules[..], &[more]].concat(), &networks);
            if let Ok(permit) = before.permit(asked.clone()) {
                let wider = after.permit(asked).expect("the grant is still there");
                if let Ok(dialable) = permit.check(&answers, &[]) {
                    prop_assert_eq!(wider.check(&answers, &[]), Ok(dialable));
                }
            }
        }

        #[test]
        fn what_may_be_dialled_is_public_or_granted_and_never_of_the_never_set(
            rules in prop::collection::vec(entry(), 0..6),
            networks in prop::collection::vec(network(), 0..3),
            asked in destination(),
            answers in prop::collection::vec(address(), 0..4),
        ) {
            let policy = compile(&rules, &networks);
            let Ok(permit) = policy.permit(asked.clone()) else {
                prop_assert!(rules.iter().all(|rule| rule.grants().all(|grant| grant != asked)));
                return Ok(());
            };
            let own = [SocketAddr::new("1.1.1.1".parse().expect("valid"), asked.port().number())];
            let Ok(dialable) = permit.check(&answers, &own) else { return Ok(()) };
            prop_assert!(!dialable.addresses().is_empty());
            for address in dialable.addresses() {
                let ip = address.get().ip();
                prop_assert_eq!(address.get().port(), asked.port().number());
                prop_assert!(!own.contains(&address.get()));
                let is_listed = rules.iter().any(|rule| {
                    rule.grants().any(|grant| {
                        *grant.host() == Host::Ip(ip) && grant.port() == asked.port()
                    })
                });
                let is_opened = networks.iter().any(|network| network.contains(&ip));
                match address::classify(ip).reach() {
                    Reach::Public => {}
                    Reach::Restricted => prop_assert!(is_listed || is_opened),
                    Reach::Never => prop_assert!(false, "{ip} must never be dialled"),
                }
            }
        }
    }

    #[test]
    fn a_literal_is_its_own_address_whatever_is_answered() {
        let policy = compile(&[Rule::parse("10.1.2.3:443").expect("a rule")], &[]);
        let literal = Destination::from_authority_form("10.1.2.3:443").expect("valid");
        let permit = policy.permit(literal).expect("listed");
        assert_eq!(permit.name(), None);
        let answers = ["8.8.8.8".parse().expect("valid")];
        let dialable = permit.check(&answers, &[]).expect("a listed literal");
        assert_eq!(
            dialable.addresses(),
            [Checked("10.1.2.3:443".parse().expect("valid"))]
        );
    }

    #[test]
    fn rules_may_overlap_and_the_first_grants() {
        let rules = ["a.test", "a.test:443"].map(|entry| Rule::parse(entry).expect("a rule"));
        let policy = Policy::new(rules.clone(), []).expect("no duplicate");
        let asked = Destination::from_authority_form("a.test:443").expect("valid");
        assert_eq!(*policy.permit(asked).expect("listed").rule(), rules[0]);
    }

    #[test]
    fn the_proxy_itself_is_refused_in_every_spelling() {
        // C36, D27
        let rule = Rule::parse("self.test:3128").expect("a rule");
        let policy = compile(
            &[rule],
            &["0.0.0.0/0", "::/0"].map(|all| all.parse().expect("all")),
        );
        for (own, answer) in [
            ("198.51.100.2:3128", "198.51.100.2"),
            ("198.51.100.2:3128", "::ffff:198.51.100.2"),
            ("[::ffff:198.51.100.2]:3128", "198.51.100.2"),
            ("[2001:db8::2]:3128", "2001:db8::2"),
        ] {
            let asked = Destination::from_authority_form("self.test:3128").expect("valid");
            let permit = policy.permit(asked).expect("listed");
            let answers = [answer.parse().expect("an address")];
            let own = [own.parse().expect("a socket address")];
            let failure = permit.check(&answers, &own).expect_err("it is the proxy");
            assert_eq!(failure.refusal, Denied::OwnAddress.into());
        }
    }

    #[test]
    fn a_mapped_address_is_open_only_where_its_ipv4_address_is_too() {
        let rule = || Rule::parse("a.test").expect("a rule");
        for (networks, answer, is_open) in [
            (&["::/0"][..], "::ffff:10.9.9.9", false),
            (&["10.0.0.0/8"], "::ffff:10.9.9.9", false),
            (&["::/0", "10.0.0.0/8"], "::ffff:10.9.9.9", true),
            (&["::/0"], "::ffff:8.8.8.8", true),
            (&[], "::ffff:8.8.8.8", false),
        ] {
            let networks = networks.iter().map(|text| text.parse().expect("a network"));
            let policy = Policy::new([rule()], networks).expect("a policy");
            let asked = Destination::from_authority_form("a.test:443").expect("valid");
            let answers = [answer.parse().expect("an address")];
            let outcome = policy.permit(asked).expect("listed").check(&answers, &[]);
            assert_eq!(outcome.is_ok(), is_open, "{answer}");
        }
    }

    #[test]
    fn every_address_of_a_long_answer_is_checked() {
        // D14
        let policy = compile(&[Rule::parse("a.test").expect("a rule")], &[]);
        let asked = || Destination::from_authority_form("a.test:443").expect("valid");
        let mut answers: Vec<IpAddr> = (0..500u32)
            .map(|n| IpAddr::V4((0x0808_0000 + n).into()))
            .collect();
        let dialable = policy.permit(asked()).expect("listed").check(&answers, &[]);
        assert_eq!(dialable.expect("public").addresses().len(), 500);
        answers.push("10.0.0.1".parse().expect("valid"));
        let failure = policy.permit(asked()).expect("listed").check(&answers, &[]);
        let failure = failure.expect_err("the last one is private");
        assert_eq!(failure.refusal, Denied::Address(Class::Private).into());
        assert_eq!(failure.address, "10.0.0.1:443".parse().ok());
    }
}
