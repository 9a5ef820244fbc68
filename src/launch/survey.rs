//! What is here: the runtime, the images, our own program. Asked at once, before anything is made.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio::task::spawn_blocking;

use super::exec::{Exec, ExecError, visible};
use super::machine;
use super::plan::{Argv, EMPTY_IMAGE, HOSTS, RESOLVER};
use super::program::{self, ProgramError};
use super::runtime::{
    FactsError, ImageFacts, PodmanAnswer, RuntimeFacts, RuntimeKind, docker_facts,
};
use super::spec::ImageRef;

/// An archive without a file in it: two blocks of zeros (POSIX.1-2024, pax, "ustar Interchange
/// Format").
const EMPTY_ARCHIVE: [u8; 1024] = [0; 1024];
/// The digest of that archive: the one layer of the empty image.
const EMPTY_LAYER: &str = "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";

/// The socket of docker's daemon, where nothing else is configured.
const DOCKER_SOCKET: &str = "/var/run/docker.sock";

/// What a launch is surveyed for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The runtime asked for by name or by path; either, otherwise.
    pub runtime: Option<RuntimeChoice>,
    /// Folders in which a runtime's program is looked for, in order.
    pub folders: Vec<PathBuf>,
    /// The program for the sidecar, where it is given.
    pub proxy_program: Option<PathBuf>,
    /// Where our own files are kept.
    pub cache: PathBuf,
}

/// Which runtime to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeChoice {
    kind: RuntimeKind,
    program: Option<PathBuf>,
}

impl RuntimeChoice {
    /// Parses `podman`, `docker`, or the absolute path of a program with one of these names.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = Path::new(text);
        let name = path.file_name().and_then(|name| name.to_str());
        let kind = RuntimeKind::ALL
            .into_iter()
            .find(|kind| name == Some(kind.program()));
        match kind {
            Some(kind) if text == kind.program() => Ok(Self {
                kind,
                program: None,
            }),
            Some(kind) if path.is_absolute() => Ok(Self {
                kind,
                program: Some(path.to_owned()),
            }),
            Some(_) | None => Err(
                "a runtime is `podman`, `docker`, or the absolute path of one of them".to_owned(),
            ),
        }
    }
}

impl From<RuntimeKind> for RuntimeChoice {
    fn from(kind: RuntimeKind) -> Self {
        Self {
            kind,
            program: None,
        }
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The runtime's program.
    pub found: Found,
    /// The runtime.
    pub runtime: RuntimeFacts,
    /// The server's image.
    pub image: ImageFacts,
    /// The id of the empty image; empty where none is needed.
    pub empty_image: String,
    /// The private copy of our static program; empty where none is needed.
    pub program: String,
    /// The private file with what `/etc/hosts` is to hold.
    pub hosts_file: String,
    /// The private file with what `/etc/resolv.conf` is to hold.
    pub resolver_file: String,
}

/// Why a launch cannot begin.
#[derive(Debug, Error)]
pub enum SurveyError {
    /// No runtime.
    #[error(
        "no container runtime is here: looked for {names} in {folders}; install podman (Debian: \
         apt-get install podman), or say where it is with --runtime /PATH/TO/podman"
    )]
    NoRuntime {
        /// What was looked for.
        names: String,
        /// Where.
        folders: String,
    },
    /// docker's daemon may not be asked.
    #[error(
        "docker's daemon may not be asked by this user: no permission on {socket}; add the user to \
         the group `docker` (which makes it as good as root), or use podman"
    )]
    DaemonPermission {
        /// The daemon's socket.
        socket: String,
    },
    /// docker's daemon is not there.
    #[error("docker's daemon does not answer: {complaint}; start it (systemctl start docker)")]
    DaemonDown {
        /// What docker's client said.
        complaint: String,
    },
    /// The runtime does not work.
    #[error("{kind} does not work here: {complaint}; try `{program} info`")]
    Broken {
        /// The runtime.
        kind: RuntimeKind,
        /// Its program.
        program: String,
        /// What it said.
        complaint: String,
    },
    /// What it said is not understood.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// The image is not here.
    #[error("the image {image} is not here, and nothing is pulled while launching: {remedy}")]
    MissingImage {
        /// The image.
        image: String,
        /// What to do.
        remedy: String,
    },
    /// The empty image could not be made.
    #[error("cannot make the empty image {EMPTY_IMAGE} for the proxy: {complaint}")]
    EmptyImage {
        /// What the runtime said.
        complaint: String,
    },
    /// Our own program cannot be used.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// One of our own files cannot be written.
    #[error("cannot write `{}`: {error}; set XDG_CACHE_HOME to a folder that can be written to", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A command could not be run.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// A thread could not be started or failed.
    #[error("a part of the survey failed: {0}")]
    Join(#[from] tokio::task::JoinError),
}

/// A runtime that was found.
#[derive(Clone, Debug)]
pub struct Found {
    kind: RuntimeKind,
    program: String,
}

impl Found {
    /// Finds the runtime's program.
    pub fn find(request: &Request) -> Result<Self, SurveyError> {
        let kinds = match &request.runtime {
            Some(RuntimeChoice { kind, program }) => {
                if let Some(program) = program {
                    return Ok(Self {
                        kind: *kind,
                        program: program.display().to_string(),
                    });
                }
                vec![*kind]
            }
            None => RuntimeKind::ALL.to_vec(),
        };
        for kind in &kinds {
            let paths = request
                .folders
                .iter()
                .map(|folder| folder.join(kind.program()));
            for path in paths {
                if is_executable(&path) {
                    let program = path.display().to_string();
                    return Ok(Self {
                        kind: *kind,
                        program,
                    });
                }
            }
        }
        let names: Vec<&str> = kinds.iter().map(|kind| kind.program()).collect();
        let folders: Vec<String> = request
            .folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        Err(SurveyError::NoRuntime {
            names: names.join(" and "),
            folders: folders.join(", "),
        })
    }

    /// podman or docker.
    pub fn kind(&self) -> RuntimeKind {
        self.kind
    }

    /// Its program.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// A command line of this runtime's.
    pub fn argv(&self, words: &[&str]) -> Argv {
        Argv::of(&self.program, words)
    }

    /// What pulls an image.
    pub fn pull(&self, image: &ImageRef) -> Argv {
        self.argv(&["pull"]).operand(image.to_string())
    }

    /// Asks the runtime what it is.
    pub async fn facts(&self, exec: &Exec) -> Result<RuntimeFacts, SurveyError> {
        let answer = exec.ask(&self.argv(self.kind.facts_query())).await?;
        if !answer.status.success() {
            return Err(self.broken(exec, answer.complaint()));
        }
        match self.kind {
            RuntimeKind::Docker => {
                match docker_facts(&self.program, &machine::facts(), &answer.stdout) {
                    Ok(facts) => Ok(facts),
                    Err(FactsError::NoDaemon(complaint)) => {
                        Err(self.broken(exec, visible(&complaint)))
                    }
                    Err(error) => Err(error.into()),
                }
            }
            RuntimeKind::Podman => {
                let machine = machine::facts();
                match PodmanAnswer::parse(&self.program, &machine, &answer.stdout)? {
                    PodmanAnswer::Here(facts) => Ok(facts),
                    PodmanAnswer::Elsewhere(remote) => {
                        let query = self.argv(RuntimeKind::REMOTE_QUERY);
                        let answer = exec.ask(&query).await?;
                        if !answer.status.success() {
                            return Err(self.broken(exec, answer.complaint()));
                        }
                        Ok(remote.facts(&answer.stdout)?)
                    }
                }
            }
        }
    }

    /// Why it does not answer, found out by looking rather than by reading its prose.
    fn broken(&self, exec: &Exec, complaint: String) -> SurveyError {
        match self.kind {
            RuntimeKind::Podman => SurveyError::Broken {
                kind: self.kind,
                program: self.program.clone(),
                complaint,
            },
            RuntimeKind::Docker => {
                let host = exec.variable("DOCKER_HOST").and_then(|host| host.to_str());
                let socket = host.map_or(Some(DOCKER_SOCKET), |host| host.strip_prefix("unix://"));
                let Some(socket) = socket else {
                    return SurveyError::DaemonDown { complaint };
                };
                #[expect(
                    clippy::disallowed_methods,
                    reason = "asks whether docker's socket may be used"
                )]
                let connected = std::os::unix::net::UnixStream::connect(socket);
                match connected {
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        SurveyError::DaemonPermission {
                            socket: socket.to_owned(),
                        }
                    }
                    Ok(_) | Err(_) => SurveyError::DaemonDown { complaint },
                }
            }
        }
    }

    /// Asks for an image; `None` where it is not here.
    pub async fn image(&self, exec: &Exec, name: &str) -> Result<Option<ImageFacts>, SurveyError> {
        let question = self.argv(&["image", "inspect", name]);
        let answer = exec.ask(&question).await?;
        if answer.status.success() {
            return Ok(Some(ImageFacts::parse(self.kind, &answer.stdout)?));
        }
        Ok(None)
    }
}

/// Surveys what a launch of `image` needs. A server without a network needs no proxy, and so none of
/// our own program; `server` is its name in a configuration.
pub async fn survey(
    exec: &Arc<Exec>,
    request: &Request,
    image: &ImageRef,
    server: Option<&str>,
    needs_program: bool,
) -> Result<Survey, SurveyError> {
    let found = Found::find(request)?;
    let name = image.to_string();
    let runtime = async {
        let runtime = found.facts(exec).await?;
        let program = if needs_program {
            our_program(request, &runtime.architecture).await
        } else {
            Ok(String::new())
        };
        Ok::<_, SurveyError>((runtime, program))
    };
    let empty = async {
        if needs_program {
            found.image(exec, EMPTY_IMAGE).await
        } else {
            Ok(None)
        }
    };
    let (runtime, asked, empty) = tokio::join!(runtime, found.image(exec, &name), empty);
    // A runtime that does not work has no images either: its own failure is the one to tell.
    let ((runtime, program), asked, empty) = (runtime?, asked?, empty?);
    let image = asked.ok_or_else(|| missing(&found, image, server))?;
    let program = program?;
    let hosts_file = private_file(&request.cache, "hosts", HOSTS)?;
    let resolver_file = private_file(&request.cache, "resolv.conf", RESOLVER)?;
    let empty_image = if needs_program {
        empty_image(&found, exec, empty).await?
    } else {
        String::new()
    };
    Ok(Survey {
        found,
        runtime,
        image,
        empty_image,
        program,
        hosts_file,
        resolver_file,
    })
}

/// The private copy of our own program for this architecture.
async fn our_program(request: &Request, architecture: &str) -> Result<String, SurveyError> {
    let (choice, cache) = (request.proxy_program.clone(), request.cache.clone());
    let architecture = architecture.to_owned();
    let copy = spawn_blocking(move || -> Result<PathBuf, SurveyError> {
        let own = machine::own_program().map_err(|error| SurveyError::File {
            path: PathBuf::from("/proc/self/exe"),
            error,
        })?;
        let program = program::find(choice.as_deref(), &own, &architecture)?;
        Ok(program::private_copy(&program, &cache)?)
    });
    Ok(copy.await??.display().to_string())
}

/// The empty image, made where it is not here: what a doctor without a server looks from.
pub async fn empty(exec: &Exec, request: &Request) -> Result<ImageRef, SurveyError> {
    let found = Found::find(request)?;
    // A runtime that does not work makes no image either: its own failure is the one to tell.
    found.facts(exec).await?;
    let known = found.image(exec, EMPTY_IMAGE).await?;
    let id = empty_image(&found, exec, known).await?;
    ImageRef::parse(&id).map_err(|error| SurveyError::EmptyImage {
        complaint: error.to_string(),
    })
}

fn missing(found: &Found, image: &ImageRef, server: Option<&str>) -> SurveyError {
    let program = found.kind.program();
    let remedy = match server {
        Some(server) if image.has_name() => format!("run `strait pull {server}`"),
        Some(_) | None if image.has_name() => format!("run `{program} pull {image}`"),
        Some(_) | None => {
            format!("an id is of this machine alone; see `{program} images --digests`")
        }
    };
    SurveyError::MissingImage {
        image: image.to_string(),
        remedy,
    }
}

/// The id of the empty image, which is made where there is none, or where what has its name is not
/// empty.
async fn empty_image(
    found: &Found,
    exec: &Exec,
    known: Option<ImageFacts>,
) -> Result<String, SurveyError> {
    if let Some(image) = known.filter(is_empty) {
        return Ok(image.id);
    }
    let made = exec
        .feed(&found.argv(&["import", "-", EMPTY_IMAGE]), &EMPTY_ARCHIVE)
        .await?;
    let complaint = made.complaint();
    let image = found.image(exec, EMPTY_IMAGE).await?;
    image
        .filter(is_empty)
        .map(|image| image.id)
        .ok_or(SurveyError::EmptyImage { complaint })
}

/// Whether an image holds no file and asks for nothing.
fn is_empty(image: &ImageFacts) -> bool {
    let config = &image.config;
    let lists = [&config.env, &config.entrypoint, &config.cmd];
    image.layers == [EMPTY_LAYER]
        && config.volumes.is_empty()
        && lists
            .iter()
            .all(|list| list.as_ref().is_none_or(Vec::is_empty))
}

/// A private file of ours that a container reads.
fn private_file(cache: &Path, name: &str, content: &str) -> Result<String, SurveyError> {
    let path = cache.join(name);
    let at = |error| SurveyError::File {
        path: path.clone(),
        error,
    };
    let is_right = fs::symlink_metadata(&path).is_ok_and(|file| file.is_file())
        && fs::read(&path).is_ok_and(|found| found == content.as_bytes());
    if is_right {
        return Ok(path.display().to_string());
    }
    fs::create_dir_all(cache).map_err(at)?;
    // Whoever launches at the same time has a name of its own, and the last one in place is as good.
    let new = cache.join(format!("{name}.{}", std::process::id()));
    let write = || {
        // What a process with this id left before.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&new)?;
        file.write_all(content.as_bytes())?;
        // The umask does not say who may read it in the container.
        file.set_permissions(fs::Permissions::from_mode(0o444))?;
        fs::rename(&new, &path)
    };
    write().map_err(at)?;
    Ok(path.display().to_string())
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
