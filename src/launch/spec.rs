//! What is to be launched, parsed and typed: a bad value is refused before anything exists.
//!
//! Every type here can be made only by its parser, and holds nothing that could be taken for an
//! option, a path outside its place, or another field of a runtime's command line.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};

use ipnet::IpNet;
use thiserror::Error;

use crate::policy::{Policy, PolicyError};
use crate::rule::Rule;

/// The longest name of a server: with what is put around it, it must fit in a host name (63 bytes,
/// RFC 1035 §2.3.4).
const MAX_NAME: usize = 40;
/// Hex digits of a SHA-256 digest.
const DIGEST_DIGITS: usize = 64;
/// Hex digits of a run id.
const RUN_DIGITS: usize = 12;
/// What launch sets itself: a value from elsewhere would lead the server around the proxy, or say
/// that it does.
const SET_BY_US: [&str; 5] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
];
/// Characters that the runtimes' own syntaxes for mounts give a meaning, in a path.
const NOT_IN_A_PATH: [char; 4] = [',', ':', '"', '\\'];

/// Why a spec was refused: the thing, the reason and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// A name that is none.
    #[error(
        "`{0}` is no name for a server; use 1 to {MAX_NAME} lower-case letters, digits, `.`, `_` or \
         `-`, beginning with a letter or a digit"
    )]
    Name(String),
    /// A tag, alone or beside a digest.
    #[error(
        "`{image}`: a tag can be moved to another image; write the digest alone, `{name}@sha256:…` \
         (`podman image inspect` and `docker image inspect` show it as RepoDigests)"
    )]
    Tag {
        /// The image as given.
        image: String,
        /// Its name without the tag.
        name: String,
    },
    /// No digest.
    #[error("`{0}`: an image is given by its digest; write NAME@sha256:… or the id sha256:…")]
    NoDigest(String),
    /// A digest that is none.
    #[error("`{0}`: a digest is `sha256:` and {DIGEST_DIGITS} lower-case hex digits")]
    Digest(String),
    /// A name that no registry has.
    #[error("`{0}`: not an image name; write [HOST[:PORT]/]PATH@sha256:… in lower case")]
    ImageName(String),
    /// A variable's name that is none.
    #[error(
        "`{0}` is no name of a variable; use letters, digits and `_`, not beginning with a digit"
    )]
    Variable(String),
    /// A variable that launch sets.
    #[error("`{0}` is set by strait itself, to lead the server to the proxy; remove it")]
    VariableIsOurs(String),
    /// A variable named twice.
    #[error("`{0}` is given twice, as `secret` or `env`; name it once")]
    VariableTwice(String),
    /// A secret that could not be used.
    #[error(
        "secret `{0}`: the server has no network, so the secret has nowhere to go; add the host it \
         is for to `network`, or make it an `env`"
    )]
    SecretWithoutNetwork(String),
    /// A mount that is not written as one.
    #[error("mount `{0}`: write FOLDER:read or FOLDER:write, the folder relative to the workspace")]
    Mount(String),
    /// A mount without a workspace to be in.
    #[error("mount `{0}`: no workspace is set; say which folder it is in with `workspace`")]
    NoWorkspace(String),
    /// A mount that is the workspace.
    #[error("mount `{0}` is the whole workspace; name a folder in it")]
    WholeWorkspace(String),
    /// A mount that names its way out.
    #[error("mount `{0}` leads out of the workspace; name a folder in it, without `..`")]
    MountOutside(String),
    /// Two mounts of one folder, or one in the other.
    #[error("mounts `{0}` and `{1}`: one is in the other; mount the outer one alone")]
    MountsOverlap(String, String),
    /// A path that the runtimes' syntax for mounts cannot say.
    #[error(
        "mount `{0}`: a runtime cannot take `,`, `:`, `\"`, `\\` or control characters in a path"
    )]
    MountCharacters(String),
    /// A command without a program.
    #[error("`command` is empty; write the program and its arguments as a list, or leave it out")]
    NoCommand,
    /// An argument that no program can be given.
    #[error("`{0}` holds a NUL byte, which no argument can hold")]
    CommandCharacters(&'static str),
    /// Entries that do not make a policy.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// A name server that nothing is asked.
    #[error("`resolver` is asked nothing without `network`; add the hosts, or remove it")]
    ResolverWithoutNetwork,
    /// A network without anything to reach in it.
    #[error("`allow_net` opens nothing without `network`; add the hosts, or remove it")]
    NetWithoutNetwork,
    /// A limit that cannot work.
    #[error("{0}")]
    Limit(&'static str),
}

/// The name of a configured server: a part of its containers' and networks' names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(String);

impl ServerName {
    /// Parses a name; see [`SpecError::Name`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let has_start = text.bytes().next().is_some_and(is_plain);
        let is_made_of = text
            .bytes()
            .all(|byte| is_plain(byte) || b"._-".contains(&byte));
        if has_start && is_made_of && text.len() <= MAX_NAME {
            Ok(Self(text.to_owned()))
        } else {
            Err(SpecError::Name(text.to_owned()))
        }
    }

    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An image, by what is in it: `NAME@sha256:…`, or the id of one that is here, `sha256:…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRef {
    name: Option<String>,
    digest: String,
}

impl ImageRef {
    /// Parses a reference by digest; a tag is refused, alone and beside a digest.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let given = || text.to_owned();
        if let Some(digits) = text.strip_prefix("sha256:") {
            let digest = parse_digest(digits).ok_or_else(|| SpecError::Digest(given()))?;
            return Ok(Self { name: None, digest });
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        // A colon behind the last slash is a tag's; one before it is a port's.
        let last = name.rsplit('/').next().unwrap_or_default();
        if let Some((_, tag)) = last.split_once(':') {
            let name = name.strip_suffix(tag).unwrap_or(name);
            return Err(SpecError::Tag {
                image: given(),
                name: name.trim_end_matches(':').to_owned(),
            });
        }
        let digits = digest
            .ok_or_else(|| SpecError::NoDigest(given()))?
            .strip_prefix("sha256:");
        let digest = digits
            .and_then(parse_digest)
            .ok_or_else(|| SpecError::Digest(given()))?;
        if !is_image_name(name) {
            return Err(SpecError::ImageName(given()));
        }
        Ok(Self {
            name: Some(name.to_owned()),
            digest,
        })
    }

    /// Whether it can be pulled: an id alone says from nowhere.
    pub fn has_name(&self) -> bool {
        self.name.is_some()
    }

    /// A name for a server that has none of its own: the last part of the image's.
    pub fn server_name(&self) -> ServerName {
        let last = self
            .name
            .as_deref()
            .and_then(|name| name.rsplit('/').next());
        let name =
            last.and_then(|last| ServerName::parse(last.get(..MAX_NAME).unwrap_or(last)).ok());
        name.unwrap_or_else(|| ServerName("server".to_owned()))
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}@sha256:{}", self.digest),
            None => write!(f, "sha256:{}", self.digest),
        }
    }
}

fn parse_digest(digits: &str) -> Option<String> {
    let is_hex = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (digits.len() == DIGEST_DIGITS && is_hex).then(|| digits.to_owned())
}

/// Whether a name is `[HOST[:PORT]/]PATH[/PATH]…`, the grammar of the OCI distribution
/// specification, with its alphabet read narrowly.
fn is_image_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_component = |part: &str| {
        let ends_plainly = |byte: Option<u8>| byte.is_some_and(is_plain);
        ends_plainly(part.bytes().next())
            && ends_plainly(part.bytes().next_back())
            && part
                .bytes()
                .all(|byte| is_plain(byte) || b"._-".contains(&byte))
    };
    let (host, path) = match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
            (Some(first), rest)
        }
        Some(_) | None => (None, name),
    };
    let is_host = |host: &str| {
        let (host, port) = host.split_once(':').unwrap_or((host, "443"));
        is_component(host) && port.parse::<u16>().is_ok_and(|port| port != 0)
    };
    name.len() <= 255 && host.is_none_or(is_host) && path.split('/').all(is_component)
}

/// The name of an environment variable that a server may be given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvName(String);

impl EnvName {
    /// Parses a name; those that launch sets itself are refused.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let has_start = text
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
        let is_made_of = text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !has_start || !is_made_of || text.len() > 128 {
            // What stands behind `=` may be the secret itself.
            let name = text.split('=').next().unwrap_or_default();
            return Err(SpecError::Variable(name.to_owned()));
        }
        let is_ours = SET_BY_US.iter().any(|ours| text.eq_ignore_ascii_case(ours))
            || text == "NODE_USE_ENV_PROXY";
        if is_ours {
            return Err(SpecError::VariableIsOurs(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a server may do with a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Read it, change it and add to it.
    Write,
}

/// A folder of the workspace, as a user names it: `docs:read`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountRequest {
    folder: PathBuf,
    access: Access,
}

impl MountRequest {
    /// Parses `FOLDER:read` or `FOLDER:write`.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let given = || text.to_owned();
        let (folder, access) = text
            .rsplit_once(':')
            .ok_or_else(|| SpecError::Mount(given()))?;
        let access = match access {
            "read" => Access::Read,
            "write" => Access::Write,
            _ => return Err(SpecError::Mount(given())),
        };
        if folder
            .chars()
            .any(|letter| letter.is_control() || NOT_IN_A_PATH.contains(&letter))
        {
            return Err(SpecError::MountCharacters(given()));
        }
        let mut parts = PathBuf::new();
        for component in Path::new(folder).components() {
            match component {
                Component::Normal(part) => parts.push(part),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(SpecError::MountOutside(given()));
                }
            }
        }
        if folder.is_empty() {
            return Err(SpecError::Mount(given()));
        }
        if parts.as_os_str().is_empty() {
            return Err(SpecError::WholeWorkspace(given()));
        }
        Ok(Self {
            folder: parts,
            access,
        })
    }

    /// The folder, relative to the workspace.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.access
    }
}

/// A folder that is known to be in the workspace, and where the server sees it.
///
/// Made by `workspace::resolve`, which follows the links on the way; the paths hold nothing
/// that the runtimes' syntax for mounts gives a meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    source: String,
    target: String,
    access: Access,
}

impl Mount {
    /// A mount of `source`, which must be an absolute path without links, at its place `folder` under
    /// `/workspace/`.
    pub(super) fn new(source: &Path, request: &MountRequest) -> Result<Self, SpecError> {
        let shown = request.folder.display().to_string();
        let text = |path: &Path| {
            path.to_str()
                .filter(|text| {
                    !text
                        .chars()
                        .any(|letter| letter.is_control() || NOT_IN_A_PATH.contains(&letter))
                })
                .map(str::to_owned)
                .ok_or_else(|| SpecError::MountCharacters(shown.clone()))
        };
        Ok(Self {
            source: text(source)?,
            target: text(&Path::new("/workspace").join(&request.folder))?,
            access: request.access,
        })
    }

    /// The folder on this machine.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The folder as the server sees it.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// What the server may do with it.
    pub fn access(&self) -> Access {
        self.access
    }
}

/// What tells one launch from every other: part of all its names, and a label on all it makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunId(String);

impl RunId {
    /// An id from random bytes.
    pub fn from_bytes(bytes: [u8; RUN_DIGITS / 2]) -> Self {
        let number = bytes
            .iter()
            .fold(0, |number, byte| (number << 8) | u64::from(*byte));
        Self(format!("{number:0RUN_DIGITS$x}"))
    }

    /// Parses an id, as it stands in a label.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        (text.len() == RUN_DIGITS && is_hex).then(|| Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A number that spreads over the ids, for choosing a network.
    pub(super) fn number(&self) -> u64 {
        u64::from_str_radix(&self.0, 16).unwrap_or_default()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a server may use of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadLimits {
    memory: u64,
    processes: u32,
}

/// Bytes in a mebibyte.
const MIB: u64 = 1 << 20;

impl WorkloadLimits {
    /// Limits of `memory` MiB, swap included, and of so many processes and threads.
    pub fn new(memory: u64, processes: u32) -> Result<Self, SpecError> {
        // Docker takes no less than 6 MiB; a runtime needs a few threads to start a program at all.
        if !(16..=1 << 20).contains(&memory) {
            return Err(SpecError::Limit(
                "`memory` is in MiB, from 16 to 1048576; write 1024 for one GiB",
            ));
        }
        if !(4..=1 << 20).contains(&processes) {
            return Err(SpecError::Limit(
                "`processes` is from 4 to 1048576; write 256",
            ));
        }
        Ok(Self { memory, processes })
    }

    /// The same, with the defaults where nothing is said.
    pub fn of(memory: Option<u64>, processes: Option<u32>) -> Result<Self, SpecError> {
        let default = Self::default();
        Self::new(
            memory.unwrap_or(default.memory),
            processes.unwrap_or(default.processes),
        )
    }

    /// Bytes of memory, swap included.
    pub fn memory_bytes(&self) -> u64 {
        self.memory * MIB
    }

    /// Processes and threads at a time.
    pub fn processes(&self) -> u32 {
        self.processes
    }
}

impl Default for WorkloadLimits {
    /// 1 GiB and 256: the largest of the servers we tried takes a fifth of either.
    fn default() -> Self {
        Self {
            memory: 1024,
            processes: 256,
        }
    }
}

/// What is to be launched, as it is made: see [`LaunchSpec::new`].
#[derive(Clone, Debug, Default)]
pub struct SpecParts {
    /// The hosts it may reach; none is no network at all.
    pub network: Vec<Rule>,
    /// Networks whose addresses those hosts may have although they are not public.
    pub allow_net: Vec<IpNet>,
    /// The name server the proxy asks, in place of the runtime's.
    pub resolver: Option<SocketAddr>,
    /// Variables whose values must not be shown.
    pub secret: Vec<EnvName>,
    /// Variables passed on as they are.
    pub env: Vec<EnvName>,
    /// Folders it sees.
    pub mounts: Vec<Mount>,
    /// What replaces the image's entrypoint.
    pub command: Option<Vec<String>>,
    /// What follows the command, or replaces the image's default arguments.
    pub arguments: Vec<String>,
    /// What it may use.
    pub limits: WorkloadLimits,
}

/// What is to be launched, checked.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    name: ServerName,
    image: ImageRef,
    policy: Policy,
    parts: SpecParts,
}

impl LaunchSpec {
    /// Checks what the parts say together.
    pub fn new(name: ServerName, image: ImageRef, parts: SpecParts) -> Result<Self, SpecError> {
        let policy = Policy::new(parts.network.clone(), parts.allow_net.clone())?;
        if parts.network.is_empty() {
            if let Some(secret) = parts.secret.first() {
                return Err(SpecError::SecretWithoutNetwork(secret.0.clone()));
            }
            if !parts.allow_net.is_empty() {
                return Err(SpecError::NetWithoutNetwork);
            }
            if parts.resolver.is_some() {
                return Err(SpecError::ResolverWithoutNetwork);
            }
        }
        let mut seen = BTreeSet::new();
        for name in parts.secret.iter().chain(&parts.env) {
            if !seen.insert(name) {
                return Err(SpecError::VariableTwice(name.0.clone()));
            }
        }
        for (index, one) in parts.mounts.iter().enumerate() {
            for other in parts.mounts.iter().skip(index + 1) {
                let sources = (Path::new(&one.source), Path::new(&other.source));
                let targets = (Path::new(&one.target), Path::new(&other.target));
                let overlaps = |(a, b): (&Path, &Path)| a.starts_with(b) || b.starts_with(a);
                if overlaps(sources) || overlaps(targets) {
                    let names = (one.target.clone(), other.target.clone());
                    return Err(SpecError::MountsOverlap(names.0, names.1));
                }
            }
        }
        if parts
            .command
            .as_ref()
            .is_some_and(|command| command.first().is_none_or(String::is_empty))
        {
            return Err(SpecError::NoCommand);
        }
        let has_nul = |words: &[String]| words.iter().any(|word| word.contains('\0'));
        if has_nul(parts.command.as_deref().unwrap_or_default()) {
            return Err(SpecError::CommandCharacters("command"));
        }
        if has_nul(&parts.arguments) {
            return Err(SpecError::CommandCharacters("arguments"));
        }
        Ok(Self {
            name,
            image,
            policy,
            parts,
        })
    }

    /// The server's name.
    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// Its image.
    pub fn image(&self) -> &ImageRef {
        &self.image
    }

    /// What it may reach.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether it has a network at all.
    pub fn has_network(&self) -> bool {
        !self.policy.rules().is_empty()
    }

    /// Everything else.
    pub fn parts(&self) -> &SpecParts {
        &self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn an_image_is_given_by_its_digest_alone() {
        for name in [
            "ghcr.io/example/mcp-notion",
            "localhost:5000/a",
            "library/a_b-c.d",
            "a",
        ] {
            let text = format!("{name}@sha256:{DIGEST}");
            assert_eq!(ImageRef::parse(&text).expect(name).to_string(), text);
        }
        let id = format!("sha256:{DIGEST}");
        assert_eq!(ImageRef::parse(&id).expect("an id").to_string(), id);
        for (text, is_expected) in [
            (
                "a:latest".to_owned(),
                (|error| matches!(error, SpecError::Tag { .. })) as fn(&_) -> _,
            ),
            (format!("a:1@sha256:{DIGEST}"), |error| {
                matches!(error, SpecError::Tag { .. })
            }),
            (format!("h:5000/a:1@sha256:{DIGEST}"), |error| {
                matches!(error, SpecError::Tag { .. })
            }),
            ("a".to_owned(), |error| {
                matches!(error, SpecError::NoDigest(_))
            }),
            (DIGEST.to_owned(), |error| {
                matches!(error, SpecError::NoDigest(_))
            }),
            (String::new(), |error| {
                matches!(error, SpecError::NoDigest(_))
            }),
            ("sha256:12".to_owned(), |error| {
                matches!(error, SpecError::Digest(_))
            }),
            (format!("sha256:{}", DIGEST.to_uppercase()), |error| {
                matches!(error, SpecError::Digest(_))
            }),
            (format!("a@sha512:{DIGEST}"), |error| {
                matches!(error, SpecError::Digest(_))
            }),
            (format!("--privileged@sha256:{DIGEST}"), |error| {
                matches!(error, SpecError::ImageName(_))
            }),
            (format!("A@sha256:{DIGEST}"), |error| {
                matches!(error, SpecError::ImageName(_))
            }),
            (format!("a//b@sha256:{DIGEST}"), |error| {
                matches!(error, SpecError::ImageName(_))
            }),
            (format!("../a@sha256:{DIGEST}"), |error| {
                matches!(error, SpecError::ImageName(_))
            }),
            (format!("a.b:0/c@sha256:{DIGEST}"), |error| {
                matches!(error, SpecError::ImageName(_))
            }),
            (format!("@sha256:{DIGEST}"), |error| {
                matches!(error, SpecError::ImageName(_))
            }),
            (format!("docker://a@sha256:{DIGEST}"), |error| {
                matches!(error, SpecError::ImageName(_))
            }),
        ] {
            let error = ImageRef::parse(&text).expect_err(&text);
            assert!(is_expected(&error), "{text}: {error:?}");
        }
    }

    #[test]
    fn a_tag_is_refused_with_what_to_write() {
        let error = ImageRef::parse("h:5000/a:1").expect_err("a tag");
        assert!(error.to_string().contains("`h:5000/a@sha256:…`"), "{error}");
    }

    #[test]
    fn names_are_narrow() {
        for good in ["notion", "a", "0-a.b_c", &"a".repeat(MAX_NAME)] {
            ServerName::parse(good).expect(good);
        }
        for bad in [
            "",
            "-a",
            ".a",
            "A",
            "a/b",
            "a b",
            "é",
            "a\n",
            &"a".repeat(MAX_NAME + 1),
        ] {
            ServerName::parse(bad).expect_err(bad);
        }
        for good in ["A", "_", "NOTION_TOKEN", "a1"] {
            EnvName::parse(good).expect(good);
        }
        for bad in [
            "",
            "1A",
            "A=B",
            "A-B",
            "A B",
            "é",
            "http_proxy",
            "No_Proxy",
            "NODE_USE_ENV_PROXY",
        ] {
            EnvName::parse(bad).expect_err(bad);
        }
    }

    #[test]
    fn a_mount_is_a_folder_in_the_workspace() {
        let folder =
            |text| MountRequest::parse(text).map(|mount| mount.folder.display().to_string());
        assert_eq!(folder("docs:read").as_deref(), Ok("docs"));
        assert_eq!(folder("./a//b/:write").as_deref(), Ok("a/b"));
        for (text, reason) in [
            ("docs", SpecError::Mount("docs".into())),
            ("docs:rw", SpecError::Mount("docs:rw".into())),
            (":read", SpecError::Mount(":read".into())),
            (".:read", SpecError::WholeWorkspace(".:read".into())),
            ("./:write", SpecError::WholeWorkspace("./:write".into())),
            ("..:read", SpecError::MountOutside("..:read".into())),
            (
                "a/../..:read",
                SpecError::MountOutside("a/../..:read".into()),
            ),
            ("/etc:read", SpecError::MountOutside("/etc:read".into())),
            ("a,b:read", SpecError::MountCharacters("a,b:read".into())),
            ("a:b:read", SpecError::MountCharacters("a:b:read".into())),
            ("a\nb:read", SpecError::MountCharacters("a\nb:read".into())),
        ] {
            assert_eq!(folder(text), Err(reason), "{text}");
        }
    }

    #[test]
    fn the_parts_must_go_together() {
        let spec = |parts| {
            let image = ImageRef::parse(&format!("a@sha256:{DIGEST}")).expect("an image");
            LaunchSpec::new(ServerName::parse("a").expect("a name"), image, parts)
        };
        let token = || EnvName::parse("TOKEN").expect("a name");
        let host = || vec![Rule::parse("a.example").expect("a rule")];
        let is = |parts, expected| assert_eq!(spec(parts).expect_err("refused"), expected);
        is(
            SpecParts {
                secret: vec![token()],
                ..SpecParts::default()
            },
            SpecError::SecretWithoutNetwork("TOKEN".into()),
        );
        is(
            SpecParts {
                network: host(),
                secret: vec![token()],
                env: vec![token()],
                ..SpecParts::default()
            },
            SpecError::VariableTwice("TOKEN".into()),
        );
        is(
            SpecParts {
                allow_net: vec!["10.0.0.0/8".parse().expect("a net")],
                ..SpecParts::default()
            },
            SpecError::NetWithoutNetwork,
        );
        is(
            SpecParts {
                command: Some(vec![]),
                ..SpecParts::default()
            },
            SpecError::NoCommand,
        );
        is(
            SpecParts {
                arguments: vec!["a\0".into()],
                ..SpecParts::default()
            },
            SpecError::CommandCharacters("arguments"),
        );
        let mount = |folder: &str| {
            let request = MountRequest::parse(&format!("{folder}:read")).expect("a mount");
            Mount::new(&Path::new("/w").join(folder), &request).expect("plain")
        };
        is(
            SpecParts {
                mounts: vec![mount("a"), mount("a/b")],
                ..SpecParts::default()
            },
            SpecError::MountsOverlap("/workspace/a".into(), "/workspace/a/b".into()),
        );
        spec(SpecParts {
            mounts: vec![mount("a"), mount("ab")],
            ..SpecParts::default()
        })
        .expect("apart");
        spec(SpecParts {
            network: host(),
            secret: vec![token()],
            ..SpecParts::default()
        })
        .expect("good");
    }
}
