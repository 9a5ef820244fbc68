//! The command line: what the user wrote, and what it means. Nothing here touches the machine.

#[cfg(feature = "launch")]
mod launch;
#[cfg(feature = "proxy")]
mod proxy;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

#[cfg(feature = "launch")]
pub(crate) use self::launch::*;
#[cfg(feature = "proxy")]
pub(crate) use self::proxy::*;

/// The longest time a limit may be set to: more is a mistake, and clocks overflow.
const MAX_DURATION: Duration = Duration::from_hours(365 * 24);
/// The port of DNS (RFC 1035 §4.2).
const DNS_PORT: u16 = 53;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("STRAIT_COMMIT"), ")");

const EXAMPLE: &str = "\
Example:
  strait proxy --allow api.example.com --allow www.example.com:80
and in another terminal
  curl -x http://127.0.0.1:3128 https://api.example.com/";

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
    #[cfg(feature = "proxy")]
    Proxy(Box<ProxyArgs>),
    /// Explain what the policy says of destinations
    #[cfg(feature = "proxy")]
    Check(CheckArgs),
    /// Launch an MCP server in a sandbox, with its standard streams as ours
    #[cfg(feature = "launch")]
    Launch(Box<LaunchArgs>),
    /// Pull the image of a configured server; nothing else ever pulls
    #[cfg(feature = "launch")]
    Pull(PullArgs),
    /// Show the configured servers, and whether their images are here
    #[cfg(feature = "launch")]
    List(ListArgs),
    /// Prove that a server's sandbox is closed, from inside
    #[cfg(feature = "launch")]
    Doctor(Box<DoctorArgs>),
    /// Look at a sandbox from inside; started by `strait doctor` itself
    #[cfg(feature = "launch")]
    #[command(hide = true)]
    Probe,
    /// Remove what dead launches left
    #[cfg(feature = "launch")]
    Sweep(SweepArgs),
    /// Print what makes an MCP client launch a configured server
    #[cfg(feature = "launch")]
    Config(SnippetArgs),
    /// Take back what a launch that was killed has made; started by `strait launch` itself
    #[cfg(feature = "launch")]
    #[command(hide = true)]
    Reap,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
