//! What was found, and what it means: pure. One function for each row of the table.
//!
//! A row is about one hole or one promise. It is bad when what must be closed is open, or what must work
//! does not; a limit that the runtime cannot put in force here is shown, and not bad.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use crate::probe::{Ask, Findings, Mounted, Outcome, Tried, Written};

/// The longest detail, in characters: a table is to be read.
const LONGEST_DETAIL: usize = 400;
/// The response codes with which a resolver tells of a name (RFC 1035 §4.1.1, RFC 8020): there is one,
/// there is none.
const TELLS: [u8; 2] = [0, 3];
/// A filter is in force (proc(5), `Seccomp`).
const FILTER: u8 = 2;
/// Where the runtimes mount files of their own.
const OF_THE_RUNTIME: [&str; 4] = [
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
    "/run/.containerenv",
];
/// Where podman mounts copies of the image's files with a line for its user, and the folder of the
/// container's own that it has them in.
const WITH_ITS_USER: [&str; 2] = ["/etc/passwd", "/etc/group"];
const OF_THE_CONTAINER: &str = "/userdata/";
/// Where the kernel's folders are; in memory, the runtimes cover parts of them.
const KERNEL_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Variables that the runtimes set themselves.
const VARIABLES_OF_THE_RUNTIME: [&str; 5] = ["PATH", "HOME", "HOSTNAME", "TERM", "container"];

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It must be closed, and is.
    Closed,
    /// It must be closed, and is not.
    Open,
    /// It must work, and does.
    Works,
    /// It must work, and does not.
    Fails,
    /// A limit that this runtime cannot put in force here.
    NotInForce,
    /// There is nothing to check.
    NotChecked,
}

impl State {
    /// Whether it is a reason not to trust the sandbox.
    pub fn is_bad(self) -> bool {
        match self {
            Self::Open | Self::Fails => true,
            Self::Closed | Self::Works | Self::NotInForce | Self::NotChecked => false,
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its stable name.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What it says.
    pub state: State,
    /// What was seen.
    pub detail: String,
}

/// What there is to be found.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// What a server with a network has; `None` for one without.
    pub network: Option<Network>,
    /// The port on which this machine listens for the probe.
    pub port: u16,
    /// The addresses of this machine, and those by which some runtimes' networks lead to it.
    pub host: Vec<IpAddr>,
    /// Services that tell clouds' secrets.
    pub metadata: Vec<SocketAddr>,
    /// The variables that were given to the container, besides the runtime's own.
    pub variables: BTreeSet<String>,
    /// Where folders were mounted on purpose.
    pub mounts: BTreeSet<String>,
    /// Bytes of memory, swap included; `None` where the runtime cannot limit it.
    pub memory: Option<u64>,
    /// Processes; `None` where the runtime cannot limit them.
    pub processes: Option<u64>,
    /// Bytes of `/tmp`.
    pub tmp: u64,
}

/// What a server with a network has.
#[derive(Clone, Debug)]
pub struct Network {
    /// The gateway of its network, where there is one.
    pub gateway: IpAddr,
    /// The server's own address.
    pub server: IpAddr,
    /// The proxy.
    pub proxy: SocketAddr,
    /// Another container, on the proxy's outer network.
    pub neighbour: SocketAddr,
    /// `HOST:PORT` that the proxy must let through.
    pub listed: Vec<String>,
    /// `HOST:PORT` and `http` URLs that the proxy must refuse.
    pub unlisted: Vec<Ask>,
    /// What the listed hosts are when the proxy is not asked.
    pub direct: Vec<SocketAddr>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// By the probe in the server's place.
    pub inside: Findings,
    /// By the probe in the proxy's container.
    pub proxy: Option<Findings>,
    /// The addresses of this machine at which the probe arrived.
    pub heard: BTreeSet<IpAddr>,
}

struct Verdict(State, String);

type Judge = fn(&Expected, &Evidence) -> Verdict;

#[rustfmt::skip]
const ROWS: [(&str, &str, Judge); 25] = [
    ("networks",           "Networks it is in",             networks),
    ("default_route",      "Default route",                 default_route),
    ("gateway",            "Gateway of its network",        gateway),
    ("host",               "Other addresses of the host",   host),
    ("ipv6",               "IPv6, link-local included",     ipv6),
    ("dns",                "DNS",                           dns),
    ("metadata",           "Cloud metadata",                metadata),
    ("containers",         "Other containers",              containers),
    ("listed",             "A listed host, by the proxy",   listed),
    ("unlisted",           "An unlisted host, by the proxy", unlisted),
    ("direct",             "A listed host, directly",       direct),
    ("root",               "Writes to the root",            root),
    ("folders",            "Folders of the host",           folders),
    ("tmp",                "/tmp",                          tmp),
    ("hosts_file",         "Host addresses in /etc/hosts",  hosts_file),
    ("environment",        "The host's environment",        environment),
    ("variables",          "Variables it must have",        variables),
    ("capabilities",       "Capabilities",                  capabilities),
    ("no_new_privileges",  "New privileges",                no_new_privileges),
    ("seccomp",            "Unusual system calls",          seccomp),
    ("memory",             "Memory without a limit",        memory),
    ("processes",          "Processes without a limit",     processes),
    ("proxy_forwarding",   "Packets through the proxy",     proxy_forwarding),
    ("proxy_ipv6",         "IPv6 of the proxy",             proxy_ipv6),
    ("proxy_confinement",  "Privileges of the proxy",       proxy_confinement),
];

/// Judges what was found.
pub fn judge(expected: &Expected, evidence: &Evidence) -> Vec<Row> {
    let rows = ROWS.iter().map(|(id, title, judge)| {
        let Verdict(state, detail) = judge(expected, evidence);
        Row {
            id,
            title,
            state,
            detail: visible(&detail),
        }
    });
    rows.collect()
}

/// Without what a terminal would act on: names of variables and paths are others' words.
fn visible(text: &str) -> String {
    let is_hidden = |letter: char| letter.is_control() || super::super::plan::is_invisible(letter);
    let shown = text.chars().take(LONGEST_DETAIL);
    shown
        .map(|letter| {
            if is_hidden(letter) {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect()
}

// -- the network ---------------------------------------------------------------------------------

fn networks(expected: &Expected, evidence: &Evidence) -> Verdict {
    let ours = expected.network.as_ref().map(|network| network.server);
    // IPv6 has a row of its own.
    let addresses = evidence
        .inside
        .addresses
        .iter()
        .filter(|each| each.address.is_ipv4());
    let others: Vec<String> = addresses
        .filter(|each| Some(each.address) != ours)
        .map(|each| format!("{} on {}", each.address, each.interface))
        .collect();
    if others.is_empty() {
        return match ours {
            Some(ours) => closed(format!("the internal one alone, as {ours}")),
            None => closed("none"),
        };
    }
    open(format!("another one: {}", others.join(", ")))
}

fn default_route(_: &Expected, evidence: &Evidence) -> Verdict {
    let inside = &evidence.inside;
    let mut seen = Vec::new();
    let mut is_open = false;
    for route in &inside.default_routes {
        seen.push(match route.by {
            // It was tried with everything else: a neighbour that answers for its address is known now.
            Some(by) if by.is_ipv4() && !inside.neighbours.contains(&by) => {
                format!("by {by}, which is nobody's")
            }
            Some(by) => {
                is_open = true;
                format!("by {by} on {}, which is there", route.interface)
            }
            None => {
                is_open = true;
                format!("everything is on {}", route.interface)
            }
        });
    }
    match (seen.is_empty(), is_open) {
        (true, _) => closed("none"),
        (false, true) => open(seen.join(", ")),
        (false, false) => closed(seen.join(", ")),
    }
}

fn gateway(expected: &Expected, evidence: &Evidence) -> Verdict {
    match &expected.network {
        None => closed("there is no network"),
        Some(network) => reaching(expected, evidence, &[network.gateway]),
    }
}

fn host(expected: &Expected, evidence: &Evidence) -> Verdict {
    let gateway = expected.network.as_ref().map(|network| network.gateway);
    let others = expected
        .host
        .iter()
        .filter(|address| Some(**address) != gateway);
    let others: Vec<IpAddr> = others
        .copied()
        .filter(|address| !is_link_local(*address))
        .collect();
    reaching(expected, evidence, &others)
}

/// Whether this machine was reached at any of these addresses, on the port where it listens.
fn reaching(expected: &Expected, evidence: &Evidence, addresses: &[IpAddr]) -> Verdict {
    let mut seen = Seen::default();
    for address in addresses {
        let tried = evidence.inside.tried.iter().filter(|tried| {
            tried.of.to.ip() == *address
                && tried.of.to.port() == expected.port
                && matches!(tried.of.ask, Ask::Connection | Ask::Datagram(_))
        });
        let outcomes: Vec<&Outcome> = tried.map(|tried| &tried.outcome).collect();
        let answer = outcomes.iter().find(|outcome| outcome.is_answer());
        match answer.or_else(|| outcomes.first()) {
            _ if evidence.heard.contains(address) => {
                let detail = format!("{address} was reached: this machine heard it");
                seen.answers.push(detail);
            }
            Some(outcome) => seen.add(address, outcome),
            None => seen.untried.push(format!("{address} was not tried")),
        }
    }
    seen.verdict()
}

/// Whether anybody answered at any of these addresses.
fn connecting(evidence: &Evidence, addresses: &[SocketAddr]) -> Verdict {
    let mut seen = Seen::default();
    for address in addresses {
        let mut tried = evidence.inside.tried.iter();
        let tried = tried.find(|tried| tried.of.ask == Ask::Connection && tried.of.to == *address);
        match tried {
            Some(tried) => seen.add(address, &tried.outcome),
            None => seen.untried.push(format!("{address} was not tried")),
        }
    }
    seen.verdict()
}

/// What was seen of several addresses.
#[derive(Default)]
struct Seen<'e> {
    answers: Vec<String>,
    /// What could not be tried proves nothing.
    untried: Vec<String>,
    silent: BTreeMap<&'e str, usize>,
}

impl<'e> Seen<'e> {
    fn add(&mut self, address: impl Display, outcome: &'e Outcome) {
        let seen = words(outcome);
        if outcome.is_answer() {
            self.answers.push(format!("{address} answers: {seen}"));
        } else if matches!(outcome, Outcome::Other(_)) {
            self.untried.push(format!("{address}: {seen}"));
        } else {
            *self.silent.entry(seen).or_insert(0) += 1;
        }
    }

    fn verdict(self) -> Verdict {
        if !self.answers.is_empty() {
            return open(self.answers.join("; "));
        }
        if !self.untried.is_empty() {
            return fails(self.untried.join("; "));
        }
        if self.silent.is_empty() {
            return closed("there is none to try");
        }
        let counted = self.silent.iter().map(|(seen, count)| match count {
            1 => format!("1 address: {seen}"),
            count => format!("{count} addresses: {seen}"),
        });
        closed(counted.collect::<Vec<_>>().join("; "))
    }
}

fn ipv6(_: &Expected, evidence: &Evidence) -> Verdict {
    let inside = &evidence.inside;
    let own = inside
        .addresses
        .iter()
        .filter(|each| each.address.is_ipv6());
    let own: Vec<String> = own
        .map(|each| format!("{} on {}", each.address, each.interface))
        .collect();
    let answers = inside.tried.iter().filter(|tried| {
        is_link_local(tried.of.to.ip()) && tried.of.to.is_ipv6() && tried.outcome.is_answer()
    });
    let answers: Vec<String> = answers.map(|tried| tried.of.to.ip().to_string()).collect();
    if own.is_empty() && answers.is_empty() {
        return closed("no address but loopback's");
    }
    let mut detail = format!("it has {}", own.join(", "));
    if !answers.is_empty() {
        let _ = write!(detail, "; and the host answers at {}", answers.join(", "));
    }
    open(detail)
}

fn dns(_: &Expected, evidence: &Evidence) -> Verdict {
    let mut telling = BTreeMap::new();
    let mut asked = BTreeSet::new();
    let mut untried = Vec::new();
    for tried in questions(&evidence.inside) {
        let resolver = tried.of.to.ip();
        asked.insert(resolver);
        match &tried.outcome {
            // The embedded one of docker is always there; what counts is whether it asks others. One in
            // the network is a way out by itself.
            Outcome::Resolved { code, .. } if TELLS.contains(code) || !resolver.is_loopback() => {
                telling.insert(resolver, format!("{resolver} answers: {}", response(*code)));
            }
            Outcome::Other(error) => untried.push(format!("{resolver}: {error}")),
            Outcome::Resolved { .. }
            | Outcome::Connected
            | Outcome::Sent
            | Outcome::Http { .. }
            | Outcome::Refused
            | Outcome::Ended
            | Outcome::NoRoute
            | Outcome::NoHost
            | Outcome::NoAddress
            | Outcome::Forbidden
            | Outcome::Silence => {}
        }
    }
    for resolver in &evidence.inside.resolvers {
        // Even where it does not answer, it is another's address.
        if !resolver.is_loopback() {
            let detail = || format!("/etc/resolv.conf names {resolver}");
            telling.entry(*resolver).or_insert_with(detail);
        }
    }
    if !telling.is_empty() {
        return open(joined(telling.values()));
    }
    if asked.is_empty() || !untried.is_empty() {
        untried.push("not everything could be asked".to_owned());
        return fails(untried.join(", "));
    }
    closed(format!("nobody resolves; asked {}", joined(&asked)))
}

fn questions(findings: &Findings) -> impl Iterator<Item = &Tried> {
    let tried = findings.tried.iter();
    tried.filter(|tried| matches!(tried.of.ask, Ask::Addresses(_) | Ask::AddressesOverTcp(_)))
}

/// The addresses that resolvers gave.
pub fn resolved(findings: &Findings) -> BTreeMap<String, BTreeSet<IpAddr>> {
    let mut found: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
    for tried in questions(findings) {
        if let (
            Ask::Addresses(name) | Ask::AddressesOverTcp(name),
            Outcome::Resolved { addresses, .. },
        ) = (&tried.of.ask, &tried.outcome)
        {
            found.entry(name.clone()).or_default().extend(addresses);
        }
    }
    found
}

fn metadata(expected: &Expected, evidence: &Evidence) -> Verdict {
    connecting(evidence, &expected.metadata)
}

fn containers(expected: &Expected, evidence: &Evidence) -> Verdict {
    match &expected.network {
        None => closed("there is no network"),
        Some(network) => connecting(evidence, &[network.neighbour]),
    }
}

fn direct(expected: &Expected, evidence: &Evidence) -> Verdict {
    match &expected.network {
        None => not_checked("no host is listed"),
        Some(network) if network.direct.is_empty() => not_checked("it has no address here to try"),
        Some(network) => connecting(evidence, &network.direct),
    }
}

// -- the proxy -----------------------------------------------------------------------------------

fn listed(expected: &Expected, evidence: &Evidence) -> Verdict {
    let Some(network) = &expected.network else {
        return not_checked("no host is listed");
    };
    let (mut right, mut wrong) = (Vec::new(), Vec::new());
    for target in &network.listed {
        let is_nobodys = is_nobodys(target.rsplit_once(':').map_or("", |(host, _)| host));
        match asked(evidence, network, &Ask::Tunnel(target.clone())) {
            Some(Outcome::Http { status: 200, .. }) => right.push(target.clone()),
            Some(Outcome::Http {
                code: Some(code), ..
            }) if is_nobodys && code.starts_with("dns_") => {
                right.push(format!("{target} (as far as a made-up name can)"));
            }
            outcome => wrong.push(format!("{target}: {}", told(outcome))),
        }
    }
    if wrong.is_empty() {
        works(right.join(", "))
    } else {
        fails(wrong.join("; "))
    }
}

/// Whether nobody has a name (RFC 6761 §6.4).
pub(super) fn is_nobodys(name: &str) -> bool {
    name.ends_with(".invalid")
}

fn unlisted(expected: &Expected, evidence: &Evidence) -> Verdict {
    let Some(network) = &expected.network else {
        return closed("there is no proxy to ask");
    };
    let mut wrong = Vec::new();
    let mut silent = Vec::new();
    for ask in &network.unlisted {
        let target = match ask {
            Ask::Tunnel(target) | Ask::Page(target) => target,
            Ask::Connection | Ask::Datagram(_) | Ask::Addresses(_) | Ask::AddressesOverTcp(_) => {
                continue;
            }
        };
        match asked(evidence, network, ask) {
            Some(Outcome::Http { status: 403, .. }) => {}
            outcome @ Some(Outcome::Http { .. }) => {
                wrong.push(format!("{target}: {}", told(outcome)));
            }
            outcome => silent.push(format!("{target}: {}", told(outcome))),
        }
    }
    match (wrong.is_empty(), silent.is_empty()) {
        (true, true) => closed(format!("403 for {} ways to ask", network.unlisted.len())),
        (true, false) => fails(silent.join("; ")),
        (false, _) => open(wrong.join("; ")),
    }
}

fn asked<'e>(evidence: &'e Evidence, network: &Network, ask: &Ask) -> Option<&'e Outcome> {
    let mut tried = evidence.inside.tried.iter();
    let tried = tried.find(|tried| tried.of.to == network.proxy && tried.of.ask == *ask);
    tried.map(|tried| &tried.outcome)
}

fn told(outcome: Option<&Outcome>) -> String {
    match outcome {
        Some(Outcome::Http { status, code }) => {
            let code = code.as_deref().unwrap_or("no reason given");
            format!("the proxy says {status}, {code}")
        }
        Some(other) => format!("the proxy: {}", words(other)),
        None => "it was not tried".to_owned(),
    }
}

fn proxy_forwarding(expected: &Expected, evidence: &Evidence) -> Verdict {
    of_the_proxy(expected, evidence, |proxy| match proxy.forwards {
        Some(false) => closed("it forwards none"),
        Some(true) => {
            open("it is in two networks, and forwards packets between them (ip_forward is 1)")
        }
        None => open("whether it forwards them cannot be seen"),
    })
}

fn proxy_ipv6(expected: &Expected, evidence: &Evidence) -> Verdict {
    of_the_proxy(expected, evidence, |proxy| {
        let own = proxy.addresses.iter().filter(|each| each.address.is_ipv6());
        let own: Vec<String> = own
            .map(|each| format!("{} on {}", each.address, each.interface))
            .collect();
        if own.is_empty() {
            closed("no address but loopback's")
        } else {
            open(format!("it has {}", own.join(", ")))
        }
    })
}

fn proxy_confinement(expected: &Expected, evidence: &Evidence) -> Verdict {
    of_the_proxy(expected, evidence, |proxy| {
        let mut wrong: Vec<String> = proxy.status.capabilities.keys().cloned().collect();
        if proxy.status.no_new_privileges != Some(true) {
            wrong.push("it may get new ones".to_owned());
        }
        if proxy.status.seccomp != Some(FILTER) {
            wrong.push("all system calls".to_owned());
        }
        if proxy.status.user.is_none_or(|user| user == 0) {
            wrong.push("it is root".to_owned());
        }
        if !root_is_read_only(proxy) {
            wrong.push("its root can be written to".to_owned());
        }
        if wrong.is_empty() {
            closed("none")
        } else {
            open(wrong.join(", "))
        }
    })
}

fn of_the_proxy(
    expected: &Expected,
    evidence: &Evidence,
    judge: fn(&Findings) -> Verdict,
) -> Verdict {
    match (&expected.network, &evidence.proxy) {
        (None, _) => not_checked("there is none"),
        (Some(_), Some(proxy)) => judge(proxy),
        (Some(_), None) => fails("it was not looked at"),
    }
}

// -- the container -------------------------------------------------------------------------------

fn root(_: &Expected, evidence: &Evidence) -> Verdict {
    let inside = &evidence.inside;
    let written = inside.writes.iter().filter(|each| each.folder != "/tmp");
    let written = written.filter(|each| each.outcome == Written::Written);
    let written: Vec<&str> = written.map(|each| each.folder.as_str()).collect();
    match (written.as_slice(), root_is_read_only(inside)) {
        ([], true) => closed("it is read-only"),
        ([], false) => open("it is not mounted read-only"),
        (folders, _) => open(format!("a file could be made in {}", folders.join(", "))),
    }
}

fn root_is_read_only(findings: &Findings) -> bool {
    let mut roots = findings.mounts.iter().filter(|mount| mount.at == "/");
    // The last one mounted is the one that is seen.
    roots.next_back().is_some_and(|mount| mount.is_read_only)
}

fn folders(expected: &Expected, evidence: &Evidence) -> Verdict {
    let is_in = |at: &str, folder: &str| {
        at.strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_known = |mount: &Mounted| {
        let (at, kind) = (mount.at.as_str(), mount.kind.as_str());
        at == "/"
            || expected.mounts.contains(at)
            || OF_THE_RUNTIME.contains(&at)
            || (WITH_ITS_USER.contains(&at) && mount.root.contains(OF_THE_CONTAINER))
            || (matches!(kind, "tmpfs" | "devtmpfs")
                && KERNEL_FOLDERS.iter().any(|folder| is_in(at, folder)))
    };
    let mounts = evidence.inside.mounts.iter();
    let others: Vec<String> = mounts
        .filter(|mount| !is_known(mount))
        .map(|mount| {
            let access = if mount.is_read_only { "read" } else { "write" };
            format!("{} ({}, to {access})", mount.at, mount.kind)
        })
        .collect();
    if others.is_empty() {
        let given = expected
            .mounts
            .iter()
            .filter(|at| at.starts_with("/workspace"));
        let given: Vec<&str> = given.map(String::as_str).collect();
        return closed(match given.as_slice() {
            [] => "none".to_owned(),
            given => format!("none but {}", given.join(", ")),
        });
    }
    open(others.join(", "))
}

fn tmp(expected: &Expected, evidence: &Evidence) -> Verdict {
    let inside = &evidence.inside;
    let is_written = inside
        .writes
        .iter()
        .any(|each| each.folder == "/tmp" && each.outcome == Written::Written);
    match (is_written, inside.limits.tmp) {
        (_, None) => open("it is not a file system in memory with a limit"),
        (_, Some(size)) if size > expected.tmp => {
            open(format!("{} can be written to it", bytes(size)))
        }
        (false, Some(_)) => fails("it cannot be written to"),
        (true, Some(size)) => works(format!("{} in memory", bytes(size))),
    }
}

fn hosts_file(expected: &Expected, evidence: &Evidence) -> Verdict {
    let named = evidence
        .inside
        .hosts
        .iter()
        .filter(|address| expected.host.contains(address));
    let named: Vec<String> = named.map(ToString::to_string).collect();
    if named.is_empty() {
        closed("none")
    } else {
        open(named.join(", "))
    }
}

fn environment(expected: &Expected, evidence: &Evidence) -> Verdict {
    let others = evidence.inside.environment.iter().filter(|name| {
        !expected.variables.contains(*name) && !VARIABLES_OF_THE_RUNTIME.contains(&name.as_str())
    });
    let others: Vec<&str> = others.map(String::as_str).collect();
    if others.is_empty() {
        closed(format!(
            "{} variables, all of the image's or given",
            evidence.inside.environment.len()
        ))
    } else {
        open(others.join(", "))
    }
}

fn variables(expected: &Expected, evidence: &Evidence) -> Verdict {
    match evidence.inside.wrong_variables.as_slice() {
        [] if expected.network.is_none() => not_checked("there is no proxy to lead to"),
        [] => works("they lead to the proxy"),
        wrong => fails(format!("missing or other than given: {}", wrong.join(", "))),
    }
}

fn capabilities(_: &Expected, evidence: &Evidence) -> Verdict {
    let sets = &evidence.inside.status.capabilities;
    let sets: Vec<String> = sets
        .iter()
        .map(|(name, set)| format!("{name} {set}"))
        .collect();
    if sets.is_empty() {
        closed("none")
    } else {
        open(sets.join(", "))
    }
}

fn no_new_privileges(_: &Expected, evidence: &Evidence) -> Verdict {
    match evidence.inside.status.no_new_privileges {
        Some(true) => closed("no program gives any (no_new_privs)"),
        Some(false) => open("a set-uid program gives them"),
        None => open("whether a program gives any cannot be seen"),
    }
}

fn seccomp(_: &Expected, evidence: &Evidence) -> Verdict {
    match evidence.inside.status.seccomp {
        Some(FILTER) => closed("a filter is in force (seccomp)"),
        Some(_) => open("no filter is in force (seccomp)"),
        None => open("whether a filter is in force cannot be seen"),
    }
}

fn memory(expected: &Expected, evidence: &Evidence) -> Verdict {
    let limits = &evidence.inside.limits;
    match (expected.memory, limits.memory) {
        (None, None) => not_in_force("this runtime has no control group for it here"),
        (None, Some(limit)) => closed(format!("{} at most", bytes(limit))),
        (Some(_), None) => open("there is none"),
        (Some(wanted), Some(limit)) if limit > wanted => {
            open(format!("{}, not {}", bytes(limit), bytes(wanted)))
        }
        (Some(_), Some(limit)) if !limits.counts_swap => closed(format!(
            "{} at most; this kernel does not count swap",
            bytes(limit)
        )),
        (Some(wanted), Some(limit)) => match limits.memory_and_swap {
            Some(both) if both <= wanted => {
                closed(format!("{} at most, swap included", bytes(limit)))
            }
            Some(_) | None => open(format!("{}, and swap beside it", bytes(limit))),
        },
    }
}

fn processes(expected: &Expected, evidence: &Evidence) -> Verdict {
    match (expected.processes, evidence.inside.limits.processes) {
        (None, None) => not_in_force("this runtime has no control group for it here"),
        (Some(_), None) => open("there is none"),
        (Some(wanted), Some(limit)) if limit > wanted => open(format!("{limit}, not {wanted}")),
        (_, Some(limit)) => closed(format!("{limit} at most")),
    }
}

// -- words ---------------------------------------------------------------------------------------

fn closed(detail: impl Into<String>) -> Verdict {
    Verdict(State::Closed, detail.into())
}

fn open(detail: impl Into<String>) -> Verdict {
    Verdict(State::Open, detail.into())
}

fn works(detail: impl Into<String>) -> Verdict {
    Verdict(State::Works, detail.into())
}

fn fails(detail: impl Into<String>) -> Verdict {
    Verdict(State::Fails, detail.into())
}

fn not_checked(detail: impl Into<String>) -> Verdict {
    Verdict(State::NotChecked, detail.into())
}

fn not_in_force(detail: impl Into<String>) -> Verdict {
    Verdict(State::NotInForce, detail.into())
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn words(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Connected => "connected",
        Outcome::Resolved { .. } => "it resolves",
        Outcome::Http { .. } => "it speaks HTTP",
        Outcome::Refused => "refused, so the packet got there",
        Outcome::Ended => "it took a connection and ended it",
        Outcome::NoRoute => "no route",
        Outcome::NoHost => "nobody on the way",
        Outcome::NoAddress => "no address to go from",
        Outcome::Forbidden => "forbidden",
        Outcome::Sent | Outcome::Silence => "no answer",
        Outcome::Other(error) => error,
    }
}

/// The names of response codes (RFC 1035 §4.1.1).
fn response(code: u8) -> &'static str {
    match code {
        0 => "NOERROR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        5 => "REFUSED",
        _ => "an error",
    }
}

fn joined(words: impl IntoIterator<Item = impl Display>) -> String {
    let words = words.into_iter().map(|word| word.to_string());
    words.collect::<Vec<_>>().join(", ")
}

fn bytes(count: u64) -> String {
    const MIB: u64 = 1 << 20;
    if count < MIB || !count.is_multiple_of(MIB) {
        return format!("{count} bytes");
    }
    format!("{} MiB", count / MIB)
}

#[cfg(test)]
mod tests;
