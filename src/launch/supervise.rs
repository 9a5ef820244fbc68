//! The client's standard streams and the server's, joined; who ends first, and what follows.
//!
//! Bytes pass through here and nowhere else, unchanged. Each direction has a thread of its own that
//! reads and writes with plain system calls: no queue between the two, so the runtime's pipes are the
//! back-pressure, and a byte waits for nothing but its turn.

use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use tokio::process::Child;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::audit_file::AuditFile;
use super::exec::{Attached, code};
use super::redact::Redactor;
use super::report::{self, Outcome, Report};
use crate::stdio;

/// How much is read at a time: as much as a pipe holds.
const PIECE: usize = 64 * 1024;
/// Bytes of the longest line of the proxy's that is read as one, with its end.
const LONGEST_LINE: u64 = report::MAX_LINE as u64 + 1;
/// Bytes of stack for a thread that moves bytes.
const STACK: usize = 512 * 1024;
/// Bytes of the server's standard error that are kept to tell how it ended.
const LAST_WORDS_KEPT: usize = 2048;
/// How long what has ended may take to say its last words.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// How long the last lines of the audit may take to come: longer, because they are not to be lost.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Says something to the user. A closed standard error is no reason to stop.
pub type Notice = fn(&str);

/// Why a launch ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Cause {
    /// The server ended by itself, with this code.
    Server(u8),
    /// The client has gone, and the server was given its time to end.
    Client,
    /// The proxy ended first: what is not filtered must not run.
    Proxy,
    /// Attempts can no longer be recorded.
    Audit(String),
    /// A signal, by its number.
    Signal(u8),
}

/// Records what the proxy says of each attempt.
#[derive(Debug)]
pub struct Recorder {
    /// What is to be made of it.
    pub report: Report,
    /// What is listed now.
    pub entries: Vec<String>,
    /// Where it is recorded, if it is.
    pub file: Option<AuditFile>,
    /// Says something to the user.
    pub notice: Notice,
}

impl Recorder {
    /// Until the proxy has ended, or the file takes no more: no record, no traffic. When this
    /// returns the proxy's output closes, and it stops.
    fn record(mut self, from: PipeReader) -> Result<(), String> {
        let mut lines = BufReader::new(from);
        while let Some(line) = next_line(&mut lines) {
            let outcome = self.report.line(&line, Instant::now(), SystemTime::now());
            self.keep(outcome)?;
        }
        let outcome = self.report.finish(&self.entries, SystemTime::now());
        self.keep(outcome)
    }

    fn keep(&mut self, outcome: Outcome) -> Result<(), String> {
        if let Some(say) = outcome.say {
            (self.notice)(&say);
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut lines = outcome.keep.iter();
        lines
            .try_for_each(|line| file.write_line(line))
            .map_err(|error| error.to_string())
    }
}

/// The running proxy, seen from launch.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    lifeline: PipeWriter,
    audit: JoinHandle<()>,
    /// Why the audit file takes no more lines.
    broken: mpsc::UnboundedReceiver<String>,
}

/// Why the proxy is not ready.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// It ended before it listened.
    #[error("the proxy did not start: {0}")]
    Ended(String),
    /// It did not listen in time.
    #[error("the proxy did not start within {0:?}")]
    Deadline(Duration),
    /// A thread could not be started.
    #[error("cannot watch the proxy: {0}")]
    Watch(#[from] io::Error),
}

impl Proxy {
    /// Watches a proxy that was started, and waits until it listens.
    pub async fn ready(
        attached: Attached,
        recorder: Recorder,
        within: Duration,
    ) -> Result<Self, ProxyError> {
        let Attached {
            child,
            stdin,
            stdout,
            stderr,
        } = attached;
        let (tell, broken) = mpsc::unbounded_channel();
        let (ready, is_ready) = oneshot::channel();
        let notice = recorder.notice;
        spawn("proxy-says", move || pass_complaints(stderr, ready, notice))?;
        let audit = spawn("audit", move || {
            if let Err(reason) = recorder.record(stdout) {
                // Nobody listens once the launch is ending for another reason.
                let _ = tell.send(reason);
            }
        })?;
        let proxy = Self {
            child,
            lifeline: stdin,
            audit,
            broken,
        };
        match timeout(within, is_ready).await {
            Ok(Ok(Ok(()))) => Ok(proxy),
            Ok(Ok(Err(said))) => Err(ProxyError::Ended(said)),
            Ok(Err(_)) => Err(ProxyError::Ended("it said nothing".to_owned())),
            Err(_) => Err(ProxyError::Deadline(within)),
        }
    }

    /// Cuts its lifeline, and waits until its last lines are recorded.
    pub async fn end(mut self) {
        drop(self.lifeline);
        // One that does not end is removed with its container, and its lines end then.
        drop(timeout(LAST_WORDS, self.child.wait()).await);
        join(self.audit, LAST_LINES).await;
    }
}

/// The running server, and the client behind launch's own standard streams.
#[derive(Debug)]
pub struct Server {
    child: Child,
    stdin: Arc<Mutex<Option<PipeWriter>>>,
    outputs: [JoinHandle<()>; 2],
    said: Arc<Said>,
    /// Told at the first bytes on its standard output.
    answered: Option<oneshot::Receiver<()>>,
    /// Its standard input to us has ended, or our output to it is closed.
    gone: mpsc::UnboundedReceiver<()>,
}

/// What has come from a server.
#[derive(Debug, Default)]
struct Said {
    /// Whether anything came on its standard output.
    has_written: AtomicBool,
    /// The end of its standard error.
    last_words: Mutex<Vec<u8>>,
}

impl Said {
    fn complained(&self, bytes: &[u8]) {
        let mut last = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last.extend_from_slice(bytes);
        let surplus = last.len().saturating_sub(LAST_WORDS_KEPT);
        last.drain(..surplus);
    }
}

impl Server {
    /// Joins the streams of a server that was started with those of this process.
    pub fn join(attached: Attached, redactor: Redactor) -> io::Result<Self> {
        let Attached {
            child,
            stdin,
            stdout,
            stderr,
        } = attached;
        let (tell, gone) = mpsc::unbounded_channel();
        let (from_client, to_client) = (
            stdio::copy(io::stdin().as_fd())?,
            stdio::copy(io::stdout().as_fd())?,
        );
        let stdin = Arc::new(Mutex::new(Some(stdin)));
        let (into, at_end) = (Arc::clone(&stdin), tell.clone());
        spawn("from-client", move || {
            feed(from_client, &into);
            say_gone(&at_end);
        })?;
        let said = Arc::new(Said::default());
        let (written, complained) = (Arc::clone(&said), Arc::clone(&said));
        let (first, answered) = oneshot::channel();
        let outputs = [
            spawn("to-client", move || {
                if pass(stdout, to_client, &written, first).is_err() {
                    say_gone(&tell);
                }
            })?,
            spawn("server-says", move || {
                pass_redacted(stderr, redactor, &complained);
            })?,
        ];
        Ok(Self {
            child,
            stdin,
            outputs,
            said,
            answered: Some(answered),
            gone,
        })
    }

    /// Waits until the server has written something to standard output, or closed it; once.
    pub fn answered(&mut self) -> impl Future<Output = ()> + use<> {
        let answered = self.answered.take();
        async move {
            if let Some(answered) = answered {
                // Closed without a word is as good.
                drop(answered.await);
            }
        }
    }

    /// Waits for the first thing that ends the launch. When it is the client, the server's standard
    /// input has ended too, and it has `grace` to end by itself.
    pub async fn supervise(
        &mut self,
        mut proxy: Option<&mut Proxy>,
        signal: impl Future<Output = u8>,
        grace: Duration,
    ) -> Cause {
        let mut signal = std::pin::pin!(signal);
        let cause = tokio::select! {
            // An end of its own is told as such, whatever came with it.
            biased;
            ended = self.child.wait() => return Cause::Server(ended.map_or(u8::MAX, code)),
            number = &mut signal => Cause::Signal(number),
            cause = ended(&mut proxy) => cause,
            _ = self.gone.recv() => Cause::Client,
        };
        match cause {
            Cause::Client | Cause::Signal(_) => {
                self.close_stdin();
                tokio::select! {
                    biased;
                    ended = timeout(grace, self.child.wait()) => match ended {
                        Ok(ended) => Cause::Server(ended.map_or(u8::MAX, code)),
                        Err(_) => cause,
                    },
                    cause = ended(&mut proxy) => cause,
                }
            }
            Cause::Server(_) | Cause::Proxy | Cause::Audit(_) => cause,
        }
    }

    /// Ends the server's standard input, unless it is being written to: then the server is not
    /// reading, and would not notice.
    fn close_stdin(&self) {
        if let Ok(mut stdin) = self.stdin.try_lock() {
            drop(stdin.take());
        }
    }

    /// Waits until the runtime's command has ended and everything that came from the server has been
    /// passed on, within bounds.
    pub async fn end(mut self) -> Ended {
        let ended = timeout(LAST_WORDS, self.child.wait()).await;
        if ended.is_err() {
            // The container is gone; the command that was attached to it is of no more use.
            drop(self.child.kill().await);
        }
        for output in self.outputs {
            join(output, LAST_WORDS).await;
        }
        let last_words = self.said.last_words.lock();
        let last_words = last_words.unwrap_or_else(PoisonError::into_inner).clone();
        Ended {
            code: ended.ok().and_then(Result::ok).map(code),
            has_written: self.said.has_written.load(Ordering::Relaxed),
            last_words,
        }
    }
}

/// How a server ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code of the runtime's command, which is the server's where that was started.
    pub code: Option<u8>,
    /// Whether the server, or the runtime, wrote anything to standard output.
    pub has_written: bool,
    /// The end of what came on standard error.
    pub last_words: Vec<u8>,
}

/// Why the proxy ends the launch, once it does.
async fn ended(proxy: &mut Option<&mut Proxy>) -> Cause {
    let Some(proxy) = proxy else {
        return std::future::pending().await;
    };
    tokio::select! {
        // When attempts cannot be recorded the proxy ends too, for that reason.
        biased;
        Some(reason) = proxy.broken.recv() => Cause::Audit(reason),
        _ = proxy.child.wait() => Cause::Proxy,
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.stack_size(STACK).spawn(work)
}

/// Waits for a thread, within bounds: one that is stuck in a write to somebody who does not read
/// ends with the process.
async fn join(thread: JoinHandle<()>, within: Duration) {
    let joined = tokio::task::spawn_blocking(move || {
        let due = Instant::now() + within;
        while !thread.is_finished() && Instant::now() < due {
            thread::park_timeout(Duration::from_millis(1));
        }
        thread.is_finished()
    });
    drop(joined.await);
}

fn say_gone(tell: &mpsc::UnboundedSender<()>) {
    // Nobody listens once the launch is ending for another reason.
    let _ = tell.send(());
}

/// Moves bytes until the end of `from`; an error is `into`'s.
fn pass(
    mut from: impl Read,
    mut into: impl Write,
    said: &Said,
    first: oneshot::Sender<()>,
) -> io::Result<()> {
    let mut first = Some(first);
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        said.has_written.store(true, Ordering::Relaxed);
        into.write_all(piece.get(..count).unwrap_or_default())?;
        if let Some(first) = first.take() {
            // Nobody may be waiting for it any more.
            let _ = first.send(());
        }
    }
    Ok(())
}

/// Moves the client's bytes to the server until the client ends, and ends the server's input then. A
/// server that reads no more does not end the client: what comes is read and dropped.
fn feed(mut client: impl Read, into: &Mutex<Option<PipeWriter>>) {
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = client.read(&mut piece) {
        let mut into = into.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = piece.get(..count).unwrap_or_default();
        if into
            .as_mut()
            .is_some_and(|into| into.write_all(bytes).is_err())
        {
            *into = None;
        }
    }
    drop(into.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Moves the server's standard error to ours, made harmless.
fn pass_redacted(mut from: impl Read, mut redactor: Redactor, said: &Said) {
    let mut piece = vec![0; PIECE];
    let mut out = Vec::new();
    let say = |out: &mut Vec<u8>| {
        // A closed standard error is no reason to stop reading: the server would wait.
        drop(io::stderr().write_all(out));
        out.clear();
    };
    while let Ok(count @ 1..) = from.read(&mut piece) {
        let bytes = piece.get(..count).unwrap_or_default();
        said.complained(bytes);
        redactor.push(bytes, Instant::now(), &mut out);
        say(&mut out);
    }
    redactor.finish(&mut out);
    say(&mut out);
}

/// Passes on what the proxy complains, and tells when it listens. Its last line before an early end
/// is the reason.
fn pass_complaints(from: PipeReader, ready: oneshot::Sender<Result<(), String>>, notice: Notice) {
    let mut ready = Some(ready);
    let mut last = None;
    let mut lines = BufReader::new(from);
    while let Some(line) = next_line(&mut lines) {
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.starts_with("listening on ") && ready.is_some() {
            // Whoever started it may have given up waiting.
            let _ = ready.take().map(|ready| ready.send(Ok(())));
        } else if ready.is_some() {
            last = Some(line);
        } else if line.starts_with("warning: ") || line.starts_with("error: ") {
            notice(&format!("proxy: {line}"));
        }
    }
    let said = last.unwrap_or_else(|| "it said nothing".to_owned());
    let _ = ready.map(|ready| ready.send(Err(said)));
}

/// The next line, without its end; a longer one comes in parts.
fn next_line(lines: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = lines.take(LONGEST_LINE).read_until(b'\n', &mut line);
    if read.is_err() || line.is_empty() {
        return None;
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Some(line)
}
