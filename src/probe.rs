//! What a sandbox is like from inside: `strait probe`, which `strait doctor` runs where the server would
//! run.
//!
//! It reads one line of [`Orders`], tries what they say, looks at what the kernel says of its own place,
//! and prints [`Findings`]: facts, never verdicts. It speaks to nobody but those its orders name and the
//! resolvers of its own `/etc/resolv.conf`, waits no longer than the limits here, shows no value of a
//! variable, and has one thread only: the sandbox may allow few.

mod dial;
mod dns;
mod look;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bytes of the longest orders that are read: some hundred times what a doctor gives.
const LONGEST_ORDERS: u64 = 1 << 20;
/// The most that is tried; each costs a descriptor.
const MOST_TRIES: usize = 400;
/// For a connection: a SYN is sent again after 1 s (RFC 6298 §2), and nobody here is far away.
pub(crate) const CONNECTION_IN: Duration = Duration::from_millis(1500);
/// For a link-local IPv6 address: one of our own may be used once its duplicates were looked for, which
/// takes up to 2 s (RFC 4862 §5.4: a delay of up to 1 s, then one of `RetransTimer`, 1 s).
pub(crate) const LINK_LOCAL_IN: Duration = Duration::from_millis(2500);
/// For an answer of a resolver.
pub(crate) const RESOLVED_IN: Duration = Duration::from_secs(2);
/// For an answer of the proxy, which resolves and dials first.
pub(crate) const PROXIED_IN: Duration = Duration::from_secs(8);
/// For the complaint that a datagram may cause.
pub(crate) const COMPLAINED_IN: Duration = Duration::from_millis(500);

/// What the probe is to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Orders {
    /// What to try. An IPv6 link-local address without a scope is tried on every interface.
    pub tries: Vec<Try>,
    /// Names to ask of every resolver in `/etc/resolv.conf`.
    pub names: Vec<String>,
    /// Folders to write to.
    pub folders: Vec<String>,
    /// Variables, and what they must be.
    pub variables: BTreeMap<String, String>,
}

/// One thing to try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    /// With whom.
    pub to: SocketAddr,
    /// What.
    pub ask: Ask,
}

/// What is asked of the other side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// To take a connection; no byte is sent.
    Connection,
    /// To take a datagram of these bytes.
    Datagram(String),
    /// The addresses of a name, over UDP.
    Addresses(String),
    /// The addresses of a name, over TCP.
    AddressesOverTcp(String),
    /// A tunnel to `HOST:PORT`.
    Tunnel(String),
    /// A page, by its `http` URL.
    Page(String),
}

/// What came of a try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A connection.
    Connected,
    /// It was sent; nothing came back.
    Sent,
    /// A resolver's answer.
    Resolved {
        /// Its response code (RFC 1035 §4.1.1).
        code: u8,
        /// The addresses in it.
        addresses: Vec<IpAddr>,
    },
    /// An HTTP answer.
    Http {
        /// Its status code.
        status: u16,
        /// The code in its `Proxy-Status`.
        code: Option<String>,
    },
    /// Somebody said no: a reset, or an ICMP message that nothing listens there.
    Refused,
    /// A connection that ended without an answer.
    Ended,
    /// The kernel has no route.
    NoRoute,
    /// A route, and nobody at its end; or a router said so.
    NoHost,
    /// No address of our own to go from.
    NoAddress,
    /// A local rule forbids it.
    Forbidden,
    /// Nothing came in time.
    Silence,
    /// Another error, in words.
    Other(String),
}

impl Outcome {
    /// Whether anybody was reached. A refusal is an answer: the packet got there.
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Connected
            | Self::Resolved { .. }
            | Self::Http { .. }
            | Self::Refused
            | Self::Ended => true,
            Self::Sent
            | Self::NoRoute
            | Self::NoHost
            | Self::NoAddress
            | Self::Forbidden
            | Self::Silence
            | Self::Other(_) => false,
        }
    }
}

/// A try, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The try.
    pub of: Try,
    /// What came of it.
    pub outcome: Outcome,
}

/// What the probe found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Findings {
    /// The orders, carried out.
    pub tried: Vec<Tried>,
    /// The resolvers of `/etc/resolv.conf`.
    pub resolvers: Vec<IpAddr>,
    /// Its addresses, without those of the loopback interface.
    pub addresses: Vec<Address>,
    /// Its default routes.
    pub default_routes: Vec<DefaultRoute>,
    /// IPv4 addresses whose hardware address the kernel learned, after all the tries.
    pub neighbours: Vec<IpAddr>,
    /// The addresses that `/etc/hosts` names.
    pub hosts: Vec<IpAddr>,
    /// What came of writing to each folder.
    pub writes: Vec<Writing>,
    /// What is mounted, the kernel's own file systems left out.
    pub mounts: Vec<Mounted>,
    /// The names of its variables.
    pub environment: Vec<String>,
    /// Of the variables that were ordered, those that are not what they must be.
    pub wrong_variables: Vec<String>,
    /// What the kernel says of process 1.
    pub status: Status,
    /// The limits in force.
    pub limits: Limits,
    /// Whether IPv4 packets are forwarded.
    pub forwards: Option<bool>,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
}

/// A route for everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultRoute {
    /// The interface.
    pub interface: String,
    /// The next hop; `None` where everything is said to be on the link.
    pub by: Option<IpAddr>,
}

/// What came of writing to a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writing {
    /// The folder.
    pub folder: String,
    /// What came of it.
    pub outcome: Written,
}

/// Whether a file could be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Written {
    /// It was.
    Written,
    /// The file system is read-only.
    ReadOnly,
    /// This user may not.
    Forbidden,
    /// There is no such folder.
    Missing,
    /// Another error, in words.
    Other(String),
}

/// Something that is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Where.
    pub at: String,
    /// The kind of file system.
    pub kind: String,
    /// The folder in that file system.
    pub root: String,
    /// Whether nothing can be written to it.
    pub is_read_only: bool,
}

/// What `/proc/1/status` says (proc(5)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Every set of capabilities that is not empty, by its name there.
    pub capabilities: BTreeMap<String, String>,
    /// `NoNewPrivs`.
    pub no_new_privileges: Option<bool>,
    /// `Seccomp`: 0 none, 1 strict, 2 a filter.
    pub seccomp: Option<u8>,
    /// The effective user.
    pub user: Option<u32>,
}

/// The limits in force; `None` where there is none, or none can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Whether the kernel counts swap at all.
    pub counts_swap: bool,
    /// Bytes of memory and swap together.
    pub memory_and_swap: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Bytes of `/tmp`, where that is a file system of its own.
    pub tmp: Option<u64>,
}

/// The probe: orders from `from`, findings to `into`.
pub fn run(from: impl Read, mut into: impl Write) -> io::Result<()> {
    let mut line = String::new();
    io::BufReader::new(from.take(LONGEST_ORDERS)).read_line(&mut line)?;
    let orders: Orders = serde_json::from_str(&line).map_err(io::Error::other)?;
    let findings = carry_out(orders);
    let mut text = serde_json::to_string(&findings).map_err(io::Error::other)?;
    text.push('\n');
    into.write_all(text.as_bytes())?;
    into.flush()
}

fn carry_out(orders: Orders) -> Findings {
    let interfaces = look::interfaces();
    let resolvers = look::resolvers();
    let asked = resolvers.iter().flat_map(|resolver| {
        let to = SocketAddr::new(*resolver, dns::PORT);
        let names = orders.names.iter();
        names.map(move |name| Try {
            to,
            ask: Ask::Addresses(name.clone()),
        })
    });
    let tries = orders
        .tries
        .into_iter()
        .chain(asked)
        .flat_map(|one| dial::on_every_link(one, &interfaces))
        .take(MOST_TRIES)
        .collect();
    let has_ipv6 = interfaces.iter().any(|each| each.address.is_ipv6());
    let outcomes = dial::carry_out(tries, has_ipv6);
    let environment = look::environment();
    let wrong_variables = orders.variables.into_iter();
    let wrong_variables = wrong_variables
        .filter(|(name, value)| environment.get(name) != Some(value))
        .map(|(name, _)| name)
        .collect();
    Findings {
        tried: outcomes,
        resolvers,
        addresses: interfaces.into_iter().map(Address::from).collect(),
        default_routes: look::default_routes(),
        neighbours: look::neighbours(),
        hosts: look::hosts(),
        writes: orders.folders.into_iter().map(look::write_to).collect(),
        mounts: look::mounts(),
        environment: environment.into_keys().collect(),
        wrong_variables,
        status: look::status(),
        limits: look::limits(),
        forwards: look::forwards(),
    }
}
