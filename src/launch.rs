//! An MCP server in a sandbox: its container on a network whose only way out is `strait proxy`.
//!
//! [`Launch::run`] is the life of a launch as a list; the rest are its leaves.

pub mod audit_file;
pub mod clean_up;
pub mod config;
pub mod doctor;
pub mod exec;
pub mod locations;
pub mod machine;
pub mod owner;
pub mod plan;
pub mod program;
pub mod reaper;
pub mod redact;
pub mod report;
pub mod runtime;
pub mod snippet;
pub mod spec;
pub mod supervise;
pub mod survey;
pub mod sweep;
pub mod workspace;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::signal;
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::audit_file::{AuditError, AuditFile, DEFAULT_CAP};
use self::clean_up::clean_up;
use self::exec::{Exec, ExecError, Leash};
use self::owner::Owner;
use self::plan::{Inmate, Plan, PlanError, Scene, Sidecar, Step, Subnets, Undo};
use self::reaper::{Reaper, ReaperError};
use self::redact::Redactor;
use self::report::Report;
use self::spec::{EnvName, LaunchSpec, RunId};
use self::supervise::{Cause, Notice, Proxy, ProxyError, Recorder, Server};
use self::survey::{Survey, SurveyError};
use self::sweep::{Swept, sweep};
use crate::stdio;

/// How long the sidecar may take from its start to listening.
const PROXY_READY: Duration = Duration::from_secs(15);
/// How long after the server's start the sweep begins at the latest.
const SWEEP_LATEST: Duration = Duration::from_secs(5);
/// The exit code of launch's own failures, as the runtimes use it.
pub const FAILED: u8 = 125;
/// Added to a signal's number, as shells do.
const SIGNALLED: u8 = 128;

/// What a launch needs beside its spec.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The environment of this process, completed: what the runtime's commands get, and where the
    /// values of the server's variables are.
    pub environment: Vec<(OsString, OsString)>,
    /// Where attempts are recorded, if they are.
    pub audit: Option<PathBuf>,
    /// How long the server has to end by itself after its client has.
    pub grace: Duration,
    /// Whether the server stands in a configuration, which refusals then speak of.
    pub is_configured: bool,
    /// Says something to the user.
    pub notice: Notice,
}

/// Why a launch failed.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The runtime, the images or our own program are not as needed.
    #[error(transparent)]
    Survey(#[from] SurveyError),
    /// There is no plan for these.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The attempts could not be recorded.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The reaper is not there.
    #[error(transparent)]
    Reaper(#[from] ReaperError),
    /// A command could not be run.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// A step failed.
    #[error("cannot {title}: {complaint}")]
    Step {
        /// What it was to do.
        title: &'static str,
        /// What the runtime said.
        complaint: String,
    },
    /// No network could be made.
    #[error(
        "cannot make a network: {complaint}; tried {} small ones of strait's own too. `strait sweep` \
         removes what dead launches left, and `{program} network ls` shows what is there",
        Subnets::TRIES
    )]
    Networks {
        /// The runtime's program.
        program: String,
        /// What the runtime said, the first time.
        complaint: String,
    },
    /// The proxy is not there.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// Something of this process failed.
    #[error("{0}")]
    Process(#[from] io::Error),
    /// A signal came before the server was started.
    #[error("stopped by a signal")]
    Signal(u8),
    /// The client went before the server was started.
    #[error("the client has gone before the server was started")]
    ClientGone,
}

impl LaunchError {
    /// The exit code that tells it.
    pub fn code(&self) -> u8 {
        match self {
            Self::Signal(number) => SIGNALLED.saturating_add(*number),
            Self::Survey(_)
            | Self::Plan(_)
            | Self::Audit(_)
            | Self::Reaper(_)
            | Self::Exec(_)
            | Self::Step { .. }
            | Self::Networks { .. }
            | Self::Proxy(_)
            | Self::Process(_)
            | Self::ClientGone => FAILED,
        }
    }
}

/// A server, ready to be launched.
#[derive(Debug)]
pub struct Launch {
    /// What is launched.
    pub spec: LaunchSpec,
    /// What this machine and its runtime are like.
    pub survey: Survey,
    /// What else it needs.
    pub setting: Setting,
    /// Which launch it is.
    pub run: RunId,
    /// Whose.
    pub owner: Owner,
}

impl Launch {
    /// What makes the server's standard error harmless.
    fn redactor(&self) -> Redactor {
        let environment = &self.setting.environment;
        let value = |name: &EnvName| {
            let set = environment.iter().find(|(set, _)| set == name.as_str());
            let value = set.map(|(_, value)| value.as_bytes().to_vec());
            (name.clone(), value.unwrap_or_default())
        };
        let (redactor, short) = Redactor::new(self.spec.parts().secret.iter().map(value));
        for name in short {
            (self.setting.notice)(&format!(
                "secret `{}` is too short to be replaced in what the server says on standard error",
                name.as_str()
            ));
        }
        redactor
    }

    fn audit_file(&self) -> Result<Option<AuditFile>, AuditError> {
        let path = self.setting.audit.as_deref();
        path.map(|path| AuditFile::open(path, DEFAULT_CAP))
            .transpose()
    }

    /// The plan, as it would be carried out on the first try.
    pub fn plan(&self, inmate: Inmate, subnets: Subnets) -> Result<Plan, PlanError> {
        Plan::new(&Scene {
            spec: &self.spec,
            runtime: &self.survey.runtime,
            image: &self.survey.image,
            empty_image: &self.survey.empty_image,
            program: &self.survey.program,
            hosts_file: &self.survey.hosts_file,
            resolver_file: &self.survey.resolver_file,
            run: &self.run,
            owner: &self.owner,
            user: machine::user(),
            subnets,
            inmate,
        })
    }

    /// Launches the server and stays with it until it has ended:
    ///
    /// 1. **plan**: every command line, and what takes its effect back;
    /// 2. start the **reaper**, which takes it all back should this process be killed;
    /// 3. make the **networks**, on other addresses where one is taken;
    /// 4. make both **containers** at once, start the **proxy** and wait until it listens;
    /// 5. start the **server**, and join its streams with ours;
    /// 6. **supervise** until the first of them ends;
    /// 7. **clean up**, whatever happened.
    ///
    /// Returns the exit code: the server's own, or one of ours.
    pub async fn run(self, mut stop: Stop) -> Result<u8, LaunchError> {
        let plan = self.plan(Inmate::Server, Subnets::default())?;
        let file = self.audit_file()?;
        for note in &plan.notes {
            (self.setting.notice)(note);
        }
        let ground = Ground::prepare(&self.setting, plan.undo()).await?;
        let outcome = async {
            let built = self.build(plan, file, &ground.exec, &stop).await?;
            self.stay(built, &ground.exec, &mut stop).await
        };
        let outcome = outcome.await;
        ground.leave(self.setting.notice).await?;
        outcome
    }

    /// Steps 3 and 4. Nothing is under way any more when this returns, so nothing is made behind the
    /// clean-up.
    async fn build(
        &self,
        plan: Plan,
        file: Option<AuditFile>,
        exec: &Arc<Exec>,
        stop: &Stop,
    ) -> Result<Built, LaunchError> {
        let plan = self.make_networks(plan, exec, stop).await?;
        self.make_containers(plan, file, exec, stop).await
    }

    /// Step 4.
    async fn make_containers(
        &self,
        plan: Plan,
        file: Option<AuditFile>,
        exec: &Arc<Exec>,
        stop: &Stop,
    ) -> Result<Built, LaunchError> {
        let workload = tokio::spawn(act(Arc::clone(exec), plan.workload.create.clone()));
        let proxy = match &plan.sidecar {
            Some(sidecar) => self.start_proxy(sidecar, file, exec).await.map(Some),
            None => Ok(None),
        };
        workload.await.map_err(io::Error::other)??;
        let proxy = proxy?;
        stop.check()?;
        Ok(Built { plan, proxy })
    }

    /// Steps 5 and 6.
    async fn stay(
        &self,
        built: Built,
        exec: &Arc<Exec>,
        stop: &mut Stop,
    ) -> Result<u8, LaunchError> {
        let Built { plan, mut proxy } = built;
        let mut server = Server::join(exec.attach(&plan.workload.start)?, self.redactor())?;
        let answered = server.answered();
        let sweeping = tokio::spawn(self.sweep_aside(answered));
        let grace = self.setting.grace;
        let cause = server.supervise(proxy.as_mut(), stop.signal(), grace).await;
        if let Some(reason) = reason(&cause) {
            (self.setting.notice)(&reason);
        }
        sweeping.abort();
        // At once: what the server had asked for by then has its line from a proxy that is cut, too.
        let removal = async {
            if !matches!(cause, Cause::Server(_)) {
                let undo = plan.workload.create.undo.into_iter().collect();
                clean_up(exec, &[undo]).await;
            }
            server.end().await
        };
        let last_lines = async {
            if let Some(proxy) = proxy {
                proxy.end().await;
            }
        };
        let (ended, ()) = tokio::join!(removal, last_lines);
        Ok(match cause {
            Cause::Server(code) => {
                let kind = self.survey.runtime.kind;
                kind.start_failure(code, ended.has_written, &ended.last_words)
                    .unwrap_or(code)
            }
            Cause::Client => ended.code.unwrap_or(0),
            Cause::Signal(number) => SIGNALLED.saturating_add(number),
            Cause::Proxy | Cause::Audit(_) => FAILED,
        })
    }

    /// Removes what dead launches left, once the server has `answered`: its client waits for that, and
    /// a sweep takes as much of the machine as a start does.
    fn sweep_aside<F: Future<Output = ()>>(
        &self,
        answered: F,
    ) -> impl Future<Output = ()> + use<F> {
        let exec = Exec::new(self.setting.environment.clone());
        let (found, owner) = (self.survey.found.clone(), self.owner.clone());
        let notice = self.setting.notice;
        async move {
            // One that says nothing for long is not waited for.
            drop(timeout(SWEEP_LATEST, answered).await);
            // Whether it works is no matter of this launch; `strait sweep` tells.
            for Swept { left, complaint } in sweep(&exec, &found, &owner).await.unwrap_or_default()
            {
                let what = left.what.word();
                notice(&match complaint {
                    None => format!("removed {what} {}, which a dead launch left", left.name),
                    Some(complaint) => format!("cannot remove {what} {}: {complaint}", left.name),
                });
            }
        }
    }

    /// Makes the networks. Where that fails, what is taken is not known without reading prose: the
    /// sweep makes room, then other addresses are tried, and then the first failure is told.
    async fn make_networks(
        &self,
        mut plan: Plan,
        exec: &Arc<Exec>,
        stop: &Stop,
    ) -> Result<Plan, LaunchError> {
        let mut first = None;
        for taken in 0..Subnets::TRIES {
            stop.check()?;
            match act_all(exec, &plan.networks).await {
                Ok(()) => return Ok(plan),
                Err(error) => {
                    // The names are used again.
                    let [_, networks] = plan.undo();
                    clean_up(exec, &[networks]).await;
                    if first.is_none() {
                        first = Some(error);
                        // It tells of itself; whether it made room, the next try says.
                        drop(sweep(exec, &self.survey.found, &self.owner).await);
                    }
                }
            }
            plan = self.plan(
                plan.inmate,
                Subnets {
                    taken: taken + 1,
                    is_outer_ours: taken > 0,
                },
            )?;
        }
        Err(match first {
            Some(LaunchError::Step { complaint, .. }) => LaunchError::Networks {
                program: self.survey.runtime.program.clone(),
                complaint,
            },
            Some(error) => error,
            None => LaunchError::ClientGone,
        })
    }

    async fn start_proxy(
        &self,
        sidecar: &Sidecar,
        file: Option<AuditFile>,
        exec: &Arc<Exec>,
    ) -> Result<Proxy, LaunchError> {
        for step in &sidecar.steps {
            act(Arc::clone(exec), step.clone()).await?;
        }
        let rules = self.spec.policy().rules().iter();
        let record = Recorder {
            report: Report::new(self.spec.name(), self.setting.is_configured),
            entries: rules.map(ToString::to_string).collect(),
            file,
            notice: self.setting.notice,
        };
        let attached = exec.attach(&sidecar.start)?;
        let proxy = Proxy::ready(attached, record, PROXY_READY);
        Ok(proxy.await?)
    }
}

/// What is there before anything is made, and takes back whatever is made on it.
#[derive(Debug)]
struct Ground {
    exec: Arc<Exec>,
    reaper: Reaper,
    groups: [Vec<Undo>; 2],
}

impl Ground {
    /// Starts the reaper, and what runs commands on its leash.
    async fn prepare(setting: &Setting, groups: [Vec<Undo>; 2]) -> Result<Self, LaunchError> {
        let (leash, leash_end) = Leash::new()?;
        let exec = Arc::new(Exec::new(setting.environment.clone()).on(leash));
        let reaper = Reaper::start(&exec, &machine::own_program()?, leash_end, &groups).await?;
        Ok(Self {
            exec,
            reaper,
            groups,
        })
    }

    /// Cleans up. What cannot be removed now is left to the reaper, which has the time that a client
    /// does not give.
    async fn leave(self, notice: Notice) -> io::Result<()> {
        let left = clean_up(&self.exec, &self.groups).await;
        if left.is_empty() {
            return self.reaper.release().await;
        }
        for what in left {
            notice(&format!("{what}; removing it goes on in the background"));
        }
        Ok(())
    }
}

/// Both containers, made; the proxy listens.
#[derive(Debug)]
struct Built {
    plan: Plan,
    proxy: Option<Proxy>,
}

/// The signals that stop a launch, and the client that may go before there is a server to tell.
#[derive(Clone, Debug)]
pub struct Stop {
    signal: watch::Receiver<u8>,
    has_client: bool,
}

impl Stop {
    /// Takes the signals that would end this process: it ends by itself, once nothing is left.
    pub fn watch() -> io::Result<Self> {
        let (tell, signal) = watch::channel(0);
        for kind in [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ] {
            let mut arriving = signal::unix::signal(kind)?;
            let tell = tell.clone();
            tokio::spawn(async move {
                while arriving.recv().await.is_some() {
                    tell.send_replace(u8::try_from(kind.as_raw_value()).unwrap_or(u8::MAX));
                }
            });
        }
        Ok(Self {
            signal,
            has_client: true,
        })
    }

    /// The signals alone: standard input is nobody's.
    #[must_use]
    pub fn without_client(self) -> Self {
        Self {
            has_client: false,
            ..self
        }
    }

    /// Whether to go on.
    fn check(&self) -> Result<(), LaunchError> {
        match *self.signal.borrow() {
            0 if self.has_client && stdio::has_ended(io::stdin().as_fd()) => {
                Err(LaunchError::ClientGone)
            }
            0 => Ok(()),
            number => Err(LaunchError::Signal(number)),
        }
    }

    /// The signal, once there is one.
    async fn signal(&mut self) -> u8 {
        match self.signal.wait_for(|number| *number != 0).await {
            Ok(number) => *number,
            // Nobody is left who could tell.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Runs one step to its end.
async fn act(exec: Arc<Exec>, step: Step) -> Result<(), LaunchError> {
    let done = exec.act(&step.argv).await?;
    if done.status.success() {
        return Ok(());
    }
    Err(LaunchError::Step {
        title: step.title,
        complaint: done.complaint(),
    })
}

/// Runs steps at once, all of them to their end; the first error is the one told.
async fn act_all(exec: &Arc<Exec>, steps: &[Step]) -> Result<(), LaunchError> {
    let mut running = JoinSet::new();
    for step in steps {
        running.spawn(act(Arc::clone(exec), step.clone()));
    }
    running.join_all().await.into_iter().collect()
}

/// What to tell the user of an end that was not the server's own.
fn reason(cause: &Cause) -> Option<String> {
    match cause {
        Cause::Server(_) | Cause::Client | Cause::Signal(_) => None,
        Cause::Proxy => Some("the proxy has ended; the server is stopped".to_owned()),
        Cause::Audit(reason) => Some(format!("{reason}; the server is stopped")),
    }
}
