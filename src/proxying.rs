//! `strait proxy` and `strait check`: from the flags to an exit code.

mod check;
mod ending;

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::watch;

use strait::destination::HostName;
use strait::policy::Policy;
use strait::proxy::{BoxFuture, DnsResolver, Limits, Proxy, Resolve, Stop, TcpConnect};
use strait::refusal::Failed;
use strait::stdio::Waiting;

use crate::cli::{CheckArgs, ProxyArgs};
use crate::notices::{self, notice};
use crate::{Misuse, print, read_bounded};

/// Bytes of stack for each worker: std's own default.
const WORKER_STACK: usize = 2 << 20;
/// Two sockets a connection, and these for everything else.
const OTHER_FILES: u64 = 64;
/// While a name is resolved or dialled: the client's socket and those of the DNS queries, or of the
/// one address that is always tried and of the share in those that are tried beside it.
const FILES_WHILE_DIALLING: u64 = 4;

fn read_document(path: Option<&Path>) -> anyhow::Result<Option<String>> {
    let read = |path: &Path| {
        read_bounded(path)
            .with_context(|| format!("cannot read the policy document `{}`", path.display()))
            .context(Misuse)
    };
    path.map(read).transpose()
}

/// Where a policy came from, for what is wrong with it.
fn whence(path: Option<&Path>) -> String {
    path.map_or_else(
        || "the flags".to_owned(),
        |path| format!("`{}` and the flags", path.display()),
    )
}

fn resolver_for(policy: &Policy, server: Option<SocketAddr>) -> anyhow::Result<Arc<dyn Resolve>> {
    match server {
        Some(server) => Ok(Arc::new(DnsResolver::from_server(server)?)),
        // With literals alone nothing is ever asked.
        None if !policy.needs_resolver() => Ok(Arc::new(NoNames)),
        None => {
            let system = DnsResolver::from_system()
                .context("no name server in /etc/resolv.conf; give one with --resolver IP")
                .context(Misuse)?;
            Ok(Arc::new(system))
        }
    }
}

/// The resolver of a policy without names.
struct NoNames;

impl Resolve for NoNames {
    fn resolve<'a>(&'a self, _: &'a HostName) -> BoxFuture<'a, Result<Vec<IpAddr>, Failed>> {
        Box::pin(async { Err(Failed::Dns) })
    }
}

/// Runs the proxy until it is told to stop.
pub(crate) fn proxy(options: ProxyArgs) -> anyhow::Result<ExitCode> {
    let document = read_document(options.policy.policy.as_deref())?;
    let (listen, server) = (options.listen, options.resolver);
    let has_lifeline = !options.no_lifeline;
    let path = options.policy.policy.clone();
    let config = options.compile(document.as_deref(), notice);
    let config = config
        .with_context(|| whence(path.as_deref()))
        .context(Misuse)?;
    notices::start()?;
    if config.policy.rules().is_empty() {
        notice(format_args!(
            "warning: nothing is allowed; add hosts with --allow"
        ));
    }
    allow_files(&config.limits);
    // Named, because tokio and std take what is not from the environment.
    let workers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut runtime = runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(workers)
        .thread_stack_size(WORKER_STACK);
    runtime.enable_all().build()?.block_on(async {
        let resolver = resolver_for(&config.policy, server)?;
        let audit = audit_sink()?;
        let proxy = Proxy::new(config, resolver, Arc::new(TcpConnect), audit)?;
        let (tell, stop) = watch::channel(Stop::Run);
        let end = ending::watch(tell, has_lifeline)?;
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("cannot listen on {listen}; choose another with --listen"))?;
        notice(format_args!("listening on {}", listener.local_addr()?));
        // Not before, or else it could say that it stops before it says that it listens.
        let watching = tokio::spawn(end);
        let serving = tokio::spawn(async move { proxy.serve(listener, stop).await });
        let outcome = serving.await.context("the proxy failed")?;
        watching.abort();
        outcome?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Standard output, through a descriptor of its own: a line is one write and not a line buffer's.
fn audit_sink() -> anyhow::Result<Waiting<File>> {
    let audit = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // std opens /dev/null, both ways, in place of a descriptor that was closed. Python's DEVNULL, Node's
    // 'ignore' and daemon(3) open it just so on purpose: flags, position and inode are the same, and
    // nothing else is left to tell them apart. "No record, no traffic" is kept against clients and
    // accidents; whoever starts the proxy may throw the record away, and a mistake is to be seen.
    let null = rustix::fs::stat("/dev/null").map(|null| null.st_rdev);
    let is_null =
        null.is_ok_and(|null| rustix::fs::fstat(&audit).is_ok_and(|at| at.st_rdev == null));
    let mode = rustix::fs::fcntl_getfl(&audit)? & rustix::fs::OFlags::RWMODE;
    if is_null && mode == rustix::fs::OFlags::RDWR {
        notice(format_args!(
            "warning: standard output is closed, or /dev/null: attempts leave no record"
        ));
    }
    Ok(Waiting::new(audit))
}

/// Raises the limit on open files to what the connections may need, as far as that is allowed.
fn allow_files(limits: &Limits) {
    let connections = u64::try_from(limits.connections).unwrap_or(u64::MAX);
    let wanted = connections.saturating_mul(FILES_WHILE_DIALLING);
    let needed = connections.saturating_mul(2).saturating_add(OTHER_FILES);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let possible = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(possible),
            maximum,
        },
    );
    if raised.is_err() || possible < needed {
        notice(format_args!(
            "warning: {} connections need {needed} open files, and the limit is {possible}; raise \
             it, or pass a smaller --max-connections",
            limits.connections
        ));
    }
}

/// Explains what the policy says.
pub(crate) fn check(options: CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckArgs {
        policy,
        resolve,
        resolver: server,
        json,
        destinations,
    } = options;
    let document = read_document(policy.policy.as_deref())?;
    let path = policy.policy.clone();
    let policy = policy.compile(document.as_deref());
    let policy = policy
        .with_context(|| whence(path.as_deref()))
        .context(Misuse)?;
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let resolver = if resolve {
                Some(resolver_for(&policy, server)?)
            } else {
                None
            };
            let mut is_all_allowed = true;
            for destination in &destinations {
                let explanation = check::explain(&policy, destination, resolver.as_deref()).await;
                is_all_allowed &= explanation.allowed;
                let mut line = if json {
                    serde_json::to_string(&explanation)?
                } else {
                    explanation.to_string()
                };
                line.push('\n');
                print(line.as_bytes())?;
            }
            Ok(if is_all_allowed {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        })
}
