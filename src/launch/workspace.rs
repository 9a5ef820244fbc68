//! The folders a server sees: found on the disk, links followed, and known to be in the workspace.
//!
//! A mount is refused if it, or a link on the way to it, leads out of the workspace, and if it and one
//! of the protected places (the configuration, the audit, the proxy's binary, the runtimes' sockets)
//! are in one another: a server that could write there would decide about itself. Folders are compared
//! by their path without links, by every link on the way to a protected place, which could be replaced,
//! and by what the disk says they are, because one folder can have several paths (bind mounts, file
//! systems that fold case).
//!
//! What this cannot defend: the runtime takes a path, not a folder that is held open, and looks it up
//! again. Whoever can change the workspace between this check and the runtime's mount (another server
//! that has its parent folder with `write`, say) can put a link where the folder was. So no folder
//! should be given to one server with `write` in which another has a folder. Nor does it look for
//! hard links to protected files, or for mounts of something else inside the folder.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use thiserror::Error;

use super::spec::{Mount, MountRequest, SpecError};

/// The most links on the way to one place; Linux follows no more (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Why the folders cannot be mounted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkspaceError {
    /// A workspace that depends on the current folder.
    #[error("workspace `{0}` is not an absolute path; write the whole path, from `/`")]
    NotAbsolute(PathBuf),
    /// A workspace that is not there.
    #[error("workspace `{path}` cannot be used: {reason}; make that folder, or name another")]
    NoWorkspace {
        /// The workspace as given.
        path: PathBuf,
        /// What the system says.
        reason: io::ErrorKind,
    },
    /// A workspace that is no folder.
    #[error("workspace `{0}` is not a folder; name the folder that the mounts are in")]
    WorkspaceNotFolder(PathBuf),
    /// The root.
    #[error("workspace `{0}` is the whole file system; name a folder in it")]
    WorkspaceIsRoot(PathBuf),
    /// A workspace among what is protected.
    #[error("workspace `{path}` is in `{protected}`, which no server may see; name another folder")]
    WorkspaceProtected {
        /// The workspace as given.
        path: PathBuf,
        /// What it is in.
        protected: PathBuf,
    },
    /// A folder that is not there.
    #[error(
        "mount `{folder}`: `{path}` cannot be used: {reason}; make that folder, or remove the mount"
    )]
    NoFolder {
        /// The folder as requested.
        folder: PathBuf,
        /// Where it was looked for.
        path: PathBuf,
        /// What the system says.
        reason: io::ErrorKind,
    },
    /// Something else than a folder.
    #[error("mount `{folder}`: `{path}` is not a folder; name the folder that it is in")]
    NotFolder {
        /// The folder as requested.
        folder: PathBuf,
        /// What it leads to.
        path: PathBuf,
    },
    /// A link out of the workspace.
    #[error(
        "mount `{folder}`: the link `{link}` leads out of the workspace, to `{target}`; name a folder \
         in the workspace, or make `{target}` the workspace of this server"
    )]
    LinkOutside {
        /// The folder as requested.
        folder: PathBuf,
        /// The link.
        link: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A link back to the workspace.
    #[error("mount `{folder}` is the whole workspace by the link `{link}`; name a folder in it")]
    LinkToWorkspace {
        /// The folder as requested.
        folder: PathBuf,
        /// The link.
        link: PathBuf,
    },
    /// A folder that holds what no server may see, is in it, or is it.
    #[error(
        "mount `{folder}`: `{path}` and `{protected}`, which no server may see, are one in the other; \
         name a folder apart from it"
    )]
    Protected {
        /// The folder as requested.
        folder: PathBuf,
        /// What it leads to.
        path: PathBuf,
        /// What is protected.
        protected: PathBuf,
    },
    /// A path that a runtime cannot be told.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// Finds the requested folders in the workspace, none of which may touch a protected place.
pub fn resolve(
    workspace: &Path,
    requests: &[MountRequest],
    protected: &[PathBuf],
) -> Result<Vec<Mount>, WorkspaceError> {
    let protected: Vec<_> = protected.iter().map(|path| Protected::new(path)).collect();
    let workspace = resolve_workspace(workspace, &protected)?;
    requests
        .iter()
        .map(|request| resolve_mount(&workspace, request, &protected))
        .collect()
}

/// The workspace without links, checked.
fn resolve_workspace(given: &Path, protected: &[Protected]) -> Result<PathBuf, WorkspaceError> {
    if !given.is_absolute() {
        return Err(WorkspaceError::NotAbsolute(given.to_owned()));
    }
    let unusable = |error: io::Error| WorkspaceError::NoWorkspace {
        path: given.to_owned(),
        reason: error.kind(),
    };
    let workspace = given.canonicalize().map_err(unusable)?;
    if !fs::metadata(&workspace).map_err(unusable)?.is_dir() {
        return Err(WorkspaceError::WorkspaceNotFolder(given.to_owned()));
    }
    if workspace.parent().is_none() {
        return Err(WorkspaceError::WorkspaceIsRoot(given.to_owned()));
    }
    match protected.iter().find(|place| place.holds(&workspace)) {
        Some(place) => Err(WorkspaceError::WorkspaceProtected {
            path: given.to_owned(),
            protected: place.given.clone(),
        }),
        None => Ok(workspace),
    }
}

/// One folder without links, checked.
fn resolve_mount(
    workspace: &Path,
    request: &MountRequest,
    protected: &[Protected],
) -> Result<Mount, WorkspaceError> {
    let folder = || request.folder().to_owned();
    let place = workspace.join(request.folder());
    let unusable = |error: io::Error| WorkspaceError::NoFolder {
        folder: folder(),
        path: place.clone(),
        reason: error.kind(),
    };
    let path = place.canonicalize().map_err(unusable)?;
    if !path.starts_with(workspace) {
        let (link, target) = leaving_link(workspace, request.folder()).unwrap_or((place, path));
        return Err(WorkspaceError::LinkOutside {
            folder: folder(),
            link,
            target,
        });
    }
    if path == workspace {
        return Err(WorkspaceError::LinkToWorkspace {
            folder: folder(),
            link: place,
        });
    }
    if !fs::metadata(&path).map_err(unusable)?.is_dir() {
        return Err(WorkspaceError::NotFolder {
            folder: folder(),
            path,
        });
    }
    let touched = protected
        .iter()
        .find(|place| place.holds(&path) || place.is_in(&path));
    if let Some(touched) = touched {
        return Err(WorkspaceError::Protected {
            folder: folder(),
            path,
            protected: touched.given.clone(),
        });
    }
    Ok(Mount::new(&path, request)?)
}

/// The first part of `folder` that leads out of the workspace, and where it leads.
fn leaving_link(workspace: &Path, folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut link = workspace.to_owned();
    folder.components().find_map(|part| {
        link.push(part);
        let target = link.canonicalize().ok()?;
        (!target.starts_with(workspace)).then(|| (link.clone(), target))
    })
}

/// A place that no mount may touch.
#[derive(Debug)]
struct Protected {
    given: PathBuf,
    /// Where it is without links, and where the links on the way to it are.
    paths: Vec<PathBuf>,
    /// What the disk says it is, if it is there.
    identity: Option<Identity>,
    /// What the disk says of the folders that hold it, and the links on the way to it.
    ancestors: Vec<Identity>,
}

impl Protected {
    fn new(given: &Path) -> Self {
        let paths = places_on_the_way(given);
        Self {
            given: given.to_owned(),
            identity: Identity::of(given),
            ancestors: paths.iter().flat_map(|path| identities(path)).collect(),
            paths,
        }
    }

    /// Whether the folder is in it, or is it. The folder has no links in its path.
    fn holds(&self, folder: &Path) -> bool {
        self.paths.iter().any(|path| folder.starts_with(path))
            || self
                .identity
                .is_some_and(|ours| identities(folder).any(|identity| identity == ours))
    }

    /// Whether it is in the folder, or is it, or is led to by a link in the folder.
    fn is_in(&self, folder: &Path) -> bool {
        self.paths.iter().any(|path| path.starts_with(folder))
            || Identity::of(folder).is_some_and(|identity| self.ancestors.contains(&identity))
    }
}

/// The device and the number of a file: the same for all its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    /// That of what the path leads to.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self(metadata.dev(), metadata.ino()))
    }
}

/// Those of a path and of the folders that hold it, as far as they are there.
fn identities(path: &Path) -> impl Iterator<Item = Identity> {
    path.ancestors().filter_map(Identity::of)
}

/// Where each link on the way to `given` is, and where the way ends, all without links before them.
///
/// What is not there, or cannot be looked at, is taken as it is written: it may come to be there.
fn places_on_the_way(given: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let mut here = PathBuf::from("/");
    // The parts still to go, the next one last.
    let mut ahead = parts_reversed(given);
    while let Some(part) = ahead.pop() {
        match part.components().next() {
            Some(Component::ParentDir) => {
                here.pop();
            }
            Some(Component::RootDir) => here = PathBuf::from("/"),
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
            Some(Component::Normal(name)) => {
                here.push(name);
                // More links than the system follows lead nowhere.
                if let Ok(target) = fs::read_link(&here)
                    && places.len() < MAX_LINKS
                {
                    places.push(here.clone());
                    here.pop();
                    ahead.extend(parts_reversed(&target));
                }
            }
        }
    }
    places.push(here);
    places
}

fn parts_reversed(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().rev();
    parts.map(|part| PathBuf::from(part.as_os_str())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// A folder with `work/docs`, `work/out/deep`, `work/file`, and `outside` beside `work`.
    struct Ground {
        folder: TempDir,
    }

    impl Ground {
        fn new() -> Self {
            let ground = Self {
                folder: TempDir::new().expect("a temporary folder"),
            };
            for folder in ["work/docs", "work/out/deep", "outside/in"] {
                fs::create_dir_all(ground.path(folder)).expect(folder);
            }
            fs::write(ground.path("work/file"), "").expect("a file");
            ground
        }

        /// A path in it, the folder's own path being without links.
        fn path(&self, path: &str) -> PathBuf {
            let folder = self.folder.path().canonicalize().expect("it is there");
            folder.join(path)
        }

        fn link(&self, target: impl AsRef<Path>, link: &str) {
            symlink(target, self.path(link)).expect(link);
        }

        fn resolve(
            &self,
            requests: &[&str],
            protected: &[PathBuf],
        ) -> Result<Vec<Mount>, WorkspaceError> {
            resolve(&self.path("work"), &parsed(requests), protected)
        }

        /// The source of one mount.
        fn source(&self, request: &str) -> PathBuf {
            let mounts = self.resolve(&[request], &[]).expect(request);
            PathBuf::from(mounts[0].source())
        }

        fn is_protected(&self, request: &str, protected: impl Into<PathBuf>) -> bool {
            let protected = protected.into();
            match self.resolve(&[request], std::slice::from_ref(&protected)) {
                Ok(_) => false,
                Err(WorkspaceError::Protected {
                    protected: named, ..
                }) => {
                    assert_eq!(named, protected);
                    true
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn parsed(requests: &[&str]) -> Vec<MountRequest> {
        let parse = |text: &&str| MountRequest::parse(text).expect(text);
        requests.iter().map(parse).collect()
    }

    #[test]
    fn folders_of_the_workspace_are_found() {
        let ground = Ground::new();
        let mounts = ground
            .resolve(&["docs:read", "out/deep:write"], &[ground.path("outside")])
            .expect("good");
        let seen: Vec<_> = mounts
            .iter()
            .map(|mount| (PathBuf::from(mount.source()), mount.target()))
            .collect();
        assert_eq!(
            seen,
            [
                (ground.path("work/docs"), "/workspace/docs"),
                (ground.path("work/out/deep"), "/workspace/out/deep"),
            ]
        );
    }

    #[test]
    fn links_within_the_workspace_are_followed() {
        let ground = Ground::new();
        ground.link("out/deep", "work/short");
        ground.link("work", "alias");
        assert_eq!(ground.source("short:read"), ground.path("work/out/deep"));
        let mounts = resolve(&ground.path("alias"), &parsed(&["docs:read"]), &[]).expect("good");
        assert_eq!(Path::new(mounts[0].source()), ground.path("work/docs"));
        assert_eq!(mounts[0].target(), "/workspace/docs");
    }

    #[test]
    fn a_workspace_is_an_absolute_folder_and_not_all_there_is() {
        let ground = Ground::new();
        let error = |path: &Path, protected: &[PathBuf]| {
            resolve(path, &[], protected).expect_err(&path.display().to_string())
        };
        let relative = Path::new("work");
        assert_eq!(
            error(relative, &[]),
            WorkspaceError::NotAbsolute(relative.to_owned())
        );
        let missing = ground.path("missing");
        assert_eq!(
            error(&missing, &[]),
            WorkspaceError::NoWorkspace {
                path: missing.clone(),
                reason: io::ErrorKind::NotFound,
            }
        );
        let file = ground.path("work/file");
        assert_eq!(error(&file, &[]), WorkspaceError::WorkspaceNotFolder(file));
        ground.link("/", "root");
        for root in [PathBuf::from("/"), ground.path("root"), "/usr/..".into()] {
            assert_eq!(error(&root, &[]), WorkspaceError::WorkspaceIsRoot(root));
        }
        ground.link("outside/in", "inside");
        for path in ["outside", "outside/in", "inside"].map(|path| ground.path(path)) {
            assert_eq!(
                error(&path, &[ground.path("outside")]),
                WorkspaceError::WorkspaceProtected {
                    path,
                    protected: ground.path("outside"),
                }
            );
        }
    }

    #[test]
    fn a_workspace_may_hold_what_its_mounts_do_not() {
        let ground = Ground::new();
        ground
            .resolve(&["docs:write"], &[ground.path("work/out")])
            .expect("apart");
    }

    #[test]
    fn a_mount_is_a_folder_that_is_there() {
        let ground = Ground::new();
        ground.link("nowhere", "work/dangling");
        ground.link("loop", "work/loop");
        for request in ["missing:read", "dangling:read"] {
            let error = ground.resolve(&[request], &[]).expect_err(request);
            assert!(
                matches!(
                    error,
                    WorkspaceError::NoFolder {
                        reason: io::ErrorKind::NotFound,
                        ..
                    }
                ),
                "{error}"
            );
        }
        let error = ground.resolve(&["loop:read"], &[]).expect_err("a loop");
        assert!(matches!(error, WorkspaceError::NoFolder { .. }), "{error}");
        let error = ground.resolve(&["file:read"], &[]).expect_err("a file");
        assert_eq!(
            error,
            WorkspaceError::NotFolder {
                folder: "file".into(),
                path: ground.path("work/file"),
            }
        );
    }

    #[test]
    fn a_link_out_of_the_workspace_is_refused_and_named() {
        let ground = Ground::new();
        ground.link("../outside", "work/away");
        ground.link(ground.path("outside/in"), "work/docs/away");
        ground.link("..", "work/up");
        // The name of a sibling begins as the workspace's does.
        fs::create_dir(ground.path("work-2")).expect("a folder");
        ground.link("../work-2", "work/sibling");
        for (request, link, target) in [
            ("away:read", "work/away", "outside"),
            ("away/in:read", "work/away", "outside"),
            ("docs/away:write", "work/docs/away", "outside/in"),
            ("up:read", "work/up", ""),
            ("up/outside:read", "work/up", ""),
            ("sibling:read", "work/sibling", "work-2"),
        ] {
            let error = ground.resolve(&[request], &[]).expect_err(request);
            let WorkspaceError::LinkOutside {
                link: named,
                target: led,
                ..
            } = error
            else {
                panic!("{request}: {error}")
            };
            assert_eq!(named, ground.path(link), "{request}");
            assert_eq!(led, ground.path(target), "{request}");
        }
        ground.link(".", "work/self");
        let error = ground.resolve(&["self:read"], &[]).expect_err("itself");
        assert!(
            matches!(error, WorkspaceError::LinkToWorkspace { .. }),
            "{error}"
        );
    }

    #[test]
    fn a_mount_and_a_protected_place_are_apart() {
        let ground = Ground::new();
        assert!(ground.is_protected("docs:read", ground.path("work/docs")));
        assert!(ground.is_protected("out:read", ground.path("work/out/deep")));
        assert!(ground.is_protected("out/deep:read", ground.path("work/out")));
        assert!(ground.is_protected("out:read", ground.path("work/docs/../out/deep")));
        assert!(!ground.is_protected("docs:read", ground.path("work/out")));
        assert!(!ground.is_protected("docs:read", ground.path("work/doc")));
        // A file beside it is not in it.
        assert!(!ground.is_protected("docs:read", ground.path("work/file")));
    }

    #[test]
    fn what_is_not_there_yet_is_protected_where_it_would_be() {
        let ground = Ground::new();
        ground.link("work/out", "state");
        assert!(ground.is_protected("out:write", ground.path("work/out/new/strait")));
        assert!(ground.is_protected("out:write", ground.path("state/new/strait")));
        assert!(ground.is_protected("out:write", ground.path("missing/../work/out/new")));
        assert!(!ground.is_protected("docs:write", ground.path("state/new/strait")));
    }

    #[test]
    fn a_link_to_what_is_protected_is_protected_too() {
        let ground = Ground::new();
        // Whoever can write the folder of the link decides where it leads.
        ground.link("../../outside", "work/out/config");
        assert!(ground.is_protected("out:write", ground.path("work/out/config")));
        assert!(ground.is_protected("out:write", ground.path("work/out/config/strait.toml")));
        assert!(!ground.is_protected("out/deep:write", ground.path("work/out/config")));
        // A link without an end protects both: where it is, and where it leads.
        ground.link(ground.path("work/docs/later"), "work/out/dangling");
        assert!(ground.is_protected("out:write", ground.path("work/out/dangling/a")));
        assert!(ground.is_protected("docs:write", ground.path("work/out/dangling/a")));
        // A link in the folder to what is protected lets nobody see more than the link.
        assert!(!ground.is_protected("out:write", ground.path("outside")));
    }

    #[test]
    fn a_chain_of_links_ends() {
        let ground = Ground::new();
        ground.link("b", "a");
        ground.link("a", "b");
        assert!(!ground.is_protected("docs:read", ground.path("a/strait")));
    }

    #[test]
    fn a_path_that_a_runtime_cannot_be_told_is_refused() {
        let ground = Ground::new();
        fs::create_dir(ground.path("work/a,b")).expect("a folder");
        ground.link("a,b", "work/plain");
        assert_eq!(
            ground.resolve(&["plain:read"], &[]),
            Err(WorkspaceError::Spec(SpecError::MountCharacters(
                "plain".into()
            )))
        );
    }
}
