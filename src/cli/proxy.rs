//! The command lines of `strait proxy` and `strait check`.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use ipnet::IpNet;
use thiserror::Error;

use strait::destination::Destination;
use strait::document::{self, ConfigurationError};
use strait::head::HeadLimits;
use strait::policy::Policy;
use strait::proxy::{Limits, ProxyConfig};
use strait::refusal::Malformed;
use strait::rule::Rule;

use super::{parse_duration, parse_resolver};

const DOCUMENT_HELP: &str = "A policy document to add: \
    {\"allow\": [\"HOST[:PORT]\"], \"allow_net\": [\"CIDR\"]}";

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

fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("this limit cannot be 0; write 250ms, 15s or 10m".to_owned()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_library() {
        let cli = Cli::try_parse_from(["strait", "proxy"]).expect("no flag is needed");
        let Command::Proxy(proxy) = cli.command else {
            panic!("not proxy")
        };
        assert_eq!(proxy.limits.compile(), Limits::default());
    }
}
