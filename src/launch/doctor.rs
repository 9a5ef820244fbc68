//! `strait doctor`: a sandbox proved instead of described.
//!
//! It makes everything as a launch does, from the same plan, and runs our own probe in the server's
//! place: the same image, network, flags and variables, another program. The probe tries what must not
//! work ([`crate::probe`]), another one looks at the proxy's container from inside, this machine listens
//! for whoever gets through, and [`mod@judge`] makes a table of it.
//!
//! What it cannot prove: that the kernel and the runtime have no fault; that what is closed now is closed
//! for the next launch, for a launch by another user, or after a change of the firewall; that services on
//! this machine are safe that listen on neither TCP nor UDP, or to which a firewall lets other ports
//! through than the one it tries; where containers run in a virtual machine (podman machine, Docker
//! Desktop), more of that machine than the addresses of its networks; other containers than the one it
//! makes beside the proxy. What the proxy lets through to a listed host is the host's business.

pub mod host;
pub mod judge;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use tokio::time::timeout;

use self::host::Listeners;
use self::judge::{Evidence, Expected, Network, judge, resolved};
use self::table::Examination;
use super::exec::{Attached, Exec, Output};
use super::plan::{Argv, Inmate, PROBE_PROGRAM, Plan, Sidecar, Subnets, Surroundings, TMPFS_SIZE};
use super::spec::{EnvName, LaunchSpec};
use super::supervise::Proxy;
use super::{Built, Ground, Launch, LaunchError, Stop};
use crate::address::{self, Class};
use crate::destination::{Destination, Host};
use crate::probe::{Ask, Findings, Orders, Try};
use crate::rule::Rule;

/// For the probe to answer, from the start of its container: its own longest wait is 8 s.
const ANSWERED_IN: Duration = Duration::from_secs(30);
/// Bytes of the longest findings that are read.
const LONGEST_FINDINGS: u64 = 4 << 20;
/// Bytes of a runtime's complaint that are kept.
const LONGEST_COMPLAINT: u64 = 64 << 10;
/// The most of this machine's addresses, of a policy's hosts, and of a host's addresses, that are tried.
const MOST_ADDRESSES: usize = 64;
const MOST_HOSTS: usize = 32;
const MOST_OF_A_HOST: usize = 4;
/// A name that nobody has (RFC 6761 §6.4).
const NOBODYS: &str = "strait-doctor-unlisted.invalid";
/// What a doctor without a server lists.
pub const MADE_UP: &str = "strait-doctor.invalid";
/// Docker's own resolver, inside each container on a network that was made.
const EMBEDDED_RESOLVER: [u8; 4] = [127, 0, 0, 11];
const DNS_PORT: u16 = 53;
/// Where networks of some runtimes lead to this machine: slirp4netns(1) `--disable-host-loopback`,
/// pasta(1) `--map-guest-addr` as podman sets it, Docker Desktop's `host.docker.internal`.
const WAYS_TO_THE_HOST: [[u8; 4]; 3] = [[10, 0, 2, 2], [169, 254, 1, 2], [192, 168, 65, 254]];
/// Metadata services on link-local addresses: most clouds', and AWS's for containers. The others stand in
/// [`address::table`].
const LINK_LOCAL_METADATA: [[u8; 4]; 2] = [[169, 254, 169, 254], [169, 254, 170, 2]];
/// Folders that an image has, or that programs write to.
const FOLDERS: [&str; 12] = [
    "/", "/etc", "/usr", "/usr/bin", "/var", "/var/tmp", "/run", "/home", "/root", "/opt", "/srv",
    "/tmp",
];
/// Set where the runtime's commands run: neither may arrive in a container. podman hands the second kind
/// on by itself.
const CANARIES: [(&str, &str); 3] = [
    ("STRAIT_DOCTOR_CANARY", "of the host"),
    ("FTP_PROXY", "http://strait-doctor.invalid:1"),
    ("ftp_proxy", "http://strait-doctor.invalid:1"),
];

/// Why there is no table.
#[derive(Debug, Error)]
pub enum DoctorError {
    /// The sandbox could not be made.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// This machine does not listen.
    #[error("cannot listen on this machine, to hear who gets through: {0}")]
    Listen(io::Error),
    /// A probe said nothing.
    #[error("the probe in the {place}'s container did not answer: {complaint}")]
    Silent {
        /// Whose place it has.
        place: &'static str,
        /// What the runtime said.
        complaint: String,
    },
    /// The other container is not to be found.
    #[error("cannot find where the other container is: {0}")]
    Lost(String),
}

impl DoctorError {
    /// The exit code that tells it.
    pub fn code(&self) -> u8 {
        match self {
            Self::Launch(error) => error.code(),
            Self::Listen(_) | Self::Silent { .. } | Self::Lost(_) => super::FAILED,
        }
    }
}

impl Launch {
    /// Examines the sandbox of this launch:
    ///
    /// 1. **listen** on every address of this machine;
    /// 2. make the **networks** as a launch does, and a **neighbour** on the outer one;
    /// 3. make the **containers** as a launch does, the probe in the server's place;
    /// 4. look at the **proxy's container** from inside, where it resolves the listed names too;
    /// 5. start the **probe**, and read what it found;
    /// 6. **clean up**, whatever happened;
    /// 7. **judge**.
    pub async fn examine(mut self, mut stop: Stop) -> Result<Examination, DoctorError> {
        let listeners = Listeners::open(&self.run.to_string()).map_err(DoctorError::Listen)?;
        let canaries = CANARIES
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        self.setting.environment.extend(canaries);
        // What the proxy refuses here, it is asked to refuse.
        let notice = std::mem::replace(&mut self.setting.notice, |_| {});
        let plan = self.plan(Inmate::Probe, Subnets::default());
        let plan = plan.map_err(LaunchError::from)?;
        let ground = Ground::prepare(&self.setting, plan.undo()).await?;
        let found = async {
            let scene = self.set_up(plan, &ground.exec, &stop).await?;
            tokio::select! {
                found = self.look(scene, &listeners, &ground.exec) => found,
                number = stop.signal() => Err(LaunchError::Signal(number).into()),
            }
        };
        let found = found.await;
        ground.leave(notice).await.map_err(LaunchError::from)?;
        let (expected, mut evidence) = found?;
        evidence.heard = listeners.heard();
        let runtime = &self.survey.runtime;
        let rootless = if runtime.is_rootless {
            ", rootless"
        } else {
            ""
        };
        let runtime = format!("{} {}{rootless}", runtime.kind, runtime.version);
        Ok(Examination::new(runtime, judge(&expected, &evidence)))
    }

    /// Steps 2 and 3.
    async fn set_up(
        &mut self,
        plan: Plan,
        exec: &Arc<Exec>,
        stop: &Stop,
    ) -> Result<SetUp, DoctorError> {
        let mut plan = self.make_networks(plan, exec, stop).await?;
        let neighbour = match &plan.surroundings {
            None => None,
            Some(surroundings) => {
                let neighbour = &surroundings.neighbour;
                let running = self.start_proxy(neighbour, None, exec).await?;
                let located = exec.ask(&surroundings.locate).await;
                let place = Place::parse(&located.map_err(LaunchError::from)?);
                let place = place.map_err(DoctorError::Lost)?;
                Some(Neighbour {
                    running,
                    answers: SocketAddr::new(place.address, neighbour.listens.port()),
                    gateway: place.gateway,
                })
            }
        };
        if let Some(neighbour) = &neighbour
            && let Some(spec) = self.with_something_to_reach(neighbour.answers)
        {
            self.spec = spec;
            let again = self.plan(plan.inmate, plan.subnets);
            plan = again.map_err(LaunchError::from)?;
        }
        Ok(SetUp {
            built: self.make_containers(plan, None, exec, stop).await?,
            neighbour,
        })
    }

    /// The spec with the neighbour listed too, where every host in it is one that nobody has: or else
    /// there would be nothing to reach by the proxy and not to reach directly.
    fn with_something_to_reach(&self, neighbour: SocketAddr) -> Option<LaunchSpec> {
        let mut parts = self.spec.parts().clone();
        if !listed(&self.spec).iter().all(is_nobodys) {
            return None;
        }
        parts
            .network
            .push(Rule::parse(&neighbour.to_string()).ok()?);
        LaunchSpec::new(self.spec.name().clone(), self.spec.image().clone(), parts).ok()
    }

    /// Steps 4 and 5.
    async fn look(
        &self,
        scene: SetUp,
        listeners: &Listeners,
        exec: &Arc<Exec>,
    ) -> Result<(Expected, Evidence), DoctorError> {
        let Built { plan, proxy } = scene.built;
        let outer_gateway = scene.neighbour.as_ref().and_then(|each| each.gateway);
        let (network, by_proxy) = match (&plan.surroundings, &plan.sidecar, &scene.neighbour) {
            (Some(surroundings), Some(sidecar), Some(neighbour)) => {
                let by_proxy = self.look_inside_proxy(&surroundings.inside_proxy, exec);
                let by_proxy = by_proxy.await?;
                let network = self.network(surroundings, sidecar, neighbour.answers, &by_proxy);
                (Some(network), Some(by_proxy))
            }
            (_, _, None) | (_, None, _) | (None, _, _) => (None, None),
        };
        let expected = self.expected(&plan, network, listeners, outer_gateway);
        let orders = orders(&expected, &plan, listeners, &self.spec);
        let attached = exec.attach(&plan.workload.start);
        let inside = ask_probe(attached.map_err(LaunchError::from)?, &orders).await?;
        let neighbour = scene.neighbour.map(|neighbour| neighbour.running);
        for proxy in [proxy, neighbour].into_iter().flatten() {
            proxy.end().await;
        }
        let evidence = Evidence {
            inside,
            proxy: by_proxy,
            heard: BTreeSet::new(),
        };
        Ok((expected, evidence))
    }

    /// What the server's network is to be like.
    fn network(
        &self,
        surroundings: &Surroundings,
        sidecar: &Sidecar,
        neighbour: SocketAddr,
        by_proxy: &Findings,
    ) -> Network {
        let listed = listed(&self.spec);
        let other_port = listed.first();
        let other_port = other_port.map(|destination| format!("{}:1", destination.host()));
        let here = host::addresses().into_iter().filter(IpAddr::is_ipv4);
        let here = here.take(MOST_OF_A_HOST);
        let unlisted = [format!("{NOBODYS}:443"), "169.254.169.254:80".to_owned()]
            .into_iter()
            .chain(other_port)
            .chain(here.map(|address| format!("{address}:443")))
            .chain([neighbour.to_string()]);
        let is_unlisted = |target: &String| {
            Destination::from_authority_form(target)
                .is_ok_and(|destination| self.spec.policy().permit(destination).is_err())
        };
        let unlisted: BTreeSet<String> = unlisted.filter(is_unlisted).collect();
        let page = Ask::Page(format!("http://{NOBODYS}/"));
        Network {
            gateway: surroundings.gateway.into(),
            server: surroundings.server.into(),
            proxy: sidecar.listens,
            neighbour,
            direct: direct(&listed, &resolved(by_proxy)),
            listed: listed.iter().map(ToString::to_string).collect(),
            unlisted: unlisted
                .into_iter()
                .map(Ask::Tunnel)
                .chain([page])
                .collect(),
        }
    }

    /// Looks at the proxy's container from inside. Names that are listed are resolved there as the proxy
    /// resolves them, for the addresses at which nobody else may reach them; no other name is.
    async fn look_inside_proxy(&self, argv: &Argv, exec: &Exec) -> Result<Findings, DoctorError> {
        let listed = listed(&self.spec);
        let real = listed.iter().filter(|destination| !is_nobodys(destination));
        let names: BTreeSet<String> = real.filter_map(name).collect();
        let resolver = self.spec.parts().resolver;
        let tries = resolver.into_iter().flat_map(|to| {
            names.iter().map(move |name| Try {
                to,
                ask: Ask::Addresses(name.clone()),
            })
        });
        let orders = Orders {
            tries: tries.collect(),
            names: if resolver.is_some() {
                Vec::new()
            } else {
                names.iter().cloned().collect()
            },
            ..Orders::default()
        };
        let done = exec
            .feed(argv, &line(&orders))
            .await
            .map_err(LaunchError::from)?;
        serde_json::from_slice(&done.stdout).map_err(|_| DoctorError::Silent {
            place: "proxy",
            complaint: done.complaint(),
        })
    }

    /// What there is to be found.
    fn expected(
        &self,
        plan: &Plan,
        network: Option<Network>,
        listeners: &Listeners,
        outer_gateway: Option<IpAddr>,
    ) -> Expected {
        let (parts, limits) = (self.spec.parts(), self.survey.runtime.limits);
        let image = &self.survey.image.config;
        let of_the_image = image.env.iter().flatten();
        let of_the_image = of_the_image.filter_map(|variable| variable.split('=').next());
        let given = parts.secret.iter().chain(&parts.env).map(EnvName::as_str);
        let ours = variables(plan).into_keys();
        let names = of_the_image.chain(given).map(str::to_owned).chain(ours);
        let volumes = image
            .volumes
            .iter()
            .map(|volume| volume.trim_end_matches('/').to_owned());
        let mounts = parts.mounts.iter().map(|mount| mount.target().to_owned());
        let own = ["/tmp", PROBE_PROGRAM].map(str::to_owned);
        let inner = network.as_ref().map(|network| network.server);
        // Now that the networks are there: their bridges have addresses of this machine's.
        let host = host::addresses().into_iter().take(MOST_ADDRESSES);
        let ways = WAYS_TO_THE_HOST.map(IpAddr::from);
        let host: BTreeSet<IpAddr> = host.chain(ways).chain(outer_gateway).collect();
        Expected {
            network,
            port: listeners.port,
            host: host
                .into_iter()
                .filter(|address| Some(*address) != inner)
                .collect(),
            metadata: metadata(),
            variables: names.collect(),
            mounts: volumes.chain(mounts).chain(own).collect(),
            memory: limits.memory.then(|| parts.limits.memory_bytes()),
            processes: limits.processes.then(|| parts.limits.processes().into()),
            tmp: TMPFS_SIZE,
        }
    }
}

/// Everything made, the probe not yet started.
struct SetUp {
    built: Built,
    neighbour: Option<Neighbour>,
}

/// The other container.
struct Neighbour {
    running: Proxy,
    /// Where it answers.
    answers: SocketAddr,
    /// The gateway of the outer network.
    gateway: Option<IpAddr>,
}

/// What the policy lists, within bounds.
fn listed(spec: &LaunchSpec) -> Vec<Destination> {
    let rules = spec.policy().rules().iter();
    let listed = rules.flat_map(Rule::grants);
    listed.take(MOST_HOSTS).collect()
}

/// The variables that the plan gives with their values.
fn variables(plan: &Plan) -> BTreeMap<String, String> {
    let words = plan.workload.create.argv.words().iter();
    let given = words.filter_map(|word| word.strip_prefix("--env=")?.split_once('='));
    given
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn name(destination: &Destination) -> Option<String> {
    match destination.host() {
        Host::Name(name) => Some(name.as_str().to_owned()),
        Host::Ip(_) => None,
    }
}

/// Whether a host is one that nobody has.
fn is_nobodys(destination: &Destination) -> bool {
    name(destination).is_some_and(|name| judge::is_nobodys(&name))
}

/// The listed hosts, by their addresses.
fn direct(
    listed: &[Destination],
    resolved: &BTreeMap<String, BTreeSet<IpAddr>>,
) -> Vec<SocketAddr> {
    let addresses = listed.iter().flat_map(|destination| {
        let addresses: Vec<IpAddr> = match destination.host() {
            Host::Ip(address) => vec![*address],
            Host::Name(name) => {
                let found = resolved.get(name.as_str()).into_iter().flatten();
                found.copied().take(MOST_OF_A_HOST).collect()
            }
        };
        let port = destination.port().number();
        addresses
            .into_iter()
            .map(move |address| SocketAddr::new(address, port))
    });
    let addresses: BTreeSet<SocketAddr> = addresses.collect();
    addresses.into_iter().collect()
}

/// The services that tell clouds' secrets; those of whole networks are left out.
fn metadata() -> Vec<SocketAddr> {
    let others = address::table()
        .iter()
        .filter(|row| row.class == Class::Metadata);
    let others = others.map(|row| row.network);
    let others = others.filter(|network| network.prefix_len() == network.max_prefix_len());
    let addresses = LINK_LOCAL_METADATA
        .iter()
        .map(|address| IpAddr::from(*address));
    let addresses = addresses.chain(others.map(|network| network.addr()));
    addresses
        .map(|address| SocketAddr::new(address, 80))
        .collect()
}

/// What the probe in the server's place is to try.
fn orders(expected: &Expected, plan: &Plan, listeners: &Listeners, spec: &LaunchSpec) -> Orders {
    let network = expected.network.as_ref();
    let gateway = network.map(|network| network.gateway);
    let hosts = expected.host.iter().copied().chain(gateway);
    let to_this_machine = hosts.flat_map(|address| {
        let datagram = Ask::Datagram(format!("{}{address}", listeners.token));
        [Ask::Connection, datagram].map(|ask| Try {
            to: SocketAddr::new(address, expected.port),
            ask,
        })
    });
    let others = network.map(|network| network.neighbour);
    let others = others.iter().chain(&expected.metadata);
    let others = others.chain(network.iter().flat_map(|network| &network.direct));
    let others: BTreeSet<SocketAddr> = others.copied().collect();
    let connections = others.into_iter().map(|to| Try {
        to,
        ask: Ask::Connection,
    });
    let listed: Vec<Destination> = spec
        .policy()
        .rules()
        .iter()
        .flat_map(Rule::grants)
        .collect();
    let names: BTreeSet<String> = listed.iter().filter_map(name).take(MOST_HOSTS).collect();
    // Only a listed name may leave, should a resolver be reached; or one that nobody has.
    let one = names.first().cloned().unwrap_or_else(|| MADE_UP.to_owned());
    let resolvers = resolvers()
        .into_iter()
        .chain(gateway)
        .chain([EMBEDDED_RESOLVER.into()]);
    let resolvers: BTreeSet<IpAddr> = resolvers.collect();
    let questions = resolvers.into_iter().flat_map(|resolver| {
        let asks = [
            Ask::Addresses(one.clone()),
            Ask::AddressesOverTcp(one.clone()),
        ];
        asks.map(|ask| Try {
            to: SocketAddr::new(resolver, DNS_PORT),
            ask,
        })
    });
    // What knows containers by their names is a resolver too; nobody else is asked for them.
    let own = plan
        .sidecar
        .iter()
        .filter_map(|sidecar| sidecar.start.words().last());
    let own = own.zip(gateway).map(|(name, gateway)| Try {
        to: SocketAddr::new(gateway, DNS_PORT),
        ask: Ask::Addresses(name.clone()),
    });
    let proxied = network.into_iter().flat_map(|network| {
        let listed = network.listed.iter().cloned().map(Ask::Tunnel);
        let asks = listed.chain(network.unlisted.iter().cloned());
        asks.map(|ask| Try {
            to: network.proxy,
            ask,
        })
    });
    Orders {
        tries: proxied
            .chain(questions)
            .chain(own)
            .chain(connections)
            .chain(to_this_machine)
            .collect(),
        names: names
            .into_iter()
            .chain([one.clone()])
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        folders: FOLDERS.map(str::to_owned).to_vec(),
        variables: variables(plan),
    }
}

/// This machine's resolvers, besides those on its loopback.
fn resolvers() -> Vec<IpAddr> {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"));
    let servers = servers.filter_map(|server| server.trim().parse::<IpAddr>().ok());
    servers.filter(|server| !server.is_loopback()).collect()
}

fn line(orders: &Orders) -> Vec<u8> {
    // Strings, numbers and addresses: serde_json has nothing to fail on.
    let mut line = serde_json::to_vec(orders).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Gives the probe its orders, and reads what it found.
async fn ask_probe(attached: Attached, orders: &Orders) -> Result<Findings, DoctorError> {
    let Attached {
        mut child,
        mut stdin,
        stdout,
        stderr,
    } = attached;
    let orders = line(orders);
    let complaint = listen(stderr).map_err(LaunchError::from)?;
    let answer = tokio::task::spawn_blocking(move || {
        // One that has ended says so by its answer, which is none.
        drop(stdin.write_all(&orders));
        let mut answer = Vec::new();
        let mut stdout = BufReader::new(stdout.take(LONGEST_FINDINGS));
        stdout.read_until(b'\n', &mut answer)?;
        // Until now: some runtimes take its end for the client's.
        drop(stdin);
        io::Result::Ok(answer)
    });
    let answer = timeout(ANSWERED_IN, answer).await;
    let findings = match answer {
        Ok(Ok(Ok(answer))) => serde_json::from_slice(&answer).ok(),
        Ok(Ok(Err(_)) | Err(_)) | Err(_) => None,
    };
    // It ends by itself, or with its container.
    drop(timeout(Duration::from_secs(1), child.wait()).await);
    findings.ok_or_else(|| {
        let said = complaint.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&said);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        DoctorError::Silent {
            place: "server",
            complaint: last.unwrap_or("it said nothing").escape_debug().to_string(),
        }
    })
}

/// Keeps what comes, for the case that it is asked for.
fn listen(stderr: PipeReader) -> io::Result<Arc<Mutex<Vec<u8>>>> {
    let said = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&said);
    let thread = thread::Builder::new().name("probe-says".to_owned());
    thread.spawn(move || {
        let mut lines = BufReader::new(stderr.take(LONGEST_COMPLAINT));
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
            into.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .append(&mut line);
        }
    })?;
    Ok(said)
}

/// Where a container is, on the first of its networks.
struct Place {
    address: IpAddr,
    gateway: Option<IpAddr>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    network_settings: NetworkSettings,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NetworkSettings {
    networks: BTreeMap<String, Attachment>,
}

#[derive(Deserialize)]
struct Attachment {
    #[serde(rename = "IPAddress")]
    address: String,
    #[serde(rename = "Gateway", default)]
    gateway: String,
}

impl Place {
    /// Reads the answer to `container inspect` of one container.
    fn parse(output: &Output) -> Result<Self, String> {
        if !output.status.success() {
            return Err(output.complaint());
        }
        let inspected: Vec<Inspected> =
            serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        let networks = inspected
            .into_iter()
            .flat_map(|each| each.network_settings.networks);
        let mut places = networks.filter_map(|(_, attachment)| {
            Some(Self {
                address: attachment.address.parse().ok()?,
                gateway: attachment.gateway.parse().ok(),
            })
        });
        places.next().ok_or_else(|| "it has no address".to_owned())
    }
}
