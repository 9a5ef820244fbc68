//! `strait.toml`: the servers a user may launch, by name.
//!
//! ```toml
//! workspace = "~/project"                 # the folder the mounts are in; also per server
//! runtime = "podman"                      # or docker; the first that is found, without this
//!
//! [[server]]
//! name = "notion"
//! image = "ghcr.io/example/mcp-notion@sha256:…"
//! network = ["api.notion.com"]            # HOST[:PORT]; none is no network at all
//! secret = ["NOTION_TOKEN"]
//! mounts = ["docs:read", "out:write"]
//! ```
//!
//! A server may also have `allow_net`, `resolver`, `env`, `command`, `arguments`, `memory` (MiB) and
//! `processes`.
//!
//! Text in, values out: nothing is read from the disk. The file decides what an untrusted program
//! gets, so nothing in it is guessed: what is not known or not of the right kind stops the launch of
//! every server, with the line, the server, the key and what to write instead. What is said goes to the
//! logs of MCP clients, so it never has a variable's value that was written where its name belongs.

mod error;
mod section;
mod slip;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

pub use self::error::{ConfigError, Reason, Remedy, UnknownServer, ValueError, WhichServer};

use self::section::Section;
use super::runtime::RuntimeKind;
use super::spec::{
    EnvName, ImageRef, LaunchSpec, Mount, MountRequest, ServerName, SpecError, SpecParts,
    WorkloadLimits,
};
use crate::document;
use crate::policy::PolicyError;
use crate::rule::Rule;

/// The keys above the servers.
const TOP_KEYS: [&str; 3] = ["runtime", "server", "workspace"];
/// The keys of a server.
const SERVER_KEYS: [&str; 13] = [
    "allow_net",
    "arguments",
    "command",
    "env",
    "image",
    "memory",
    "mounts",
    "name",
    "network",
    "processes",
    "resolver",
    "secret",
    "workspace",
];
/// The port of DNS (RFC 1035 §4.2).
const DNS_PORT: u16 = 53;

/// What stands in `strait.toml`, parsed.
#[derive(Clone, Debug, Default)]
pub struct Config {
    runtime: Option<RuntimeKind>,
    servers: Vec<Server>,
}

impl Config {
    /// Parses the text of the file.
    ///
    /// 1. The text is TOML.
    /// 2. Every key is known where it stands.
    /// 3. Every value is of the right kind, and is what it stands for.
    /// 4. The values of a server go together, as [`LaunchSpec::new`] sees it.
    /// 5. No two servers have one name.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let table = section::parse(text)?;
        let top = Section::top(text, &table);
        top.check_keys(&TOP_KEYS)?;
        let runtime = top.value("runtime", parse_runtime)?;
        let workspace = top.value("workspace", WorkspaceName::parse)?;
        let mut servers: Vec<Server> = Vec::new();
        let mut lines = BTreeMap::new();
        for section in top.servers()? {
            let server = parse_server(&section, workspace.as_ref())?;
            if let Some(first) = lines.insert(server.name.clone(), section.line()) {
                let name = server.name;
                return Err(section.error(Reason::NameTwice { name, first }));
            }
            servers.push(server);
        }
        Ok(Self { runtime, servers })
    }

    /// The runtime to use; the first that is found, if there is none.
    pub fn runtime(&self) -> Option<RuntimeKind> {
        self.runtime
    }

    /// The servers, as listed.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter()
    }

    /// The server of this name.
    pub fn server(&self, name: &ServerName) -> Result<&Server, UnknownServer> {
        let found = self.servers.iter().find(|server| server.name == *name);
        found.ok_or_else(|| UnknownServer {
            name: name.clone(),
            known: self
                .servers
                .iter()
                .map(|server| server.name.clone())
                .collect(),
        })
    }
}

/// One server, parsed; its folders are not looked for yet.
#[derive(Clone, Debug)]
pub struct Server {
    name: ServerName,
    image: ImageRef,
    workspace: Option<WorkspaceName>,
    mounts: Vec<MountRequest>,
    /// Everything else, without mounts.
    parts: SpecParts,
}

impl Server {
    /// Its name.
    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// Its image.
    pub fn image(&self) -> &ImageRef {
        &self.image
    }

    /// The folder its mounts are in: its own, or that of all; there is one if there are mounts.
    pub fn workspace(&self) -> Option<&WorkspaceName> {
        self.workspace.as_ref()
    }

    /// The hosts it may reach.
    pub fn network(&self) -> &[Rule] {
        &self.parts.network
    }

    /// The folders it asks for.
    pub fn mounts(&self) -> &[MountRequest] {
        &self.mounts
    }

    /// The variables whose values must not be shown.
    pub fn secret(&self) -> &[EnvName] {
        &self.parts.secret
    }

    /// The variables passed on as they are.
    pub fn env(&self) -> &[EnvName] {
        &self.parts.env
    }

    /// What is to be launched, with the folders as `workspace::resolve` found them.
    pub fn spec(&self, mounts: Vec<Mount>) -> Result<LaunchSpec, SpecError> {
        let parts = SpecParts {
            mounts,
            ..self.parts.clone()
        };
        LaunchSpec::new(self.name.clone(), self.image.clone(), parts)
    }
}

/// A workspace as it is written: an absolute path, or one in the home folder.
///
/// A relative one would be another folder for each client, and `~me` is the shell's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceName(String);

impl WorkspaceName {
    /// Parses `/…` or `~/…`.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        if text.starts_with('/') || text.starts_with("~/") {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::Workspace(text.to_owned()))
        }
    }

    /// The path, for this home folder.
    pub fn path(&self, home: &Path) -> PathBuf {
        match self.0.strip_prefix("~/") {
            // A second slash would make the rest a path of its own.
            Some(rest) => home.join(rest.trim_start_matches('/')),
            None => PathBuf::from(&self.0),
        }
    }
}

impl fmt::Display for WorkspaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn parse_server(
    section: &Section<'_>,
    workspace: Option<&WorkspaceName>,
) -> Result<Server, ConfigError> {
    // First, so that everything after it is said of the server by its name.
    let Some(name) = section.value("name", ServerName::parse)? else {
        // It may be there, with a slip in its key.
        section.check_keys(&SERVER_KEYS)?;
        return Err(section.missing("name", "name = \"notion\""));
    };
    let section = &section.of(name.clone());
    section.check_keys(&SERVER_KEYS)?;
    let image = section
        .value("image", ImageRef::parse)?
        .ok_or_else(|| section.missing("image", "image = \"NAME@sha256:…\""))?;
    let server = Server {
        name,
        image,
        workspace: section
            .value("workspace", WorkspaceName::parse)?
            .or_else(|| workspace.cloned()),
        mounts: section.list("mounts", MountRequest::parse)?,
        parts: parse_parts(section)?,
    };
    if let (Some(mount), None) = (server.mounts.first(), &server.workspace) {
        let reason = SpecError::NoWorkspace(mount.folder().display().to_string());
        return Err(section.together("mounts", reason));
    }
    // What the parts say together does not depend on where the folders are.
    match server.spec(Vec::new()) {
        Ok(_) => Ok(server),
        Err(reason) => Err(section.together(key_of(&reason), reason)),
    }
}

fn parse_parts(section: &Section<'_>) -> Result<SpecParts, ConfigError> {
    Ok(SpecParts {
        network: section.list("network", Rule::parse)?,
        allow_net: section.list("allow_net", document::parse_network)?,
        resolver: section.value("resolver", parse_resolver)?,
        secret: section.list("secret", parse_variable)?,
        env: section.list("env", parse_variable)?,
        mounts: Vec::new(),
        command: if section.has("command") {
            Some(section.list("command", |word| parse_word("command", word))?)
        } else {
            None
        },
        arguments: section.list("arguments", |word| parse_word("arguments", word))?,
        limits: parse_limits(section)?,
    })
}

fn parse_limits(section: &Section<'_>) -> Result<WorkloadLimits, ConfigError> {
    let memory = section.number("memory", "1024")?;
    let processes = section.number("processes", "256")?;
    // One after the other, so that the line is that of the one that is refused.
    WorkloadLimits::of(memory, None).map_err(|reason| section.together("memory", reason))?;
    WorkloadLimits::of(memory, processes).map_err(|reason| section.together("processes", reason))
}

/// A word of a command line: anything but what no program can be given.
fn parse_word(key: &'static str, text: &str) -> Result<String, SpecError> {
    if text.contains('\0') {
        return Err(SpecError::CommandCharacters(key));
    }
    Ok(text.to_owned())
}

fn parse_variable(text: &str) -> Result<EnvName, ValueError> {
    match text.split_once('=') {
        Some((name, _)) => Err(ValueError::VariableValue(name.to_owned())),
        None => Ok(EnvName::parse(text)?),
    }
}

fn parse_runtime(text: &str) -> Result<RuntimeKind, ValueError> {
    let found = RuntimeKind::ALL
        .into_iter()
        .find(|kind| kind.program() == text);
    found.ok_or_else(|| ValueError::Runtime(text.to_owned()))
}

fn parse_resolver(text: &str) -> Result<SocketAddr, ValueError> {
    let with_default = text
        .parse::<IpAddr>()
        .map(|ip| SocketAddr::new(ip, DNS_PORT));
    with_default
        .or_else(|_| text.parse())
        .ok()
        .filter(|server| server.port() != 0)
        .ok_or_else(|| ValueError::Resolver(text.to_owned()))
}

/// The key that an error of [`LaunchSpec::new`] is about.
fn key_of(reason: &SpecError) -> &'static str {
    match reason {
        SpecError::SecretWithoutNetwork(_) => "secret",
        SpecError::VariableTwice(_) | SpecError::Variable(_) | SpecError::VariableIsOurs(_) => {
            "env"
        }
        SpecError::NoWorkspace(_)
        | SpecError::Mount(_)
        | SpecError::WholeWorkspace(_)
        | SpecError::MountOutside(_)
        | SpecError::MountsOverlap(_, _)
        | SpecError::MountCharacters(_) => "mounts",
        SpecError::NoCommand => "command",
        SpecError::CommandCharacters(key) => key,
        SpecError::ResolverWithoutNetwork => "resolver",
        SpecError::Policy(PolicyError::DuplicateRule(_)) => "network",
        SpecError::Policy(PolicyError::DuplicateNetwork(_) | PolicyError::NeverNetwork { .. })
        | SpecError::NetWithoutNetwork => "allow_net",
        SpecError::Name(_) => "name",
        SpecError::Tag { .. }
        | SpecError::NoDigest(_)
        | SpecError::Digest(_)
        | SpecError::ImageName(_) => "image",
        SpecError::Limit(_) => "memory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::RuleError;

    const DIGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// A server with what it must have, and these lines, of which the first is line 4.
    fn server(name: &str, lines: &str) -> String {
        format!("[[server]]\nname = {name:?}\nimage = \"a@sha256:{DIGEST}\"\n{lines}\n")
    }

    fn parse_one(lines: &str) -> Server {
        let config = Config::parse(&server("notion", lines)).expect(lines);
        config.servers().next().expect("one server").clone()
    }

    /// A server with nothing but these lines, of which the first is line 2.
    fn bare(lines: &str) -> String {
        format!("[[server]]\n{lines}")
    }

    fn refusal(text: &str) -> ConfigError {
        Config::parse(text).expect_err(text)
    }

    /// What is said of each of the texts, a line for each.
    fn said(cases: &[String]) -> String {
        let said: Vec<_> = cases.iter().map(|text| refusal(text).to_string()).collect();
        said.join("\n")
    }

    #[test]
    fn every_key_is_parsed_into_its_type() {
        let text = format!(
            r#"
workspace = "/home/me/project"
runtime = "docker"

[[server]]
name = "notion"
image = "ghcr.io/example/mcp-notion@sha256:{DIGEST}"
network = ["api.notion.com", "files.notion.com:8443"]
allow_net = ["10.1.0.0/16"]
resolver = "10.0.0.53"
secret = ["NOTION_TOKEN"]
env = ["LANG"]
mounts = ["docs:read", "out:write"]
command = ["node", "server.js"]
arguments = ["--verbose"]
memory = 2_048
processes = 64

[[server]]
name = "time"
image = "sha256:{DIGEST}"
workspace = "~/other"
"#
        );
        let config = Config::parse(&text).expect("good");
        assert_eq!(config.runtime(), Some(RuntimeKind::Docker));
        let servers: Vec<_> = config.servers().collect();
        let [notion, time] = servers.as_slice() else {
            panic!("{servers:?}")
        };
        assert_eq!(notion.name().as_str(), "notion");
        assert_eq!(
            notion.image().to_string(),
            format!("ghcr.io/example/mcp-notion@sha256:{DIGEST}")
        );
        let home = Path::new("/home/me");
        let workspace = |server: &Server| server.workspace().map(|name| name.path(home));
        assert_eq!(workspace(notion), Some("/home/me/project".into()));
        assert_eq!(workspace(time), Some("/home/me/other".into()));
        assert_eq!(
            notion.mounts(),
            ["docs:read", "out:write"].map(|text| MountRequest::parse(text).expect(text))
        );
        assert_eq!(
            notion.secret(),
            [EnvName::parse("NOTION_TOKEN").expect("a name")]
        );
        assert_eq!(notion.env(), [EnvName::parse("LANG").expect("a name")]);
        let spec = notion.spec(Vec::new()).expect("good");
        let rules: Vec<_> = spec.policy().rules().iter().map(Rule::to_string).collect();
        assert_eq!(rules, ["api.notion.com", "files.notion.com:8443"]);
        let parts = spec.parts();
        assert_eq!(parts.allow_net, ["10.1.0.0/16".parse().expect("a net")]);
        assert_eq!(parts.resolver, Some("10.0.0.53:53".parse().expect("one")));
        assert_eq!(parts.command, Some(vec!["node".into(), "server.js".into()]));
        assert_eq!(parts.arguments, ["--verbose"]);
        assert_eq!(parts.limits, WorkloadLimits::new(2048, 64).expect("good"));
    }

    #[test]
    fn what_is_left_out_grants_nothing() {
        for lines in ["", "network = []", "command = [\"a\"]\nsecret = []"] {
            let server = parse_one(lines);
            assert!(!server.spec(Vec::new()).expect("good").has_network());
            assert!(server.mounts().is_empty() && server.workspace().is_none());
            assert!(server.secret().is_empty() && server.env().is_empty());
            let spec = server.spec(Vec::new()).expect("good");
            assert_eq!(spec.parts().limits, WorkloadLimits::default());
        }
        assert_eq!(parse_one("").parts.command, None);
        let empty = Config::parse("").expect("good");
        assert_eq!((empty.runtime(), empty.servers().count()), (None, 0));
        assert_eq!(Config::parse("server = []").expect("good").servers.len(), 0);
    }

    #[test]
    fn one_limit_leaves_the_other_as_it_is() {
        let default = WorkloadLimits::default();
        let limits = |lines| parse_one(lines).parts.limits;
        assert_eq!(limits("memory = 64").processes(), default.processes());
        assert_eq!(
            limits("processes = 8").memory_bytes(),
            default.memory_bytes()
        );
        assert_eq!(limits("memory = 0x40").memory_bytes(), 64 << 20);
    }

    #[test]
    fn a_resolver_is_an_address() {
        for (text, expected) in [
            ("10.0.0.53", "10.0.0.53:53"),
            ("10.0.0.53:5353", "10.0.0.53:5353"),
            ("2001:db8::53", "[2001:db8::53]:53"),
            ("[2001:db8::53]:5353", "[2001:db8::53]:5353"),
        ] {
            let resolver = parse_one(&format!("resolver = {text:?}\nnetwork = [\"a.example\"]"))
                .parts
                .resolver;
            assert_eq!(resolver, Some(expected.parse().expect(expected)));
        }
    }

    #[test]
    fn a_workspace_is_a_whole_path() {
        let home = Path::new("/home/me");
        for (text, expected) in [
            ("/srv/project", "/srv/project"),
            ("~/project", "/home/me/project"),
            ("~/", "/home/me"),
            ("~//etc", "/home/me/etc"),
        ] {
            let name = WorkspaceName::parse(text).expect(text);
            assert_eq!(name.path(home), Path::new(expected), "{text}");
        }
        for text in [
            "",
            ".",
            "project",
            "./project",
            "~",
            "~you/project",
            "$HOME/a",
        ] {
            assert_eq!(
                WorkspaceName::parse(text),
                Err(ValueError::Workspace(text.to_owned()))
            );
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_answered_with_those_that_are() {
        let name = |text| ServerName::parse(text).expect(text);
        let text = server("notion", "") + &server("time", "");
        let config = Config::parse(&text).expect("good");
        assert_eq!(
            config.server(&name("time")).expect("there").name(),
            &name("time")
        );
        let said = |config: &Config, text| {
            let error = config.server(&name(text)).expect_err("not there");
            error.to_string()
        };
        insta::assert_snapshot!(said(&config, "fetch"), @"no server is called `fetch`; there are: notion, time");
        insta::assert_snapshot!(said(&config, "notoin"), @"no server is called `notoin`; write `notion` if that is meant; there are: notion, time");
        insta::assert_snapshot!(said(&Config::default(), "notion"), @"no server is called `notion`; there is none yet; write a [[server]] with that name");
    }

    #[test]
    fn an_unknown_key_or_server_is_refused_with_what_to_write() {
        let a = |lines: &str| server("a", lines);
        let cases = [
            // The file.
            "runtime = ".to_owned(),
            "runtime = \"podman\"\nruntime = \"docker\"".to_owned(),
            "runtime = \"lxc\"".to_owned(),
            "runtime = true".to_owned(),
            "workspace = \"project\"".to_owned(),
            "\n\nworkspaces = \"/a\"".to_owned(),
            "network = [\"a.example\"]".to_owned(),
            "verbose = true".to_owned(),
            "\"\\u001b[2J\" = true".to_owned(),
            "[server]\nname = \"a\"".to_owned(),
            "[servers.a]\nimage = \"a\"".to_owned(),
            "server = [\"a\"]".to_owned(),
            // A server's name.
            bare(""),
            bare("nmae = \"a\""),
            bare("name = \"Notion\""),
            bare("name = 1"),
            a("") + &bare("image = \"a\""),
            a("") + &server("b", "") + &a(""),
            // Its keys.
            bare("name = \"a\""),
            a("networks = [\"a.example\"]"),
            a("allow-net = [\"10.0.0.0/8\"]"),
            a("Network = []"),
            a("args = [\"-v\"]"),
            a("privileged = true"),
            a("runtime = \"podman\""),
            a("[server.env]\nA = \"b\""),
        ];
        insta::assert_snapshot!(said(&cases), @r#"
        line 1: not TOML: string values must be quoted, expected literal string
        line 2: not TOML: duplicate key `runtime`; write it once
        line 1: `runtime`: `lxc` is not a runtime strait knows; write podman or docker
        line 1: `runtime` is a text, not true or false; write it in quotes
        line 1: `workspace`: `project` is not a whole path; begin it with `/`, or with `~/` for your home folder
        line 3: unknown key `workspaces`; write `workspace` if that is meant
        line 1: unknown key `network`; it belongs to a server: write it below a [[server]]
        line 1: unknown key `verbose`; the keys here are runtime, server, workspace
        line 1: unknown key `\u{1b}[2J`; the keys here are runtime, server, workspace
        line 1: `server` is a list of tables; write [[server]], with two brackets, above each of them
        line 1: unknown key `servers`; write `server` if that is meant
        line 1: `server` is a list of tables; write [[server]], with two brackets, above each of them
        line 1: [[server]] number 1: `name` is missing; write name = "notion"
        line 2: [[server]] number 1: unknown key `nmae`; write `name` if that is meant
        line 2: [[server]] number 1: `name`: `Notion` is no name for a server; use 1 to 40 lower-case letters, digits, `.`, `_` or `-`, beginning with a letter or a digit
        line 2: [[server]] number 1: `name` is a text, not a number; write it in quotes
        line 5: [[server]] number 2: `name` is missing; write name = "notion"
        line 9: [[server]] number 3: the name `a` is taken by the server in line 1; give one of them another
        line 1: server `a`: `image` is missing; write image = "NAME@sha256:…"
        line 4: server `a`: unknown key `networks`; write `network` if that is meant
        line 4: server `a`: unknown key `allow-net`; write `allow_net` if that is meant
        line 4: server `a`: unknown key `Network`; write `network` if that is meant
        line 4: server `a`: unknown key `args`; write `arguments` if that is meant
        line 4: server `a`: unknown key `privileged`; the keys here are allow_net, arguments, command, env, image, memory, mounts, name, network, processes, resolver, secret, workspace
        line 4: server `a`: unknown key `runtime`; it is for all servers: write it above the first [[server]]
        line 4: server `a`: `env` is a list; write env = ["…"]
        "#);
    }

    #[test]
    fn a_bad_value_is_refused_with_what_to_write() {
        let a = |lines: &str| server("a", lines);
        let cases = [
            // Their kinds.
            a("network = \"a.example\""),
            a("secret = true"),
            a("command = \"node server.js\""),
            a("network = [\"a.example\", 443]"),
            a("resolver = [\"10.0.0.53\"]"),
            a("memory = \"1g\""),
            a("memory = -1"),
            a("memory = 1.5"),
            a("processes = 5000000000"),
            // Their values.
            bare("name = \"a\"\nimage = \"a:latest\""),
            bare("name = \"a\"\nimage = \"a\""),
            a("network = [\n  \"a.example\",\n  \"*.b.example\",\n]"),
            a("network = [\"http://a.example/\"]"),
            a("network = [\"a.example\"]\nallow_net = [\"10.1.0.1/16\"]"),
            a("resolver = \"dns.example\""),
            a("network = [\"a.example\"]\nsecret = [\"HTTPS_PROXY\"]"),
            a("env = [\"A-B\"]"),
            a("workspace = \"/w\"\nmounts = [\"docs\"]"),
            a("workspace = \"/w\"\nmounts = [\"../docs:read\"]"),
            a("memory = 1"),
            a("processes = 1"),
            // What they say together.
            a("mounts = [\"docs:read\"]"),
            a("env = [\"A\"]\nsecret = [\"TOKEN\"]"),
            a("network = [\"a.example\"]\nsecret = [\"A\"]\nenv = [\"A\"]"),
            a("network = [\"a.example\", \"A.example\"]"),
            a("allow_net = [\"10.0.0.0/8\"]"),
            a("network = [\"a.example\"]\nallow_net = [\"127.0.0.0/8\"]"),
            a("command = []"),
            a("arguments = [\"a\\u0000\"]"),
        ];
        insta::assert_snapshot!(said(&cases), @r#"
        line 4: server `a`: `network` is a list; write network = ["a.example"]
        line 4: server `a`: `secret` is a list; write secret = ["…"]
        line 4: server `a`: `command` is a list; write command = ["node server.js"]
        line 4: server `a`: `network[1]` is a text, not a number; write it in quotes
        line 4: server `a`: `resolver` is a text, not a list; write it in quotes
        line 4: server `a`: `memory` is a number without sign or fraction, not a text; write memory = 1024
        line 4: server `a`: `memory` is a number without sign or fraction, not -1; write memory = 1024
        line 4: server `a`: `memory` is a number without sign or fraction, not a fraction; write memory = 1024
        line 4: server `a`: `processes` is a number without sign or fraction, not 5000000000; write processes = 256
        line 3: server `a`: `image`: `a:latest`: a tag can be moved to another image; write the digest alone, `a@sha256:…` (`podman image inspect` and `docker image inspect` show it as RepoDigests)
        line 3: server `a`: `image`: `a`: an image is given by its digest; write NAME@sha256:… or the id sha256:…
        line 6: server `a`: `network[1]`: `*.b.example`: there are no wildcards; list every host by its whole name
        line 4: server `a`: `network[0]`: `http://a.example/`: an entry is HOST or HOST:PORT, not a URL; write `a.example:80`
        line 5: server `a`: `allow_net[0]`: `10.1.0.1/16`: the address has bits behind its prefix; write `10.1.0.0/16`
        line 4: server `a`: `resolver`: `dns.example` is not the address of a name server; write 192.0.2.53 or [2001:db8::53]:53
        line 5: server `a`: `secret[0]`: `HTTPS_PROXY` is set by strait itself, to lead the server to the proxy; remove it
        line 4: server `a`: `env[0]`: `A-B` is no name of a variable; use letters, digits and `_`, not beginning with a digit
        line 5: server `a`: `mounts[0]`: mount `docs`: write FOLDER:read or FOLDER:write, the folder relative to the workspace
        line 5: server `a`: `mounts[0]`: mount `../docs:read` leads out of the workspace; name a folder in it, without `..`
        line 4: server `a`: `memory` is in MiB, from 16 to 1048576; write 1024 for one GiB
        line 4: server `a`: `processes` is from 4 to 1048576; write 256
        line 4: server `a`: mount `docs`: no workspace is set; say which folder it is in with `workspace`
        line 5: server `a`: secret `TOKEN`: the server has no network, so the secret has nowhere to go; add the host it is for to `network`, or make it an `env`
        line 6: server `a`: `A` is given twice, as `secret` or `env`; name it once
        line 4: server `a`: `a.example` is listed twice; remove one of the two
        line 4: server `a`: `allow_net` opens nothing without `network`; add the hosts, or remove it
        line 5: server `a`: `127.0.0.0/8` leads to nothing but the loopback network, which is never opened; remove it
        line 4: server `a`: `command` is empty; write the program and its arguments as a list, or leave it out
        line 4: server `a`: `arguments[0]`: `arguments` holds a NUL byte, which no argument can hold
        "#);
    }

    #[test]
    fn a_value_in_the_place_of_a_variables_name_is_not_said() {
        for lines in [
            "secret = [\"TOKEN=hush\"]",
            "secret = \"TOKEN=hush\"",
            "env = [\"TOKEN=hush\"]",
            "secret = [TOKEN=hush]",
            "secret = [\"TOKEN\" = \"hush\"]",
            "secret = { TOKEN = \"hush\" }",
            "[server.env]\nTOKEN = \"hush\"",
        ] {
            let said = refusal(&server("a", lines)).to_string();
            assert!(!said.contains("hush"), "{said}");
        }
        let said = refusal(&server("a", "secret = [\"TOKEN=hush\"]"));
        insta::assert_snapshot!(said, @"line 4: server `a`: `secret[0]`: `TOKEN` is given with a value; write the name alone, the value comes from the environment");
    }

    #[test]
    fn the_place_of_an_error_is_data() {
        let error = refusal(&server("a", "\nnetwork = [\"*\"]"));
        assert_eq!(
            error,
            ConfigError {
                line: Some(5),
                server: Some(WhichServer::Named(ServerName::parse("a").expect("a name"))),
                reason: Box::new(Reason::Value {
                    key: "network[0]".to_owned(),
                    reason: ValueError::Rule(RuleError::Wildcard("*".to_owned())),
                }),
            }
        );
    }
}
