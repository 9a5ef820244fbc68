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
//! ```compile_fail
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

use std::collections::HashMap;
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
    #[error("`{network}` lies in {}, which is never opened; remove it", .class.describe())]
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
        for rule in rules {
            if policy.rules.contains(&rule) {
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

/// An address that failed the check, for the audit line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckFailure {
    /// Why nothing is dialled.
    pub refusal: Refusal,
    /// The address at fault.
    pub address: Option<SocketAddr>,
}

impl std::error::Error for CheckFailure {}

impl std::fmt::Display for CheckFailure {
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
    pub fn check(self, answers: &[IpAddr], own: &[SocketAddr]) -> Result<Dialable, CheckFailure> {
        let answers = match self.destination.host() {
            Host::Name(_) => answers,
            Host::Ip(literal) => std::slice::from_ref(literal),
        };
        let port = self.destination.port().number();
        let mut addresses = Vec::with_capacity(answers.len());
        for ip in answers {
            let address = SocketAddr::new(*ip, port);
            let failure = |denied: Denied| CheckFailure {
                refusal: denied.into(),
                address: Some(address),
            };
            if own.contains(&address) {
                return Err(failure(Denied::OwnAddress));
            }
            self.policy.check_address(address).map_err(failure)?;
            if !addresses.contains(&Checked(address)) {
                addresses.push(Checked(address));
            }
        }
        if addresses.is_empty() {
            let refusal = Failed::DnsNoRecords.into();
            return Err(CheckFailure {
                refusal,
                address: None,
            });
        }
        Ok(Dialable { addresses })
    }
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
