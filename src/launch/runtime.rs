//! podman's and docker's differences, as data, and what they say of themselves, parsed. Nothing here
//! runs anything.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use thiserror::Error;

/// A container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeKind {
    /// podman, 4.3 or later.
    Podman,
    /// docker, 20.10 or later.
    Docker,
}

impl RuntimeKind {
    /// Both, in the order in which they are looked for.
    pub const ALL: [Self; 2] = [Self::Podman, Self::Docker];

    /// The name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }

    /// The oldest version that was tried: older ones lack options that close something.
    pub fn oldest(self) -> Version {
        match self {
            Self::Podman => Version(4, 3, 0),
            Self::Docker => Version(20, 10, 0),
        }
    }
}

impl fmt::Display for RuntimeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

/// A version: major, minor, patch. What follows (`-rc1`, `+dfsg1`) is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16, pub u16);

impl Version {
    /// Parses the numbers at the start of a version.
    pub fn parse(text: &str) -> Option<Self> {
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let mut numbers = text.get(..end.unwrap_or(text.len()))?.split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        let patch = numbers
            .next()
            .and_then(|patch| patch.parse().ok())
            .unwrap_or(0);
        Some(Self(major, minor, patch))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// What the plan of a launch depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeFacts {
    /// podman or docker.
    pub kind: RuntimeKind,
    /// Its program, as it is run.
    pub program: String,
    /// The version of what does the work: docker's daemon, podman itself.
    pub version: Version,
    /// Whether root in a container is not root on the machine.
    pub is_rootless: bool,
    /// Which limits it can put in force.
    pub limits: LimitsInForce,
    /// The machine's architecture, as images call it: `amd64`, `arm64`.
    pub architecture: String,
    /// Whether `SELinux` labels decide which files a container may read.
    pub has_selinux: bool,
    /// Whether its kernel has IPv6 at all; without it there is nothing to switch off, and no switch.
    pub has_ipv6: bool,
}

/// Which limits are in force in a container: where a control group has no controller for one, the
/// runtime ignores it or will not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsInForce {
    /// Memory, and swap with it.
    pub memory: bool,
    /// The number of processes.
    pub processes: bool,
}

impl LimitsInForce {
    /// Both.
    pub const ALL: Self = Self {
        memory: true,
        processes: true,
    };
}

/// What the machine says of itself, for a runtime on the same machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    /// Its name.
    pub host: String,
    /// The user that launches.
    pub user: u32,
    /// The control groups' version and, for version 2, the controllers the user may use.
    pub controllers: Controllers,
    /// Whether `SELinux` is enforcing.
    pub has_selinux: bool,
    /// Whether `/proc/sys/net/ipv6` is there.
    pub has_ipv6: bool,
}

/// Who may limit what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Controllers {
    /// Control groups of version 1: root alone.
    OfRoot,
    /// Control groups of version 2: the controllers delegated to the user, as in `cgroup.controllers`.
    Delegated(String),
}

/// Why what a runtime said could not be used.
#[derive(Debug, Error)]
pub enum FactsError {
    /// Not JSON, or not of the shape we know.
    #[error("what {kind} said of {what} is not what it says in the versions we know: {reason}")]
    Shape {
        /// The runtime.
        kind: RuntimeKind,
        /// What it was asked.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// An old version.
    #[error("{kind} {version} is too old: strait needs {} or later", .kind.oldest())]
    TooOld {
        /// The runtime.
        kind: RuntimeKind,
        /// Its version.
        version: Version,
    },
    /// No daemon: docker's client answers for itself, with success.
    #[error("docker's daemon does not answer: {0}")]
    NoDaemon(String),
    /// Containers of another system.
    #[error("{kind} runs {system} containers here; strait needs Linux containers")]
    System {
        /// The runtime.
        kind: RuntimeKind,
        /// The system.
        system: String,
    },
}

/// The questions a runtime is asked, and what is made of the answers.
impl RuntimeKind {
    /// Asks for the version, quickly where there is a quick way.
    pub fn facts_query(self) -> &'static [&'static str] {
        match self {
            // `info` takes ten times as long; what it would say of this machine is read from it.
            Self::Podman => &["version", "--format={{json .}}"],
            Self::Docker => &["info", "--format={{json .}}"],
        }
    }

    /// Asks a podman whose containers run elsewhere for what its machine says.
    pub const REMOTE_QUERY: &'static [&'static str] = &["info", "--format={{json .}}"];
}

impl RuntimeKind {
    /// The exit code of a server whose container could not be started, as the runtime's `run` would
    /// have it; `None` where it was started.
    ///
    /// `start` has one code for every failure of its own, docker's is 1, and the container is gone by
    /// then. What is left is what it said last, which a server can say too: all it decides is this code,
    /// and that is the server's own business.
    pub fn start_failure(self, code: u8, has_written: bool, last_words: &[u8]) -> Option<u8> {
        let words = String::from_utf8_lossy(last_words);
        let is_own = match self {
            Self::Podman => code == 125 && words.contains("Error: unable to start container"),
            Self::Docker => code == 1 && words.contains("Error response from daemon:"),
        };
        if !is_own || has_written {
            return None;
        }
        Some(
            if words.contains("no such file or directory") || words.contains("not found in $PATH") {
                127
            } else if words.contains("permission denied") || words.contains("exec format error") {
                126
            } else {
                125
            },
        )
    }
}

/// podman's answer to `version`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PodmanVersion {
    client: PodmanClient,
    server: Option<PodmanClient>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PodmanClient {
    version: String,
    os_arch: String,
}

/// podman's answer to `info`, as far as it matters.
#[derive(Debug, Deserialize)]
struct PodmanInfo {
    host: PodmanHost,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodmanHost {
    #[serde(default)]
    cgroup_controllers: Vec<String>,
    security: PodmanSecurity,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodmanSecurity {
    rootless: bool,
    #[serde(rename = "selinuxEnabled", default)]
    selinux_enabled: bool,
}

/// docker's answer to `info`, as far as it matters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerInfo {
    #[serde(default)]
    name: String,
    #[serde(default)]
    server_version: String,
    #[serde(rename = "OSType", default)]
    os_type: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    server_errors: Option<Vec<String>>,
    #[serde(default)]
    memory_limit: bool,
    #[serde(default)]
    pids_limit: bool,
    #[serde(default)]
    security_options: Option<Vec<String>>,
}

/// What podman's first answer leads to.
#[derive(Debug)]
pub enum PodmanAnswer {
    /// It runs its containers on this machine.
    Here(RuntimeFacts),
    /// It runs them elsewhere, and [`RuntimeKind::REMOTE_QUERY`] asks what that machine is like.
    Elsewhere(RemotePodman),
}

/// A podman whose containers run on another machine, often a virtual one.
#[derive(Debug)]
pub struct RemotePodman {
    program: String,
    version: Version,
    architecture: String,
}

impl PodmanAnswer {
    /// Reads the answer to [`RuntimeKind::facts_query`].
    pub fn parse(program: &str, machine: &MachineFacts, answer: &[u8]) -> Result<Self, FactsError> {
        let kind = RuntimeKind::Podman;
        let version: PodmanVersion = parse(kind, "its version", answer)?;
        let working = version.server.as_ref().unwrap_or(&version.client);
        let remote = RemotePodman {
            program: program.to_owned(),
            version: checked_version(kind, &working.version)?,
            architecture: linux_architecture(kind, &working.os_arch)?,
        };
        if version.server.is_some() {
            return Ok(Self::Elsewhere(remote));
        }
        let is_rootless = machine.user != 0;
        let limits = match &machine.controllers {
            _ if !is_rootless => LimitsInForce::ALL,
            Controllers::OfRoot => LimitsInForce {
                memory: false,
                processes: false,
            },
            Controllers::Delegated(list) => limits_of(list.split_ascii_whitespace()),
        };
        Ok(Self::Here(RuntimeFacts {
            kind,
            program: remote.program,
            version: remote.version,
            is_rootless,
            limits,
            architecture: remote.architecture,
            has_selinux: machine.has_selinux,
            has_ipv6: machine.has_ipv6,
        }))
    }
}

impl RemotePodman {
    /// Reads the answer to [`RuntimeKind::REMOTE_QUERY`].
    pub fn facts(self, answer: &[u8]) -> Result<RuntimeFacts, FactsError> {
        let kind = RuntimeKind::Podman;
        let PodmanInfo { host } = parse(kind, "its machine", answer)?;
        Ok(RuntimeFacts {
            kind,
            program: self.program,
            version: self.version,
            is_rootless: host.security.rootless,
            limits: limits_of(host.cgroup_controllers.iter().map(String::as_str)),
            architecture: self.architecture,
            has_selinux: host.security.selinux_enabled,
            has_ipv6: true,
        })
    }
}

/// Reads docker's answer to [`RuntimeKind::facts_query`]. The daemon may be on another machine, so
/// only what it says of itself counts; but for IPv6, of which it says nothing, and which is looked
/// for here where the two machines have one name.
pub fn docker_facts(
    program: &str,
    machine: &MachineFacts,
    answer: &[u8],
) -> Result<RuntimeFacts, FactsError> {
    let kind = RuntimeKind::Docker;
    let info: DockerInfo = parse(kind, "its daemon", answer)?;
    if info.server_version.is_empty() {
        let errors = info.server_errors.unwrap_or_default();
        return Err(FactsError::NoDaemon(errors.join("; ")));
    }
    if info.os_type != "linux" {
        return Err(FactsError::System {
            kind,
            system: info.os_type,
        });
    }
    let options = info.security_options.unwrap_or_default();
    let has = |name: &str| {
        options
            .iter()
            .any(|option| option.split(',').any(|part| part == format!("name={name}")))
    };
    Ok(RuntimeFacts {
        kind,
        program: program.to_owned(),
        version: checked_version(kind, &info.server_version)?,
        is_rootless: has("rootless"),
        limits: LimitsInForce {
            memory: info.memory_limit,
            processes: info.pids_limit,
        },
        architecture: image_architecture(&info.architecture).to_owned(),
        has_selinux: has("selinux"),
        has_ipv6: info.name != machine.host || machine.has_ipv6,
    })
}

fn limits_of<'a>(controllers: impl Iterator<Item = &'a str>) -> LimitsInForce {
    let controllers: Vec<&str> = controllers.collect();
    LimitsInForce {
        memory: controllers.contains(&"memory"),
        processes: controllers.contains(&"pids"),
    }
}

fn checked_version(kind: RuntimeKind, text: &str) -> Result<Version, FactsError> {
    let version = Version::parse(text).ok_or_else(|| FactsError::Shape {
        kind,
        what: "its version",
        reason: format!("`{}` is no version", text.escape_default()),
    })?;
    if version < kind.oldest() {
        return Err(FactsError::TooOld { kind, version });
    }
    Ok(version)
}

/// The architecture of `linux/amd64`.
fn linux_architecture(kind: RuntimeKind, text: &str) -> Result<String, FactsError> {
    match text.split_once('/') {
        Some(("linux", architecture)) => Ok(image_architecture(architecture).to_owned()),
        _ => Err(FactsError::System {
            kind,
            system: text.to_owned(),
        }),
    }
}

/// An architecture as images name it (the OCI image specification takes Go's names), from that or
/// from the kernel's name.
fn image_architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// An image that is here.
#[derive(Clone, Debug)]
pub struct ImageFacts {
    /// Its id, `sha256:…`: what containers are made from, so that nothing is looked up twice.
    pub id: String,
    /// Its architecture, `amd64` for one; empty where it says none.
    pub architecture: String,
    /// The digests of its layers, unpacked.
    pub layers: Vec<String>,
    /// What its configuration asks for.
    pub config: ImageConfig,
}

/// An image's configuration: written by a stranger.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    /// The user it wants to run as.
    pub user: String,
    /// The variables it sets.
    pub env: Option<Vec<String>>,
    /// What it runs.
    pub entrypoint: Option<Vec<String>>,
    /// The arguments of that, or what it runs.
    pub cmd: Option<Vec<String>>,
    /// The folders it wants to write to.
    #[serde(deserialize_with = "keys")]
    pub volumes: BTreeSet<String>,
}

/// The keys of an object whose values say nothing.
fn keys<'de, D: Deserializer<'de>>(value: D) -> Result<BTreeSet<String>, D::Error> {
    let object = Option::<serde_json::Map<String, serde_json::Value>>::deserialize(value)?;
    let keys = object.into_iter().flatten().map(|(key, _)| key);
    Ok(keys.collect())
}

/// One image in the answer to `image inspect`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedImage {
    id: String,
    #[serde(default)]
    architecture: String,
    #[serde(rename = "RootFS", default)]
    root_fs: Option<RootFs>,
    #[serde(default)]
    config: Option<ImageConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RootFs {
    #[serde(default)]
    layers: Option<Vec<String>>,
}

impl ImageFacts {
    /// Reads the answer to `image inspect` of one image.
    pub fn parse(kind: RuntimeKind, answer: &[u8]) -> Result<Self, FactsError> {
        let what = "an image";
        let images: Vec<InspectedImage> = parse(kind, what, answer)?;
        let shape = |reason: &str| FactsError::Shape {
            kind,
            what,
            reason: reason.to_owned(),
        };
        let [image] = <[InspectedImage; 1]>::try_from(images)
            .map_err(|images| shape(&format!("{} images in place of one", images.len())))?;
        // podman leaves the prefix out.
        let digits = image.id.strip_prefix("sha256:").unwrap_or(&image.id);
        let id = super::spec::ImageRef::parse(&format!("sha256:{digits}"))
            .map_err(|_| shape("its id is no digest"))?;
        Ok(Self {
            id: id.to_string(),
            architecture: image.architecture,
            layers: image
                .root_fs
                .and_then(|root| root.layers)
                .unwrap_or_default(),
            config: image.config.unwrap_or_default(),
        })
    }
}

fn parse<T: DeserializeOwned>(
    kind: RuntimeKind,
    what: &'static str,
    answer: &[u8],
) -> Result<T, FactsError> {
    serde_json::from_slice(answer).map_err(|error| FactsError::Shape {
        kind,
        what,
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(user: u32, controllers: Controllers) -> MachineFacts {
        MachineFacts {
            host: "desk".to_owned(),
            user,
            controllers,
            has_selinux: false,
            has_ipv6: true,
        }
    }

    #[test]
    fn versions_are_the_numbers_in_front() {
        for (text, version) in [
            ("20.10.24+dfsg1", Some(Version(20, 10, 24))),
            ("28.0.0-rc.1", Some(Version(28, 0, 0))),
            ("4.3.1", Some(Version(4, 3, 1))),
            ("5.0", Some(Version(5, 0, 0))),
            ("v5.0", None),
            ("", None),
            ("5", None),
        ] {
            assert_eq!(Version::parse(text), version, "{text}");
        }
    }

    #[test]
    fn podman_here_is_asked_its_version_alone() {
        let answer =
            br#"{"Client":{"APIVersion":"4.3.1","Version":"4.3.1","OsArch":"linux/amd64"}}"#;
        let facts = |machine: &MachineFacts| match PodmanAnswer::parse("podman", machine, answer) {
            Ok(PodmanAnswer::Here(facts)) => facts,
            other => panic!("{other:?}"),
        };
        let root = facts(&machine(0, Controllers::OfRoot));
        assert!(!root.is_rootless);
        assert_eq!(root.limits, LimitsInForce::ALL);
        assert_eq!(
            (root.version, root.architecture.as_str()),
            (Version(4, 3, 1), "amd64")
        );
        let user = facts(&machine(1000, Controllers::OfRoot));
        assert!(user.is_rootless && !user.limits.memory && !user.limits.processes);
        let user = facts(&machine(
            1000,
            Controllers::Delegated("cpu memory\n".into()),
        ));
        assert!(user.limits.memory && !user.limits.processes);
    }

    #[test]
    fn podman_elsewhere_is_asked_again() {
        let answer = br#"{"Client":{"Version":"5.6.1","OsArch":"darwin/arm64"},
            "Server":{"Version":"5.6.0","OsArch":"linux/arm64"}}"#;
        let machine = machine(501, Controllers::OfRoot);
        let Ok(PodmanAnswer::Elsewhere(remote)) = PodmanAnswer::parse("podman", &machine, answer)
        else {
            panic!("it has a server");
        };
        let facts = remote
            .facts(
                br#"{"host":{"arch":"arm64","cgroupControllers":["memory","pids"],
                "security":{"rootless":true,"selinuxEnabled":true}}}"#,
            )
            .expect("its shape");
        assert!(facts.is_rootless && facts.has_selinux);
        assert_eq!(
            (facts.version, facts.architecture.as_str()),
            (Version(5, 6, 0), "arm64")
        );
    }

    #[test]
    fn docker_speaks_for_its_daemon() {
        let here = MachineFacts {
            has_ipv6: false,
            ..machine(1000, Controllers::OfRoot)
        };
        let answer =
            br#"{"ServerVersion":"20.10.24+dfsg1","OSType":"linux","Architecture":"x86_64",
            "MemoryLimit":true,"PidsLimit":false,
            "SecurityOptions":["name=seccomp,profile=default","name=rootless"]}"#;
        let facts = docker_facts("docker", &here, answer).expect("its shape");
        assert!(
            facts.is_rootless
                && facts.limits.memory
                && !facts.limits.processes
                && !facts.has_selinux
        );
        assert_eq!(facts.architecture, "amd64");
        assert!(facts.has_ipv6, "another machine may have it");
        let named = String::from_utf8_lossy(answer).replace('{', r#"{"Name":"desk","#);
        let facts = docker_facts("docker", &here, named.as_bytes()).expect("its shape");
        assert!(!facts.has_ipv6);
        let windows = br#"{"ServerVersion":"28.0.1","OSType":"windows","Architecture":"x86_64"}"#;
        assert!(matches!(
            docker_facts("docker", &here, windows),
            Err(FactsError::System { .. })
        ));
        let old = br#"{"ServerVersion":"19.3.1","OSType":"linux","Architecture":"x86_64"}"#;
        assert!(matches!(
            docker_facts("docker", &here, old),
            Err(FactsError::TooOld { .. })
        ));
        let down =
            br#"{"ID":"","ServerErrors":["Cannot connect to the Docker daemon"],"ClientInfo":{}}"#;
        assert!(matches!(
            docker_facts("docker", &here, down),
            Err(FactsError::NoDaemon(_))
        ));
        assert!(matches!(
            docker_facts("docker", &here, b"no JSON"),
            Err(FactsError::Shape { .. })
        ));
    }

    #[test]
    fn a_start_that_failed_has_the_code_of_run() {
        let podman = "Error: unable to start container 9c: runc: runc create failed: unable to start \
                      container process: exec: \"/bin/x\": ";
        let docker = "Error response from daemon: failed to create shim task: OCI runtime create \
                      failed: runc create failed: unable to start container process: exec: \"/bin/x\": ";
        for (kind, code, said) in [
            (RuntimeKind::Podman, 125, podman),
            (RuntimeKind::Docker, 1, docker),
        ] {
            let failed =
                |words: &str| kind.start_failure(code, false, format!("{said}{words}").as_bytes());
            assert_eq!(
                failed("stat /bin/x: no such file or directory: unknown"),
                Some(127)
            );
            assert_eq!(failed("permission denied: unknown"), Some(126));
            assert_eq!(failed("something else"), Some(125));
            assert_eq!(kind.start_failure(0, false, said.as_bytes()), None);
            assert_eq!(
                kind.start_failure(code, true, said.as_bytes()),
                None,
                "it was started"
            );
            assert_eq!(
                kind.start_failure(code, false, b"the server's own words"),
                None
            );
        }
    }

    #[test]
    fn an_image_is_known_by_its_id() {
        let digits = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";
        for (kind, prefix) in [(RuntimeKind::Podman, ""), (RuntimeKind::Docker, "sha256:")] {
            let answer = format!(
                r#"[{{"Id":"{prefix}{digits}","Architecture":"amd64","Os":"linux",
                "Config":{{"Volumes":{{"/data":{{}}}},"User":"0","Env":null}},"RootFS":{{"Layers":["sha256:a"]}}}}]"#
            );
            let image = ImageFacts::parse(kind, answer.as_bytes()).expect("its shape");
            assert_eq!(image.id, format!("sha256:{digits}"));
            assert_eq!(image.config.volumes.iter().collect::<Vec<_>>(), ["/data"]);
            assert_eq!(image.layers, ["sha256:a"]);
        }
        for wrong in [
            "[]",
            "{}",
            r#"[{"Id":"x"}]"#,
            r#"[{"Id":"--privileged"}]"#,
            "",
        ] {
            ImageFacts::parse(RuntimeKind::Docker, wrong.as_bytes()).expect_err(wrong);
        }
    }
}
