//! The command line: what the user wrote, and what it means. Nothing here touches the machine.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{ArgGroup, Args, Parser, Subcommand};
use clap_complete::Shell;
use ipnet::IpNet;
use thiserror::Error;

use strait::destination::Destination;
use strait::document::{self, ConfigurationError};
use strait::head::HeadLimits;
use strait::launch::snippet::ClientKind;
use strait::launch::spec::{
    EnvName, ImageRef, LaunchSpec, Mount, MountRequest, ServerName, SpecError, SpecParts,
    WorkloadLimits,
};
use strait::launch::survey::RuntimeChoice;
use strait::policy::Policy;
use strait::proxy::{Limits, ProxyConfig};
use strait::refusal::Malformed;
use strait::rule::Rule;

/// The longest time a limit may be set to: more is a mistake, and clocks overflow.
const MAX_DURATION: Duration = Duration::from_hours(365 * 24);
/// The port of DNS (RFC 1035 §4.2).
const DNS_PORT: u16 = 53;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("STRAIT_COMMIT"), ")");

const DOCUMENT_HELP: &str = "A policy document to add: \
    {\"allow\": [\"HOST[:PORT]\"], \"allow_net\": [\"CIDR\"]}";

const EXAMPLE: &str = "\
Example:
  strait proxy --allow api.example.com --allow www.example.com:80
and in another terminal
  curl -x http://127.0.0.1:3128 https://api.example.com/";

const PROXY_EXAMPLE: &str = "\
Example:
  strait proxy --allow api.example.com --allow '[2606:4700::1111]:443'
and in another terminal
  curl -x http://127.0.0.1:3128 https://api.example.com/

Standard output carries one JSON line per attempt; standard error says
`listening on ADDRESS` once the proxy is ready. Exit codes: 0 when its
standard input ended or a signal stopped it, 1 when it could not go on,
2 when it was started wrongly. In the background it needs --no-lifeline. Times are written 250ms, 15s, 10m or 2h.";

const CHECK_EXAMPLE: &str = "\
Example:
  strait check --allow api.example.com api.example.com:443 evil.com:443

Exit codes: 0 when all are allowed, 1 when one is refused, 2 for a usage
error.";

/// A narrow passage: an untrusted program reaches exactly the hosts it was given,
/// and every attempt leaves a line.
#[derive(Debug, Parser)]
#[command(name = "strait", version = VERSION, after_help = EXAMPLE, max_term_width = 80)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the filtering forward proxy
    Proxy(Box<ProxyArgs>),
    /// Explain what the policy says of destinations
    Check(CheckArgs),
    /// Launch an MCP server in a sandbox, with its standard streams as ours
    Launch(Box<LaunchArgs>),
    /// Pull the image of a configured server; nothing else ever pulls
    Pull(PullArgs),
    /// Show the configured servers, and whether their images are here
    List(ListArgs),
    /// Remove what dead launches left
    Sweep(SweepArgs),
    /// Print what makes an MCP client launch a configured server
    Config(SnippetArgs),
    /// Take back what a launch that was killed has made; started by `strait launch` itself
    #[command(hide = true)]
    Reap,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Where the policy comes from.
#[derive(Debug, Args)]
#[command(next_help_heading = "What may be reached")]
pub(crate) struct PolicyArgs {
    /// A host that may be reached: HOST for ports 443 and 80, or HOST:PORT.
    /// Exact, no wildcards; repeat for more
    #[arg(long, value_name = "HOST[:PORT]", value_parser = Rule::parse)]
    allow: Vec<Rule>,
    /// A network whose addresses may be reached although they are not public.
    /// Loopback and link-local stay closed; repeat for more
    #[arg(long, value_name = "CIDR", value_parser = document::parse_network)]
    allow_net: Vec<IpNet>,
    /// A policy document to add
    #[arg(long, value_name = "FILE", help = DOCUMENT_HELP)]
    pub(crate) policy: Option<PathBuf>,
}

impl PolicyArgs {
    /// The policy of the flags and of the document, if there is one.
    pub(crate) fn compile(self, document: Option<&str>) -> Result<Policy, PolicyArgsError> {
        let parsed = document.map(document::parse).transpose();
        let (mut rules, mut networks) = parsed
            .map_err(ConfigurationError::from)?
            .unwrap_or_default();
        let listed: HashSet<&Rule> = rules.iter().collect();
        if let Some(rule) = self.allow.iter().find(|rule| listed.contains(rule)) {
            return Err(PolicyArgsError::InBoth(rule.to_string()));
        }
        if let Some(network) = self.allow_net.iter().find(|net| networks.contains(net)) {
            return Err(PolicyArgsError::InBoth(network.to_string()));
        }
        rules.extend(self.allow);
        networks.extend(self.allow_net);
        Ok(Policy::new(rules, networks).map_err(ConfigurationError::from)?)
    }
}

/// Why the flags, with the document, make no policy.
#[derive(Debug, Error)]
pub(crate) enum PolicyArgsError {
    /// One of the two, or what they hold together.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// An entry or a network that both list.
    #[error("`{0}` stands in the policy document and in the flags; remove one of the two")]
    InBoth(String),
}

/// Options of `strait proxy`.
#[derive(Debug, Args)]
#[command(after_help = PROXY_EXAMPLE)]
pub(crate) struct ProxyArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:3128", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,
    /// A label for the `server` field of every audit line
    #[arg(long, value_name = "LABEL", value_parser = parse_label)]
    name: Option<String>,
    /// The name server to ask, in place of those of /etc/resolv.conf
    #[arg(long, value_name = "IP[:PORT]", value_parser = parse_resolver)]
    pub(crate) resolver: Option<SocketAddr>,
    /// Write a second line when what was let through ends
    #[arg(long)]
    log_close: bool,
    /// Go on when standard input ends
    #[arg(long)]
    pub(crate) no_lifeline: bool,
    #[command(flatten)]
    limits: LimitArgs,
}

impl ProxyArgs {
    /// The configuration, and what is needed beside it.
    pub(crate) fn compile(
        self,
        document: Option<&str>,
        notice: fn(std::fmt::Arguments<'_>),
    ) -> Result<ProxyConfig, PolicyArgsError> {
        Ok(ProxyConfig {
            policy: self.policy.compile(document)?,
            limits: self.limits.compile(),
            name: self.name,
            log_close: self.log_close,
            clock: SystemTime::now,
            notice,
        })
    }
}

/// The limits, each a flag.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// For a request head to arrive
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_positive)]
    header_timeout: Duration,
    /// For the next request on a connection to begin
    #[arg(long, value_name = "TIME", default_value = "75s", value_parser = parse_positive)]
    keepalive_timeout: Duration,
    /// The largest head, of a request or a response
    #[arg(long, value_name = "BYTES", default_value = "65536",
          value_parser = clap::value_parser!(u32).range(8192..=1_048_576))]
    max_head_bytes: u32,
    /// The most header fields in a head
    #[arg(long, value_name = "COUNT", default_value = "100",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_headers: u16,
    /// For a name to be resolved
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_positive)]
    dns_timeout: Duration,
    /// For an origin to be connected, over all its addresses
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive)]
    connect_timeout: Duration,
    /// Between attempts at one address and the next (happy eyeballs)
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_positive)]
    connect_delay: Duration,
    /// For an origin's response to begin, without a byte moving
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_positive)]
    response_timeout: Duration,
    /// For a tunnel, or a message's content, without a byte moving; 0 is for ever
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = parse_duration)]
    tunnel_idle_timeout: Duration,
    /// For a tunnel that is open one way only, without a byte moving
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_positive)]
    half_close_timeout: Duration,
    /// Clients at a time; more are turned away with 503
    #[arg(long, value_name = "COUNT", default_value = "1024",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_connections: u32,
    /// For what is open to finish, after SIGTERM, SIGINT or SIGHUP
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    grace: Duration,
}

impl LimitArgs {
    fn compile(self) -> Limits {
        let size = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Limits {
            head_read: self.header_timeout,
            keep_alive: self.keepalive_timeout,
            head: HeadLimits {
                bytes: size(self.max_head_bytes),
                fields: usize::from(self.max_headers),
            },
            dns: self.dns_timeout,
            connect: self.connect_timeout,
            attempt_delay: self.connect_delay,
            response: self.response_timeout,
            idle: Some(self.tunnel_idle_timeout).filter(|limit| !limit.is_zero()),
            half_closed: self.half_close_timeout,
            connections: size(self.max_connections),
            grace: self.grace,
        }
    }
}

const LAUNCH_EXAMPLE: &str = "\
Examples:
  strait launch --image ghcr.io/example/mcp-notion@sha256:DIGEST \\
    --allow api.notion.com --secret NOTION_TOKEN
  strait launch notion

Standard input and output are the server's, byte for byte. Exit codes: the
server's own; 126 and 127 when its program cannot be started, 125 when it could
not be launched or its proxy ended, 2 for a usage error.";

/// Which server, and with what.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["server", "image"]))]
pub(crate) struct SandboxArgs {
    /// A server of the configuration
    #[arg(value_name = "NAME", value_parser = ServerName::parse)]
    pub(crate) server: Option<ServerName>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) unconfigured: UnconfiguredArgs,
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
}

/// The configuration.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The configuration; `$XDG_CONFIG_HOME/strait/strait.toml` otherwise
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// The runtime and our own program in it.
#[derive(Debug, Args)]
#[command(next_help_heading = "The runtime")]
pub(crate) struct RuntimeArgs {
    /// podman, docker, or the absolute path of one; the first that is found otherwise
    #[arg(long, value_name = "RUNTIME", value_parser = RuntimeChoice::parse)]
    pub(crate) runtime: Option<RuntimeChoice>,
    /// The static program for the proxy's container; this one otherwise, or one beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) proxy_binary: Option<PathBuf>,
}

/// A server that is in no configuration.
#[derive(Debug, Args)]
#[command(next_help_heading = "A server without configuration")]
pub(crate) struct UnconfiguredArgs {
    /// Its image, by its digest: NAME@sha256:DIGEST, or the id of one that is here
    #[arg(long, value_name = "IMAGE", value_parser = ImageRef::parse)]
    image: Option<ImageRef>,
    /// Its name, in its containers' names and in the audit; the image's otherwise
    #[arg(long, value_name = "NAME", value_parser = ServerName::parse, requires = "image")]
    name: Option<ServerName>,
    /// A host it may reach: HOST for ports 443 and 80, or HOST:PORT. Exact, no
    /// wildcards; repeat for more. Without any it has no network at all
    #[arg(long, value_name = "HOST[:PORT]", value_parser = Rule::parse, requires = "image")]
    allow: Vec<Rule>,
    /// A network whose addresses those hosts may have although they are not public
    #[arg(long, value_name = "CIDR", value_parser = document::parse_network, requires = "image")]
    allow_net: Vec<IpNet>,
    /// The name server its proxy asks, in place of the runtime's
    #[arg(long, value_name = "IP[:PORT]", value_parser = parse_resolver, requires = "image")]
    resolver: Option<SocketAddr>,
    /// A variable of ours that it gets and that is shown nowhere; repeat for more
    #[arg(long, value_name = "VARIABLE", value_parser = EnvName::parse, requires = "image")]
    secret: Vec<EnvName>,
    /// A variable of ours that it gets as it is; repeat for more
    #[arg(long, value_name = "VARIABLE", value_parser = EnvName::parse, requires = "image")]
    env: Vec<EnvName>,
    /// The folder that the mounts are in
    #[arg(long, value_name = "FOLDER", requires = "image")]
    pub(crate) workspace: Option<PathBuf>,
    /// A folder of the workspace that it sees under /workspace: FOLDER:read or
    /// FOLDER:write; repeat for more
    #[arg(long, value_name = "FOLDER:ACCESS", value_parser = MountRequest::parse, requires = "image")]
    pub(crate) mount: Vec<MountRequest>,
    /// MiB of memory it may use, swap included
    #[arg(long, value_name = "MIB", default_value_t = WorkloadLimits::default().memory_bytes() >> 20)]
    memory: u64,
    /// Processes and threads it may have
    #[arg(long, value_name = "COUNT", default_value_t = WorkloadLimits::default().processes())]
    processes: u32,
    /// What it runs in place of the image's entrypoint
    #[arg(long, value_name = "PROGRAM", requires = "image")]
    command: Option<String>,
    /// Its arguments, after `--`
    #[arg(last = true, value_name = "ARGUMENT", requires = "image")]
    arguments: Vec<String>,
}

impl UnconfiguredArgs {
    /// The server that the flags describe; `None` where one of the configuration is meant. `mounts`
    /// are the requests, found in the workspace.
    pub(crate) fn spec(&self, mounts: Vec<Mount>) -> Option<Result<LaunchSpec, SpecError>> {
        let image = self.image.clone()?;
        let parts = WorkloadLimits::new(self.memory, self.processes).map(|limits| SpecParts {
            network: self.allow.clone(),
            allow_net: self.allow_net.clone(),
            resolver: self.resolver,
            secret: self.secret.clone(),
            env: self.env.clone(),
            mounts,
            command: self.command.clone().map(|program| vec![program]),
            arguments: self.arguments.clone(),
            limits,
        });
        let name = self.name.clone().unwrap_or_else(|| image.server_name());
        Some(parts.and_then(|parts| LaunchSpec::new(name, image, parts)))
    }
}

/// Options of `strait launch`.
#[derive(Debug, Args)]
#[command(after_help = LAUNCH_EXAMPLE)]
pub(crate) struct LaunchArgs {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// Where attempts are recorded, or `none`; `$XDG_STATE_HOME/strait/NAME.jsonl`
    /// otherwise
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
    /// For the server to end by itself, once its client has gone
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Print the plan, one argument a line, and make nothing
    #[arg(long)]
    pub(crate) print: bool,
}

/// Options of `strait pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// The server whose image is pulled
    #[arg(value_name = "NAME", value_parser = ServerName::parse)]
    pub(crate) server: ServerName,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
}

/// Options of `strait list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
}

/// Options of `strait sweep`.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) runtime: RuntimeArgs,
}

/// Options of `strait config`.
#[derive(Debug, Args)]
pub(crate) struct SnippetArgs {
    /// The client: claude-desktop, claude-code, cursor, vscode, codex, gemini or zed
    #[arg(value_name = "CLIENT", value_parser = ClientKind::parse)]
    pub(crate) client: ClientKind,
    /// The server
    #[arg(value_name = "NAME", value_parser = ServerName::parse)]
    pub(crate) server: ServerName,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Options of `strait check`.
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLE)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Resolve the names too, and check the addresses they have now
    #[arg(long)]
    pub(crate) resolve: bool,
    /// The name server to ask, in place of those of /etc/resolv.conf
    #[arg(long, value_name = "IP[:PORT]", value_parser = parse_resolver, requires = "resolve")]
    pub(crate) resolver: Option<SocketAddr>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// The destinations to explain
    #[arg(value_name = "HOST:PORT", required = true, value_parser = parse_destination)]
    pub(crate) destinations: Vec<Destination>,
}

fn parse_destination(text: &str) -> Result<Destination, String> {
    Destination::from_authority_form(text).map_err(|malformed| {
        let with_port = format!("{}:443", text.strip_suffix(':').unwrap_or(text));
        if malformed == Malformed::Port && Destination::from_authority_form(&with_port).is_ok() {
            return format!("the port is missing; write {with_port} or another port");
        }
        let reason = if malformed == Malformed::Userinfo {
            "a destination has no user name".to_owned()
        } else if malformed == Malformed::TargetForm {
            "a destination is a host and a port, not a URL".to_owned()
        } else {
            malformed.to_string()
        };
        format!("{reason}; write HOST:PORT, for example example.com:443")
    })
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address and a port to listen on; write 127.0.0.1:3128 or [::1]:3128".to_owned()
    })
}

fn parse_label(text: &str) -> Result<String, String> {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if (1..=64).contains(&text.len()) && is_plain {
        Ok(text.to_owned())
    } else {
        Err("a label is 1 to 64 letters, digits, dots, hyphens and underscores".to_owned())
    }
}

fn parse_resolver(text: &str) -> Result<SocketAddr, String> {
    let with_default = text
        .parse::<IpAddr>()
        .map(|ip| SocketAddr::new(ip, DNS_PORT));
    let server: SocketAddr = with_default.or_else(|_| text.parse()).map_err(|_| {
        "a name server is an address, not a name; write 192.0.2.53 or [::1]:53".to_owned()
    })?;
    if server.port() == 0 {
        let instead = SocketAddr::new(server.ip(), DNS_PORT);
        return Err(format!("nobody can be asked on port 0; write {instead}"));
    }
    Ok(server)
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs).ok();
    let duration = match seconds {
        Some(duration) => duration,
        None => humantime::parse_duration(text)
            .map_err(|error| format!("{error}; write 250ms, 15s, 10m or 2h"))?,
    };
    if duration > MAX_DURATION {
        return Err("more than a year is not a limit; write a shorter time".to_owned());
    }
    Ok(duration)
}

fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("this limit cannot be 0; write 250ms, 15s or 10m".to_owned()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_library() {
        let cli = Cli::try_parse_from(["strait", "proxy"]).expect("no flag is needed");
        let Command::Proxy(proxy) = cli.command else {
            panic!("not proxy")
        };
        assert_eq!(proxy.limits.compile(), Limits::default());
    }
}
