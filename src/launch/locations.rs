//! Where things live on this machine: the configuration, the audit, the cache, and where a runtime
//! is looked for.
//!
//! All of it is worked out from the environment, the user and the home folder; nothing is looked up
//! on the disk. No place depends on the current folder: an MCP client may start us in a repository
//! that nobody has reviewed, and that must supply neither a `strait.toml` nor a `podman`.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::spec::ServerName;

/// Where distributions, and the runtimes' own installers, put podman and docker on Linux.
const LINUX_FOLDERS: [&str; 8] = [
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    // What they start is there, and in no ordinary user's PATH: iptables, for netavark.
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
    "/snap/bin",
    // NixOS has nothing in the others.
    "/run/current-system/sw/bin",
];
/// The same in the home folder; docker's rootless installer takes `~/bin`.
const LINUX_HOME_FOLDERS: [&str; 3] = [".local/bin", "bin", ".nix-profile/bin"];
/// The same on macOS, where a program started from the Finder has none of them in its PATH
/// (mcpproxy-go issues 696 and 715).
const MACOS_FOLDERS: [&str; 6] = [
    "/opt/homebrew/bin",
    "/opt/podman/bin",
    "/usr/local/bin",
    "/Applications/Docker.app/Contents/Resources/bin",
    "/usr/bin",
    "/bin",
];
/// The same in the home folder.
const MACOS_HOME_FOLDERS: [&str; 3] = [".docker/bin", ".orbstack/bin", ".rd/bin"];

/// A system that can launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Linux.
    Linux,
    /// macOS.
    MacOs,
}

impl System {
    /// The one this program was made for.
    pub const HERE: Self = if cfg!(target_os = "macos") {
        Self::MacOs
    } else {
        Self::Linux
    };
}

/// Why nothing has a place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LocationsError {
    /// A home that depends on the current folder, or is none.
    #[error("the home folder `{0}` is not an absolute path; set HOME to the user's own folder")]
    Home(PathBuf),
}

/// Where things live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locations {
    home: PathBuf,
    config: PathBuf,
    state: PathBuf,
    cache: PathBuf,
    runtime: PathBuf,
    has_runtime_variable: bool,
    programs: Vec<PathBuf>,
}

impl Locations {
    /// Works them out, from a look-up in the environment, the user's id and the home folder.
    pub fn new(
        system: System,
        variable: impl Fn(&str) -> Option<OsString>,
        user: u32,
        home: &Path,
    ) -> Result<Self, LocationsError> {
        if !home.is_absolute() {
            return Err(LocationsError::Home(home.to_owned()));
        }
        // "All paths set in these environment variables must be absolute. If an implementation
        // encounters a relative path in any of these variables it should consider the path invalid
        // and ignore it." (XDG Base Directory Specification 0.8)
        let folder = |name: &str| {
            variable(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let ours = |name: &str, default: &str| {
            let parent = folder(name).unwrap_or_else(|| home.join(default));
            parent.join("strait")
        };
        let runtime = folder("XDG_RUNTIME_DIR");
        Ok(Self {
            config: ours("XDG_CONFIG_HOME", ".config"),
            state: ours("XDG_STATE_HOME", ".local/state"),
            cache: ours("XDG_CACHE_HOME", ".cache"),
            has_runtime_variable: runtime.is_some(),
            runtime: runtime.unwrap_or_else(|| PathBuf::from(format!("/run/user/{user}"))),
            programs: program_folders(system, variable("PATH"), home),
            home: home.to_owned(),
        })
    }

    /// The home folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// `strait.toml`, where no other is named.
    pub fn config_file(&self) -> PathBuf {
        self.config.join("strait.toml")
    }

    /// The folder of what is written: the audit.
    pub fn state_folder(&self) -> &Path {
        &self.state
    }

    /// The file that a server's attempts are recorded in.
    pub fn audit_file(&self, server: &ServerName) -> PathBuf {
        self.state.join(format!("{server}.jsonl"))
    }

    /// The folder of what can be made again: the private copy of the proxy's binary.
    pub fn cache_folder(&self) -> &Path {
        &self.cache
    }

    /// The user's runtime folder, which a rootless podman needs to be told.
    pub fn runtime_folder(&self) -> &Path {
        &self.runtime
    }

    /// The runtime folder, if the environment did not name it. MCP clients strip `XDG_RUNTIME_DIR`;
    /// it is to be handed on only if it is there and the user's own, which is not known here.
    pub fn derived_runtime_folder(&self) -> Option<&Path> {
        (!self.has_runtime_variable).then_some(self.runtime.as_path())
    }

    /// Where podman and docker are looked for, in this order: PATH, then their usual places.
    pub fn program_folders(&self) -> &[PathBuf] {
        &self.programs
    }

    /// What no server may see or change, when the configuration is read from `config_file`: what
    /// decides about servers, what is recorded of them, and the sockets through which a runtime
    /// does what it is told.
    ///
    /// Where `config_file` is the default, its whole folder is ours; elsewhere, often in a project,
    /// only the file is.
    pub fn protected(&self, config_file: &Path) -> Vec<PathBuf> {
        let mut protected = vec![self.config.clone(), self.state.clone(), self.cache.clone()];
        if config_file != self.config_file() {
            protected.push(config_file.to_owned());
        }
        let in_runtime = ["podman", "docker.sock", "docker", "containerd"];
        protected.extend(in_runtime.map(|name| self.runtime.join(name)));
        let of_system = [
            "/run/podman",
            "/run/docker.sock",
            "/var/run/docker.sock",
            "/run/containerd",
        ];
        protected.extend(of_system.map(PathBuf::from));
        // The machines of Docker Desktop, OrbStack, Rancher Desktop, Colima and podman.
        let in_home = [
            ".docker/run",
            ".docker/desktop",
            ".orbstack/run",
            ".rd",
            ".colima",
            ".local/share/containers/podman/machine",
        ];
        protected.extend(in_home.map(|name| self.home.join(name)));
        protected
    }
}

/// The folders of PATH that do not depend on the current one, then the usual ones.
fn program_folders(system: System, path: Option<OsString>, home: &Path) -> Vec<PathBuf> {
    let (folders, home_folders): (&[&str], &[&str]) = match system {
        System::Linux => (&LINUX_FOLDERS, &LINUX_HOME_FOLDERS),
        System::MacOs => (&MACOS_FOLDERS, &MACOS_HOME_FOLDERS),
    };
    let path = path.unwrap_or_default();
    let all = env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .chain(folders.iter().map(PathBuf::from))
        .chain(home_folders.iter().map(|folder| home.join(folder)));
    let mut once = Vec::new();
    for folder in all {
        if !once.contains(&folder) {
            once.push(folder);
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "/home/me";

    fn locations(variables: &[(&str, &str)]) -> Locations {
        let variable = |name: &str| {
            variables
                .iter()
                .find(|(given, _)| *given == name)
                .map(|(_, value)| OsString::from(value))
        };
        Locations::new(System::Linux, variable, 1000, Path::new(HOME)).expect("a home")
    }

    #[test]
    fn without_an_environment_everything_is_in_the_home_folder() {
        let locations = locations(&[]);
        let notion = ServerName::parse("notion").expect("a name");
        for (place, expected) in [
            (
                locations.config_file(),
                "/home/me/.config/strait/strait.toml",
            ),
            (
                locations.state_folder().to_owned(),
                "/home/me/.local/state/strait",
            ),
            (
                locations.audit_file(&notion),
                "/home/me/.local/state/strait/notion.jsonl",
            ),
            (
                locations.cache_folder().to_owned(),
                "/home/me/.cache/strait",
            ),
            (locations.runtime_folder().to_owned(), "/run/user/1000"),
        ] {
            assert_eq!(place, Path::new(expected));
        }
        assert_eq!(
            locations.derived_runtime_folder(),
            Some(Path::new("/run/user/1000"))
        );
    }

    #[test]
    fn the_environment_moves_them_only_to_absolute_places() {
        let moved = locations(&[
            ("XDG_CONFIG_HOME", "/c"),
            ("XDG_STATE_HOME", "/s"),
            ("XDG_CACHE_HOME", "/k"),
            ("XDG_RUNTIME_DIR", "/r"),
        ]);
        assert_eq!(moved.config_file(), Path::new("/c/strait/strait.toml"));
        assert_eq!(moved.state_folder(), Path::new("/s/strait"));
        assert_eq!(moved.cache_folder(), Path::new("/k/strait"));
        assert_eq!(moved.runtime_folder(), Path::new("/r"));
        assert_eq!(moved.derived_runtime_folder(), None);
        for value in ["", ".", "config", "./config", "../config"] {
            let names = [
                "XDG_CONFIG_HOME",
                "XDG_STATE_HOME",
                "XDG_CACHE_HOME",
                "XDG_RUNTIME_DIR",
            ];
            let variables = names.map(|name| (name, value));
            assert_eq!(locations(&variables), locations(&[]), "{value:?}");
        }
    }

    #[test]
    fn a_home_that_is_no_absolute_path_is_refused() {
        for home in ["", ".", "home/me", "~"] {
            let home = Path::new(home);
            assert_eq!(
                Locations::new(System::Linux, |_| None, 0, home),
                Err(LocationsError::Home(home.to_owned()))
            );
        }
    }

    #[test]
    fn a_runtime_is_looked_for_in_path_and_then_in_the_usual_places() {
        let found = locations(&[("PATH", "/opt/bin:/usr/bin")]);
        let expected = [
            "/opt/bin",
            "/usr/bin",
            "/usr/local/bin",
            "/bin",
            "/usr/local/sbin",
            "/usr/sbin",
            "/sbin",
            "/snap/bin",
            "/run/current-system/sw/bin",
            "/home/me/.local/bin",
            "/home/me/bin",
            "/home/me/.nix-profile/bin",
        ];
        assert_eq!(found.program_folders(), expected.map(PathBuf::from));
        let none = |_: &str| None;
        let mac = Locations::new(System::MacOs, none, 501, Path::new("/Users/me")).expect("a home");
        let expected = [
            "/opt/homebrew/bin",
            "/opt/podman/bin",
            "/usr/local/bin",
            "/Applications/Docker.app/Contents/Resources/bin",
            "/usr/bin",
            "/bin",
            "/Users/me/.docker/bin",
            "/Users/me/.orbstack/bin",
            "/Users/me/.rd/bin",
        ];
        assert_eq!(mac.program_folders(), expected.map(PathBuf::from));
    }

    #[test]
    fn path_never_leads_to_the_current_folder() {
        for path in ["", ":", ".", "::.:bin:./bin:../bin:~/bin"] {
            assert_eq!(
                locations(&[("PATH", path)]).program_folders(),
                locations(&[]).program_folders(),
                "{path:?}"
            );
        }
        assert!(
            locations(&[])
                .program_folders()
                .iter()
                .all(|folder| folder.is_absolute())
        );
    }

    #[test]
    fn a_configuration_of_its_own_place_is_protected_without_its_neighbours() {
        let locations = locations(&[]);
        let default = locations.protected(&locations.config_file());
        assert!(default.contains(&PathBuf::from("/home/me/.config/strait")));
        assert!(default.contains(&PathBuf::from("/run/user/1000/podman")));
        assert!(default.iter().all(|path| path.is_absolute()));
        let own = locations.protected(Path::new("/home/me/project/strait.toml"));
        assert!(own.contains(&PathBuf::from("/home/me/project/strait.toml")));
        assert!(!own.contains(&PathBuf::from("/home/me/project")));
        assert!(own.contains(&PathBuf::from("/home/me/.config/strait")));
    }
}
