//! The `strait` program: argv → run → exit code.

mod check;
mod cli;
mod ending;
mod launching;
mod notices;

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{CommandFactory, Parser};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::watch;

use strait::destination::HostName;
use strait::policy::Policy;
use strait::proxy::{BoxFuture, DnsResolver, Limits, Proxy, Resolve, Stop, TcpConnect};
use strait::refusal::Failed;

use self::cli::{CheckArgs, Cli, Command, ProxyArgs};
use self::notices::notice;

/// Something is wrong with how the program was started; clap's code too.
const USAGE: u8 = 2;
/// Bytes of the longest policy document: room for some 200,000 rules.
const LARGEST_DOCUMENT: usize = 16 << 20;
/// How long a policy document may take to come, where it is a pipe.
const DOCUMENT_IN: Duration = Duration::from_secs(5);
/// Bytes of stack for each worker: std's own default.
const WORKER_STACK: usize = 2 << 20;
/// Two sockets a connection, and these for everything else.
const OTHER_FILES: u64 = 64;
/// While a name is resolved or dialled: the client's socket and those of the DNS queries, or of the
/// one address that is always tried and of the share in those that are tried beside it.
const FILES_WHILE_DIALLING: u64 = 4;

fn main() -> ExitCode {
    // Help, version and usage errors end here, with their text and their code.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(text) => return tell(&text),
    };
    let outcome = match cli.command {
        Command::Proxy(options) => run_proxy(*options),
        Command::Check(options) => run_check(options),
        Command::Launch(options) => launching::launch(*options),
        Command::Pull(options) => launching::pull(&options),
        Command::List(options) => launching::list(&options),
        Command::Sweep(options) => launching::sweep(&options),
        Command::Config(options) => launching::config(&options),
        Command::Reap => launching::reap(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "strait", &mut script);
            print(&script).map(|()| ExitCode::SUCCESS)
        }
    };
    let code = outcome.unwrap_or_else(|error| {
        notice(format_args!("error: {error:#}"));
        if error.is::<Misuse>() {
            ExitCode::from(USAGE)
        } else {
            ExitCode::FAILURE
        }
    });
    notices::flush();
    code
}

/// Prints help, the version or a usage error, which clap's own end does without looking whether it
/// could.
fn tell(text: &clap::Error) -> ExitCode {
    let told = text.print().and_then(|()| io::stdout().flush());
    match told {
        Err(error) if !text.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            notice(format_args!(
                "error: cannot write to standard output: {error}"
            ));
            ExitCode::FAILURE
        }
        _ => ExitCode::from(u8::try_from(text.exit_code()).unwrap_or(USAGE)),
    }
}

/// Marks an error as the user's to mend before the program can start.
#[derive(Debug)]
struct Misuse;

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("strait was not started")
    }
}

/// Prints an answer; a reader that has seen enough is no error.
fn print(text: &[u8]) -> anyhow::Result<()> {
    match io::stdout()
        .write_all(text)
        .and_then(|()| io::stdout().flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to standard output"),
    }
}

fn read_document(path: Option<&Path>) -> anyhow::Result<Option<String>> {
    let read = |path: &Path| {
        read_bounded(path)
            .with_context(|| format!("cannot read the policy document `{}`", path.display()))
            .context(Misuse)
    };
    path.map(read).transpose()
}

/// Reads a file that may be a pipe: nothing that does not come, or does not end, holds up the start.
pub(crate) fn read_bounded(path: &Path) -> anyhow::Result<String> {
    // Or else opening a pipe waits for somebody to write to it.
    let waits_not = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits())?;
    let mut file = File::options()
        .read(true)
        .custom_flags(waits_not)
        .open(path)?;
    let due = Instant::now() + DOCUMENT_IN;
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        let mut readable = [PollFd::new(&file, PollFlags::IN)];
        match rustix::event::poll(&mut readable, Some(&Timespec::try_from(left)?)) {
            Ok(0) => return Err(anyhow!("it has not come to its end within {DOCUMENT_IN:?}")),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match file.read(&mut piece) {
            Ok(0) => return String::from_utf8(bytes).context("it is not UTF-8"),
            Ok(count) => bytes.extend(piece.iter().take(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if bytes.len() > LARGEST_DOCUMENT {
            return Err(anyhow!("it is longer than {LARGEST_DOCUMENT} bytes"));
        }
    }
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

fn run_proxy(options: ProxyArgs) -> anyhow::Result<ExitCode> {
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

/// A file whose writes wait, also where somebody who shares it has made it non-blocking.
struct Waiting<F>(F);

impl<F: Write + AsFd> Write for Waiting<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut writable = [PollFd::new(&self.0, PollFlags::OUT)];
                    match rustix::event::poll(&mut writable, None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                outcome => return outcome,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
    Ok(Waiting(audit))
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

fn run_check(options: CheckArgs) -> anyhow::Result<ExitCode> {
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
