//! A command line becomes a process: the only place in the crate that starts one.
//!
//! Every process gets a group of its own, so that a Ctrl-C at a terminal, or a client that ends its
//! process group, reaches launch alone and launch decides what becomes of the rest. None reads a
//! shell's syntax, and none has a standard stream that was not given to it here.

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, pipe};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::plan::Argv;

/// How long a command may take: a runtime under load makes a container in seconds.
const DEADLINE: Duration = Duration::from_secs(30);
/// The most that is read of an answer: an image's configuration may be large, but not that large.
const LONGEST_ANSWER: u64 = 16 << 20;

/// Characters of what a runtime complains that are passed on.
const LONGEST_COMPLAINT: usize = 500;

/// Why a command could not be run to its end.
#[derive(Debug, Error)]
pub enum ExecError {
    /// It could not be started.
    #[error("cannot start `{program}`: {error}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// It did not end.
    #[error("`{0}` did not end within {DEADLINE:?} and was stopped")]
    Deadline(String),
    /// Its answer has no end, or could not be read.
    #[error("`{program}` gave an answer that could not be read: {error}")]
    Answer {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
    },
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// What it said of its failure: the last line, without what a terminal would act on.
    pub fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        let line = text.lines().rev().find(|line| !line.trim().is_empty());
        let line = line.unwrap_or("it said nothing").trim();
        visible(line)
    }
}

/// What a runtime said, without what a terminal would act on, and not all of it if it is long.
pub fn visible(text: &str) -> String {
    let letters = text.chars().take(LONGEST_COMPLAINT).flat_map(|letter| {
        let is_hidden = letter.is_control() || super::plan::is_invisible(letter);
        let escaped = is_hidden.then(|| letter.escape_unicode());
        let plain = (!is_hidden).then_some(letter);
        escaped.into_iter().flatten().chain(plain)
    });
    letters.collect()
}

/// A process whose three standard streams are ours.
#[derive(Debug)]
pub struct Attached {
    /// The process.
    pub child: Child,
    /// What it reads.
    pub stdin: PipeWriter,
    /// What it writes.
    pub stdout: PipeReader,
    /// What it complains.
    pub stderr: PipeReader,
}

/// Held by every command that has an effect, for as long as it runs: who has the other end sees when
/// the last of them has ended, whoever started it.
#[derive(Debug)]
pub struct Leash(PipeWriter);

impl Leash {
    /// A leash, and the end that sees.
    pub fn new() -> io::Result<(Self, PipeReader)> {
        let (reader, writer) = pipe()?;
        Ok((Self(writer), reader))
    }
}

/// Starts processes, all with the same environment.
#[derive(Debug)]
pub struct Exec {
    environment: Vec<(OsString, OsString)>,
    leash: Option<Leash>,
}

impl Exec {
    /// Starts processes with this environment and no other.
    pub fn new(environment: Vec<(OsString, OsString)>) -> Self {
        Self {
            environment,
            leash: None,
        }
    }

    /// The value of a variable.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let set = self.environment.iter().find(|(set, _)| set == name);
        set.map(|(_, value)| value.as_os_str())
    }

    /// Puts everything that is started by [`Exec::act`] on a leash.
    #[must_use]
    pub fn on(mut self, leash: Leash) -> Self {
        self.leash = Some(leash);
        self
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that starts processes"
    )]
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            // A runtime has no business in the client's folder, nor holds it open.
            .current_dir("/");
        command
    }

    fn runtime(&self, argv: &Argv) -> Command {
        let mut command = self.command(Path::new(argv.program()));
        command.args(argv.arguments()).process_group(0);
        command
    }

    /// Runs a question to its end.
    pub async fn ask(&self, argv: &Argv) -> Result<Output, ExecError> {
        self.run(argv, Stdio::null(), &[]).await
    }

    /// Runs something with an effect to its end.
    pub async fn act(&self, argv: &Argv) -> Result<Output, ExecError> {
        // Nothing reads there; the descriptor is held, that is all.
        let leash = self.leash.as_ref().map(|Leash(writer)| writer.try_clone());
        let stdin = match leash.transpose().map_err(|error| start(argv, error))? {
            Some(leash) => Stdio::from(leash),
            None => Stdio::null(),
        };
        self.run(argv, stdin, &[]).await
    }

    /// Runs something that reads `input` to its end.
    pub async fn feed(&self, argv: &Argv, input: &[u8]) -> Result<Output, ExecError> {
        self.run(argv, Stdio::piped(), input).await
    }

    async fn run(&self, argv: &Argv, stdin: Stdio, input: &[u8]) -> Result<Output, ExecError> {
        let mut command = self.runtime(argv);
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| start(argv, error))?;
        drop(command);
        let answer = |error| ExecError::Answer {
            program: argv.program().to_owned(),
            error,
        };
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (into, stdout, stderr) = streams;
        let done = timeout(DEADLINE, async {
            let give = async {
                if let Some(mut into) = into {
                    tokio::io::AsyncWriteExt::write_all(&mut into, input).await?;
                }
                io::Result::Ok(())
            };
            let (given, stdout, stderr) = tokio::join!(give, read(stdout), read(stderr));
            let status = child.wait().await;
            // A program that ends before it has read everything says why in its status.
            drop(given);
            io::Result::Ok(Output {
                status: status?,
                stdout: stdout?,
                stderr: stderr?,
            })
        });
        if let Ok(output) = done.await {
            return output.map_err(answer);
        }
        // It may have ended in this moment.
        drop(child.kill().await);
        Err(ExecError::Deadline(argv.program().to_owned()))
    }

    /// Runs something that takes its time and shows how far it is, on our own standard output and error.
    pub async fn show(&self, argv: &Argv) -> Result<ExitStatus, ExecError> {
        let mut command = self.runtime(argv);
        let mut child = command
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| start(argv, error))?;
        child.wait().await.map_err(|error| start(argv, error))
    }

    /// Starts a process that goes on, with its streams in our hands.
    pub fn attach(&self, argv: &Argv) -> Result<Attached, ExecError> {
        let started = || {
            let (stdin, our_stdin) = pipe()?;
            let (our_stdout, stdout) = pipe()?;
            let (our_stderr, stderr) = pipe()?;
            let mut command = self.runtime(argv);
            command.stdin(stdin).stdout(stdout).stderr(stderr);
            Ok(Attached {
                child: command.spawn()?,
                stdin: our_stdin,
                stdout: our_stdout,
                stderr: our_stderr,
            })
        };
        started().map_err(|error| start(argv, error))
    }

    /// Starts this program again as the reaper: its standard input is `control`, its standard error
    /// sees the leash, and what it says comes back.
    pub fn reaper(
        &self,
        program: &Path,
        control: PipeReader,
        leash: PipeReader,
    ) -> Result<(Child, PipeReader), ExecError> {
        let started = || {
            let (said, stdout) = pipe()?;
            // No group of its own yet: it makes a session, which the head of a group cannot.
            let mut command = self.command(program);
            command
                .arg("reap")
                .stdin(control)
                .stdout(stdout)
                .stderr(leash);
            Ok((command.spawn()?, said))
        };
        started().map_err(|error| ExecError::Start {
            program: program.display().to_string(),
            error,
        })
    }
}

fn start(argv: &Argv, error: io::Error) -> ExecError {
    ExecError::Start {
        program: argv.program().to_owned(),
        error,
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let mut bounded = stream.take(LONGEST_ANSWER);
        bounded.read_to_end(&mut bytes).await?;
        if bounded.limit() == 0 {
            return Err(io::Error::other(format!(
                "longer than {LONGEST_ANSWER} bytes"
            )));
        }
    }
    Ok(bytes)
}

/// The exit code of a process as a shell would tell it: 128 and the signal's number where one ended
/// it.
pub fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128_i32.saturating_add(signal)));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}
