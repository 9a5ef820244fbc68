//! A launch as data: every command line, and what takes its effect back. Pure: the same spec and
//! facts give the same plan, `strait launch --print` shows it, and the tests read it.
//!
//! Whatever a user or an image wrote stands behind `--flag=` or after the image, where no runtime
//! looks for options any more.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::owner::Owner;
use super::runtime::{ImageFacts, RuntimeFacts, RuntimeKind, Version};
use super::spec::{Access, LaunchSpec, Mount, RunId};

/// What `/etc/hosts` holds in the server's container: itself, and nothing of the machine's.
pub const HOSTS: &str = "127.0.0.1 localhost server\n::1 localhost\n";
/// What `/etc/resolv.conf` holds there, on docker: nobody, who says so at once. Docker's own resolver
/// stands there otherwise, and lets whoever asks wait for ten seconds.
pub const RESOLVER: &str = "nameserver 127.0.0.1\n";
/// The port the sidecar listens on; nothing else in its network namespace has one.
const PROXY_PORT: u16 = 3128;
/// Who the sidecar runs as: nobody, on the machines we know.
const NOBODY: &str = "65534:65534";
/// Where the sidecar has our program.
const SIDECAR_PROGRAM: &str = "/strait";
/// Where the server's container has it, for the probe: a place no image has.
pub(super) const PROBE_PROGRAM: &str = "/.strait-probe";
/// Bytes of memory for the sidecar: a thousand tunnels take a tenth of it.
const SIDECAR_MEMORY: u64 = 256 << 20;
/// Threads for the sidecar.
const SIDECAR_PROCESSES: u32 = 128;
/// Bytes of `/tmp`, and of each folder the image wants to write to.
pub(super) const TMPFS_SIZE: u64 = 64 << 20;
/// The most folders an image may want to write to; each costs memory.
const MAX_VOLUMES: usize = 16;
/// Where the internal networks come from. A /29 has room for the two containers; the daemons' own
/// pools hand out thirty networks in all.
const INNER: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 231, 0, 0), 17);
/// Where the outer networks come from when a daemon's own pools are used up.
const OUTER: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 231, 128, 0), 17);
/// The prefix length of each.
const BITS: u8 = 29;
/// The name of the empty image; its content is checked before each use.
pub const EMPTY_IMAGE: &str = "localhost/strait-empty:1";
/// The label that says which launch something belongs to.
pub const RUN_LABEL: &str = "strait.run";
/// The label that says who owns it: see [`Owner`].
pub const OWNER_LABEL: &str = "strait.owner";
/// The label that says which server it is for.
pub const SERVER_LABEL: &str = "strait.server";
/// Docker's first version that knows bridges without an address on the host.
const ISOLATED_GATEWAY: Version = Version(28, 0, 0);
/// What leads programs to the proxy, in both spellings.
const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
/// What docker's own client would put in: set to nothing.
const OTHER_PROXY_VARIABLES: [&str; 4] = ["ALL_PROXY", "FTP_PROXY", "all_proxy", "ftp_proxy"];
/// Hosts that are not asked for through the proxy: the server's own loopback, and nothing else.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";
/// Folders of the kernel's, where nothing may be mounted.
const KERNEL_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// One command line: a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argv(Vec<String>);

impl Argv {
    /// A command line of words that nobody else wrote.
    pub(super) fn of(program: &str, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned());
        Self([program.to_owned()].into_iter().chain(words).collect())
    }

    fn flag(mut self, flag: &str) -> Self {
        self.0.push(flag.to_owned());
        self
    }

    /// `flag=value`: one argument, so that no value is ever in option position.
    pub(super) fn set(mut self, flag: &str, value: impl fmt::Display) -> Self {
        self.0.push(format!("{flag}={value}"));
        self
    }

    /// What stands after the options.
    pub(super) fn operand(mut self, value: impl Into<String>) -> Self {
        self.0.push(value.into());
        self
    }

    /// The program.
    pub fn program(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Its arguments.
    pub fn arguments(&self) -> &[String] {
        self.0.get(1..).unwrap_or_default()
    }

    /// The program and its arguments.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Argv {
    /// One argument a line; what would not be visible is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for word in &self.0 {
            f.write_str("  ")?;
            for letter in word.chars() {
                if letter.is_control() || is_invisible(letter) {
                    write!(f, "{}", letter.escape_unicode())?;
                } else {
                    write!(f, "{letter}")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Characters that change how the text around them is shown (Unicode TR 36 §3.1), or show nothing.
pub(super) fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// What takes the effect of a step back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// Removes it.
    pub remove: Argv,
    /// Lists what is left of it, and fails when that cannot be known: removing what has gone by itself
    /// is an error to some versions.
    pub remains: Argv,
}

/// One command with an effect, run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does, in words.
    pub title: &'static str,
    /// How.
    pub argv: Argv,
    /// What takes it back; `None` where that goes with the effect of a step before it.
    pub undo: Option<Undo>,
}

/// The proxy's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sidecar {
    /// What makes it, in order.
    pub steps: Vec<Step>,
    /// What starts it; its standard input is its lifeline, its standard output the audit.
    pub start: Argv,
    /// Where the proxy listens.
    pub listens: SocketAddr,
}

/// The server's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// What makes it.
    pub create: Step,
    /// What starts it, with the client's standard input, output and error.
    pub start: Argv,
}

/// What is there for the doctor alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Another container on the outer network, as somebody else's would be, and what answers there.
    pub neighbour: Sidecar,
    /// Asks where that is.
    pub locate: Argv,
    /// Runs the probe inside the proxy's container.
    pub inside_proxy: Argv,
    /// Where the internal network has its gateway, where it has one.
    pub gateway: Ipv4Addr,
    /// The server's own address.
    pub server: Ipv4Addr,
}

/// A launch, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What makes the networks; at once.
    pub networks: Vec<Step>,
    /// The proxy's container, where there is a network.
    pub sidecar: Option<Sidecar>,
    /// The server's container.
    pub workload: Workload,
    /// What the doctor needs around them, where there is a network.
    pub surroundings: Option<Surroundings>,
    /// What the user must know beside it.
    pub notes: Vec<String>,
    /// What it runs.
    pub inmate: Inmate,
    /// Which networks it asks for.
    pub subnets: Subnets,
}

/// Everything a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// What is to be launched.
    pub spec: &'a LaunchSpec,
    /// By which runtime.
    pub runtime: &'a RuntimeFacts,
    /// The server's image.
    pub image: &'a ImageFacts,
    /// The empty image: its id, or its name while it is still to be made.
    pub empty_image: &'a str,
    /// The private copy of our static program.
    pub program: &'a str,
    /// A private file with what `/etc/hosts` is to hold.
    pub hosts_file: &'a str,
    /// A private file with what `/etc/resolv.conf` is to hold.
    pub resolver_file: &'a str,
    /// Which launch this is.
    pub run: &'a RunId,
    /// Whose launch this is.
    pub owner: &'a Owner,
    /// The user and group that launch.
    pub user: (u32, u32),
    /// Which networks to ask for.
    pub subnets: Subnets,
    /// What runs in the server's container.
    pub inmate: Inmate,
}

/// What runs in the server's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inmate {
    /// The server.
    Server,
    /// Our own probe, in its place, with everything else as it is for the server.
    Probe,
}

/// Which networks to ask for: another choice each time one is taken already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subnets {
    /// How many choices were taken already.
    pub taken: u8,
    /// Whether the daemon's own pools are used up, so that the outer one is chosen too.
    pub is_outer_ours: bool,
}

impl Subnets {
    /// How many choices are tried before giving up.
    pub const TRIES: u8 = 16;

    fn choose(self, run: &RunId, range: Ipv4Net) -> Ipv4Net {
        let count = u64::from(u32::MAX >> range.prefix_len()).div_ceil(1 << (32 - BITS));
        let index = run.number().wrapping_add(u64::from(self.taken) * 97) % count;
        let offset = u32::try_from(index << (32 - BITS)).unwrap_or_default();
        let base = u32::from(range.network()) | offset;
        Ipv4Net::new(Ipv4Addr::from(base), BITS).unwrap_or(range)
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A folder that cannot be given.
    #[error(
        "the image asks for a volume at `{}`, where nothing can be mounted; the image must be made \
         without it", .0.escape_default()
    )]
    Volume(String),
    /// Too many folders.
    #[error("the image asks for {0} volumes, and {MAX_VOLUMES} is the most; each costs memory")]
    Volumes(usize),
    /// An image for another machine.
    #[error(
        "the image is for {image}, and {runtime} runs {here} here; pull the one for {here}, it has \
         another digest"
    )]
    Architecture {
        /// The image's architecture.
        image: String,
        /// The runtime.
        runtime: RuntimeKind,
        /// The machine's architecture.
        here: String,
    },
    /// Our own files are where a runtime cannot mount them from.
    #[error(
        "`{0}`: a runtime cannot take `,`, `:`, `\"` or `\\` in a path; set XDG_CACHE_HOME to another \
         folder"
    )]
    FilePath(String),
}

impl Plan {
    /// Makes the plan of a launch.
    pub fn new(scene: &Scene<'_>) -> Result<Self, PlanError> {
        let image = &scene.image.architecture;
        if !image.is_empty() && *image != scene.runtime.architecture {
            return Err(PlanError::Architecture {
                image: image.clone(),
                runtime: scene.runtime.kind,
                here: scene.runtime.architecture.clone(),
            });
        }
        for file in [scene.program, scene.hosts_file, scene.resolver_file] {
            if file.contains([',', ':', '"', '\\']) {
                return Err(PlanError::FilePath(file.to_owned()));
            }
        }
        let addresses = scene.spec.has_network().then(|| Addresses::of(scene));
        Ok(Self {
            networks: addresses.map_or_else(Vec::new, |addresses| {
                vec![scene.inner_network(addresses.inner), scene.outer_network()]
            }),
            sidecar: addresses.map(|addresses| scene.sidecar(addresses)),
            workload: scene.workload(addresses)?,
            surroundings: match scene.inmate {
                Inmate::Server => None,
                Inmate::Probe => addresses.map(|addresses| scene.surroundings(addresses)),
            },
            notes: scene.notes(),
            inmate: scene.inmate,
            subnets: scene.subnets,
        })
    }

    /// Every step, in the order of the text.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        let sidecar = self.sidecar.iter().flat_map(|sidecar| &sidecar.steps);
        let surroundings = self.surroundings.iter();
        self.networks
            .iter()
            .chain(sidecar)
            .chain([&self.workload.create])
            .chain(surroundings.flat_map(|surroundings| &surroundings.neighbour.steps))
    }

    /// What takes everything back: groups one after the other, each of them at once.
    pub fn undo(&self) -> [Vec<Undo>; 2] {
        let of = |steps: &[&Step]| steps.iter().filter_map(|step| step.undo.clone()).collect();
        let networks: Vec<&Step> = self.networks.iter().collect();
        let containers: Vec<&Step> = self.steps().skip(networks.len()).collect();
        // A network with a container in it cannot be removed.
        [of(&containers), of(&networks)]
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "# note: {note}")?;
        }
        for step in self.steps() {
            writeln!(f, "# {}", step.title)?;
            write!(f, "{}", step.argv)?;
        }
        if let Some(sidecar) = &self.sidecar {
            writeln!(
                f,
                "# start the proxy, and wait until it listens on {}",
                sidecar.listens
            )?;
            write!(f, "{}", sidecar.start)?;
        }
        writeln!(f, "# start the server")?;
        write!(f, "{}", self.workload.start)?;
        for undo in self.undo().iter().flatten() {
            writeln!(f, "# at the end")?;
            write!(f, "{}", undo.remove)?;
        }
        Ok(())
    }
}

/// The addresses on the internal network.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    inner: Ipv4Net,
    gateway: Ipv4Addr,
    proxy: Ipv4Addr,
    server: Ipv4Addr,
}

impl Addresses {
    fn of(scene: &Scene<'_>) -> Self {
        let inner = scene.subnets.choose(scene.run, INNER);
        let at = |offset| Ipv4Addr::from(u32::from(inner.network()) + offset);
        // The first is the gateway's, where there is one.
        Self {
            inner,
            gateway: at(1),
            proxy: at(2),
            server: at(3),
        }
    }

    fn listens(self) -> SocketAddr {
        SocketAddr::V4(SocketAddrV4::new(self.proxy, PROXY_PORT))
    }
}

/// The names of what a launch makes.
impl Scene<'_> {
    fn named(&self, part: &str) -> String {
        format!("strait-{}-{}-{part}", self.spec.name(), self.run)
    }

    fn inner(&self) -> String {
        self.named("in")
    }

    fn outer(&self) -> String {
        self.named("out")
    }

    fn proxy(&self) -> String {
        self.named("proxy")
    }

    fn server(&self) -> String {
        self.named("server")
    }

    fn neighbour(&self) -> String {
        self.named("neighbour")
    }

    fn argv(&self, words: &[&str]) -> Argv {
        Argv::of(&self.runtime.program, words)
    }

    fn is(&self, kind: RuntimeKind) -> bool {
        self.runtime.kind == kind
    }
}

/// The steps.
impl Scene<'_> {
    fn labelled(&self, argv: Argv) -> Argv {
        argv.set("--label", format_args!("{RUN_LABEL}={}", self.run))
            .set("--label", format_args!("{OWNER_LABEL}={}", self.owner))
            .set(
                "--label",
                format_args!("{SERVER_LABEL}={}", self.spec.name()),
            )
    }

    fn inner_network(&self, subnet: Ipv4Net) -> Step {
        let argv = self.labelled(self.argv(&["network", "create", "--internal"]));
        let argv = argv.set("--subnet", subnet);
        let argv = match self.runtime.kind {
            // Without DNS there is no gateway either: the bridge has no address on the host.
            RuntimeKind::Podman => argv.flag("--disable-dns"),
            RuntimeKind::Docker => {
                let argv = argv.set("--opt", "com.docker.network.bridge.inhibit_ipv4=true");
                // Older daemons take it and ignore it, which must not look like isolation.
                if self.runtime.version >= ISOLATED_GATEWAY {
                    argv.set(
                        "--opt",
                        "com.docker.network.bridge.gateway_mode_ipv4=isolated",
                    )
                } else {
                    argv
                }
            }
        };
        self.network("make the internal network", argv, self.inner())
    }

    fn outer_network(&self) -> Step {
        let mut argv = self.labelled(self.argv(&["network", "create"]));
        if self.is(RuntimeKind::Podman) {
            argv = argv.flag("--disable-dns");
        }
        if self.subnets.is_outer_ours {
            argv = argv.set("--subnet", self.subnets.choose(self.run, OUTER));
        }
        self.network(
            "make the outer network, for the proxy alone",
            argv,
            self.outer(),
        )
    }

    fn network(&self, title: &'static str, argv: Argv, name: String) -> Step {
        let remove = self.argv(&["network", "rm"]);
        let remains = self.argv(&["network", "ls", "--quiet"]);
        let remains = remains.set("--filter", format_args!("label={RUN_LABEL}={}", self.run));
        Step {
            title,
            argv: argv.operand(name.clone()),
            undo: Some(Undo {
                remove: remove.operand(name),
                remains,
            }),
        }
    }

    fn sidecar(&self, addresses: Addresses) -> Sidecar {
        let argv = self
            .ours(&self.proxy(), "proxy")
            // In two networks, and a container forwards packets unless told otherwise.
            .set("--sysctl", "net.ipv4.ip_forward=0");
        let argv = self.with_our_program(argv);
        let argv = match self.runtime.kind {
            RuntimeKind::Podman => argv
                .set(
                    "--network",
                    format_args!("{}:ip={}", self.inner(), addresses.proxy),
                )
                .set("--network", self.outer()),
            RuntimeKind::Docker => argv.set("--network", self.outer()),
        };
        let argv = Self::without_proxy_variables(argv)
            .operand(self.empty_image)
            .operand("proxy")
            .operand(format!("--name={}", self.spec.name()))
            .operand(format!("--listen={}", addresses.listens()));
        let policy = self.spec.policy();
        let hosts = policy.rules().iter().map(|rule| format!("--allow={rule}"));
        let networks = policy.networks().iter();
        let networks = networks.map(|network| format!("--allow-net={network}"));
        let resolver = self.spec.parts().resolver.iter();
        let resolver = resolver.map(|resolver| format!("--resolver={resolver}"));
        let argv = hosts
            .chain(networks)
            .chain(resolver)
            .fold(argv, Argv::operand);

        let mut steps = vec![self.container("make the proxy's container", argv, &self.proxy())];
        if self.is(RuntimeKind::Docker) {
            // Two networks at once need docker 25 on both sides.
            let argv = self
                .argv(&["network", "connect"])
                .set("--ip", addresses.proxy);
            steps.push(Step {
                title: "put the proxy into the internal network",
                argv: argv.operand(self.inner()).operand(self.proxy()),
                undo: None,
            });
        }
        Sidecar {
            steps,
            start: self.start(&self.proxy()),
            listens: addresses.listens(),
        }
    }

    fn surroundings(&self, addresses: Addresses) -> Surroundings {
        let argv = self.with_our_program(self.ours(&self.neighbour(), "neighbour"));
        let argv = argv.set("--network", self.outer());
        let listens = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PROXY_PORT));
        let argv = Self::without_proxy_variables(argv)
            .operand(self.empty_image)
            .operand("proxy")
            .operand(format!("--listen={listens}"));
        let steps = vec![self.container("make another container", argv, &self.neighbour())];
        Surroundings {
            neighbour: Sidecar {
                steps,
                start: self.start(&self.neighbour()),
                listens,
            },
            locate: self
                .argv(&["container", "inspect"])
                .operand(self.neighbour()),
            inside_proxy: self
                .argv(&["exec", "--interactive"])
                .operand(self.proxy())
                .operand(SIDECAR_PROGRAM)
                .operand("probe"),
            gateway: addresses.gateway,
            server: addresses.server,
        }
    }

    /// A container from the empty image.
    fn ours(&self, name: &str, hostname: &str) -> Argv {
        self.confined(name)
            .set("--hostname", hostname)
            .set("--user", NOBODY)
            .set("--workdir", "/")
            .set("--entrypoint", SIDECAR_PROGRAM)
    }

    fn with_our_program(&self, argv: Argv) -> Argv {
        let argv = self.limited(argv, SIDECAR_MEMORY, SIDECAR_PROCESSES);
        self.with_file(argv, self.program, SIDECAR_PROGRAM)
    }

    fn workload(&self, addresses: Option<Addresses>) -> Result<Workload, PlanError> {
        let parts = self.spec.parts();
        let argv = self.confined(&self.server()).set("--hostname", "server");
        let argv = self.limited(argv, parts.limits.memory_bytes(), parts.limits.processes());
        // No name is asked for by this container: what it may reach, the proxy resolves. podman takes no
        // word about DNS for a container without a network.
        let argv = match (self.runtime.kind, addresses) {
            (RuntimeKind::Podman, None) => argv,
            (RuntimeKind::Podman, Some(_)) => argv.set("--dns", "none"),
            (RuntimeKind::Docker, _) => argv.set("--dns", "127.0.0.1"),
        };
        let argv = match self.runtime.kind {
            // It would copy the host's, with the host's own address.
            RuntimeKind::Podman => self.with_file(argv, self.hosts_file, "/etc/hosts"),
            RuntimeKind::Docker => self.with_file(argv, self.resolver_file, "/etc/resolv.conf"),
        };
        let argv = match addresses {
            None => Self::without_proxy_variables(argv.set("--network", "none")),
            Some(addresses) => {
                let argv = match self.runtime.kind {
                    RuntimeKind::Podman => argv.set(
                        "--network",
                        format_args!("{}:ip={}", self.inner(), addresses.server),
                    ),
                    RuntimeKind::Docker => argv
                        .set("--network", self.inner())
                        .set("--ip", addresses.server),
                };
                let proxy = format!("http://{}", addresses.listens());
                let argv = PROXY_VARIABLES.iter().fold(argv, |argv, name| {
                    argv.set("--env", format_args!("{name}={proxy}"))
                });
                let argv = OTHER_PROXY_VARIABLES.iter().fold(argv, |argv, name| {
                    argv.set("--env", format_args!("{name}="))
                });
                ["NO_PROXY", "no_proxy"]
                    .iter()
                    .fold(argv, |argv, name| {
                        argv.set("--env", format_args!("{name}={NO_PROXY}"))
                    })
                    .set("--env", "NODE_USE_ENV_PROXY=1")
            }
        };
        // The value comes from the runtime's environment: a command line is everybody's to read.
        let variables = parts.secret.iter().chain(&parts.env);
        let argv = variables.fold(argv, |argv, name| argv.set("--env", name.as_str()));
        let argv = self.with_folders(argv)?;
        let argv = match self.inmate {
            Inmate::Server => self.running_the_server(argv),
            Inmate::Probe => self
                .with_file(argv, self.program, PROBE_PROGRAM)
                .set("--entrypoint", PROBE_PROGRAM)
                .operand(&self.image.id)
                .operand("probe"),
        };
        Ok(Workload {
            create: self.container("make the server's container", argv, &self.server()),
            start: self.start(&self.server()),
        })
    }

    fn running_the_server(&self, argv: Argv) -> Argv {
        let parts = self.spec.parts();
        let argv = match &parts.command {
            Some(command) => argv.set("--entrypoint", self.entrypoint(command)),
            None => argv,
        };
        let argv = argv.operand(&self.image.id);
        let command = parts.command.iter().flatten().skip(1);
        let words = command.chain(&parts.arguments).cloned();
        words.fold(argv, Argv::operand)
    }

    fn container(&self, title: &'static str, argv: Argv, name: &str) -> Step {
        let remove = self.argv(&["rm", "--force", "--volumes"]);
        let remove = match self.runtime.kind {
            RuntimeKind::Podman => remove.flag("--ignore").set("--time", 0),
            RuntimeKind::Docker => remove,
        };
        let remains = self.argv(&["ps", "--all", "--quiet"]);
        Step {
            title,
            argv,
            undo: Some(Undo {
                remove: remove.operand(name),
                // Anchored: to the runtimes this is a pattern.
                remains: remains.set("--filter", format_args!("name=^{name}$")),
            }),
        }
    }

    fn start(&self, name: &str) -> Argv {
        let argv = self.argv(&["start", "--attach", "--interactive"]);
        let argv = match self.runtime.kind {
            // Or else two bytes of the client's, in a row, would detach it. Signals are ours to send.
            RuntimeKind::Podman => argv.set("--detach-keys", "").set("--sig-proxy", "false"),
            RuntimeKind::Docker => argv,
        };
        argv.operand(name)
    }
}

/// What the containers have in common.
impl Scene<'_> {
    fn confined(&self, name: &str) -> Argv {
        let argv = self
            .argv(&["create", "--interactive", "--rm"])
            .set("--name", name);
        let argv = self
            .labelled(argv)
            .set("--pull", "never")
            .set("--log-driver", "none")
            .flag("--read-only")
            .set("--cap-drop", "ALL")
            .set("--security-opt", "no-new-privileges")
            .set("--ipc", "private")
            .set("--cgroupns", "private")
            // It is run by the runtime, with what the image's author wrote.
            .flag("--no-healthcheck");
        let argv = match self.runtime.kind {
            RuntimeKind::Podman => argv
                .set("--http-proxy", "false")
                .set("--read-only-tmpfs", "false")
                .set("--image-volume", "ignore")
                .set("--sdnotify", "ignore")
                .set("--systemd", "false"),
            RuntimeKind::Docker => argv,
        };
        if !self.runtime.has_ipv6 {
            return argv;
        }
        // The bridge has a link-local address too, and with it whatever listens on the host.
        argv.set("--sysctl", "net.ipv6.conf.all.disable_ipv6=1")
            .set("--sysctl", "net.ipv6.conf.default.disable_ipv6=1")
    }

    fn limited(&self, argv: Argv, memory: u64, processes: u32) -> Argv {
        let limits = self.runtime.limits;
        let argv = if limits.memory {
            // The same with swap: there is none beside it.
            argv.set("--memory", memory).set("--memory-swap", memory)
        } else {
            argv
        };
        if limits.processes {
            argv.set("--pids-limit", processes)
        } else {
            argv
        }
    }

    /// One of our own files, to be read.
    fn with_file(&self, argv: Argv, file: &str, target: &str) -> Argv {
        if self.runtime.has_selinux {
            // The file is ours alone, so its label is ours to change; `--mount` cannot.
            return argv.set("--volume", format_args!("{file}:{target}:ro,z"));
        }
        let mount = format!("type=bind,source={file},target={target},readonly");
        argv.set("--mount", mount)
    }

    /// docker's client puts its own configuration's proxies into every container, and an image may
    /// name some too.
    fn without_proxy_variables(argv: Argv) -> Argv {
        let names = PROXY_VARIABLES.iter().chain(&OTHER_PROXY_VARIABLES);
        names
            .chain(&["NO_PROXY", "no_proxy"])
            .fold(argv, |argv, name| {
                argv.set("--env", format_args!("{name}="))
            })
    }

    fn with_folders(&self, argv: Argv) -> Result<Argv, PlanError> {
        let parts = self.spec.parts();
        let mut argv = argv.set("--tmpfs", self.tmpfs("/tmp", false));
        for volume in self.volumes(&parts.mounts)? {
            argv = argv.set("--tmpfs", self.tmpfs(volume, true));
        }
        for mount in &parts.mounts {
            let (source, target) = (mount.source(), mount.target());
            let value = format!("type=bind,source={source},target={target}");
            argv = argv.set(
                "--mount",
                match mount.access() {
                    Access::Read => value + ",readonly",
                    Access::Write => value,
                },
            );
        }
        Ok(if parts.mounts.is_empty() {
            argv
        } else {
            self.as_owner_of_the_folders(argv)
        })
    }

    /// Without capabilities not even root may pass over a folder's permissions: the server must be the
    /// user that may.
    fn as_owner_of_the_folders(&self, argv: Argv) -> Argv {
        let (user, group) = self.user;
        match (self.runtime.is_rootless, user) {
            (true, _) => argv.set("--user", "0:0"),
            (false, 0) => argv,
            (false, _) => argv.set("--user", format_args!("{user}:{group}")),
        }
    }

    fn tmpfs(&self, target: &str, keeps_content: bool) -> String {
        let copies = match (self.runtime.kind, keeps_content) {
            (RuntimeKind::Podman, true) => ",tmpcopyup",
            (RuntimeKind::Podman, false) => ",notmpcopyup",
            (RuntimeKind::Docker, _) => "",
        };
        format!("{target}:rw,nosuid,nodev,noexec,size={TMPFS_SIZE},mode=1777{copies}")
    }

    /// The folders the image wants to write to. A volume would be a folder of the host's without a
    /// limit; they are memory with one.
    fn volumes<'v>(&'v self, mounts: &[Mount]) -> Result<Vec<&'v str>, PlanError> {
        let mut wanted = Vec::new();
        for volume in &self.image.config.volumes {
            let path = volume.trim_end_matches('/');
            let is_plain = path.starts_with('/')
                && !path
                    .chars()
                    .any(|letter| letter.is_control() || ",:\"\\".contains(letter))
                && path
                    .split('/')
                    .skip(1)
                    .all(|part| !matches!(part, "" | "." | ".."));
            let is_in = |folder: &str| {
                path.strip_prefix(folder)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if !is_plain || KERNEL_FOLDERS.iter().any(|folder| is_in(folder)) {
                return Err(PlanError::Volume(volume.clone()));
            }
            // What the user put there comes first, and nothing is put into it.
            if !is_in("/tmp") && !mounts.iter().any(|mount| is_in(mount.target())) {
                wanted.push(path);
            }
        }
        if wanted.len() > MAX_VOLUMES {
            return Err(PlanError::Volumes(wanted.len()));
        }
        Ok(wanted)
    }

    /// podman reads a value that begins with `[` as a list; docker never does.
    fn entrypoint(&self, command: &[String]) -> String {
        let program = command.first().map_or("", String::as_str);
        match self.runtime.kind {
            RuntimeKind::Podman => serde_json::json!([program]).to_string(),
            RuntimeKind::Docker => program.to_owned(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let limits = self.runtime.limits;
        let missing = [(limits.memory, "memory"), (limits.processes, "processes")];
        let missing: Vec<&str> = missing
            .iter()
            .filter_map(|(is_in_force, name)| (!is_in_force).then_some(*name))
            .collect();
        let mut notes = Vec::new();
        if !missing.is_empty() {
            notes.push(format!(
                "no limit on {} is in force: {} has no control group for it here",
                missing.join(" and "),
                self.runtime.kind
            ));
        }
        if self.runtime.has_selinux && !self.spec.parts().mounts.is_empty() {
            // Relabelling takes them from whatever else uses them: the user's to decide.
            notes.push(
                "SELinux is enforcing, and the mounts keep their labels; if the server may not read \
                 them, `chcon -Rt container_file_t FOLDER` lets containers"
                    .to_owned(),
            );
        }
        notes
    }
}

#[cfg(test)]
mod tests;
