//! The command lines of `strait launch` and what belongs to it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use ipnet::IpNet;

use strait::document;
use strait::launch::snippet::ClientKind;
use strait::launch::spec::{
    EnvName, ImageRef, LaunchSpec, Mount, MountRequest, ServerName, SpecError, SpecParts,
    WorkloadLimits,
};
use strait::launch::survey::RuntimeChoice;
use strait::rule::Rule;

use super::{parse_duration, parse_resolver};

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
#[command(group = ArgGroup::new("which").args(["server", "image"]))]
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
    /// MiB of memory it may use, swap included; 1024 otherwise
    #[arg(long, value_name = "MIB", requires = "image")]
    memory: Option<u64>,
    /// Processes and threads it may have; 256 otherwise
    #[arg(long, value_name = "COUNT", requires = "image")]
    processes: Option<u32>,
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
        let limits = WorkloadLimits::of(self.memory, self.processes);
        let parts = limits.map(|limits| SpecParts {
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

const DOCTOR_EXAMPLE: &str = "\
Examples:
  strait doctor
  strait doctor notion --json

Without a server it looks from an empty image that may reach one made-up host.
Exit codes: 0 when all that must be closed is closed and all that must work
works, 1 when something is not, 125 when it could not look, 2 for a usage
error.";

/// Options of `strait doctor`.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLE)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
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
