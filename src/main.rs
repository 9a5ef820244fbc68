//! The `strait` program: argv → run → exit code.

mod cli;
#[cfg(feature = "launch")]
mod doctoring;
#[cfg(feature = "launch")]
mod launching;
mod notices;
#[cfg(feature = "proxy")]
mod proxying;

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{CommandFactory, Parser};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use self::cli::{Cli, Command};
use self::notices::notice;

/// Something is wrong with how the program was started; clap's code too.
const USAGE: u8 = 2;
/// Bytes of the longest policy document or configuration: room for some 200,000 rules.
const LARGEST_DOCUMENT: usize = 16 << 20;
/// How long one may take to come, where it is a pipe.
const DOCUMENT_IN: Duration = Duration::from_secs(5);
fn main() -> ExitCode {
    // Help, version and usage errors end here, with their text and their code.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(text) => return tell(&text),
    };
    let outcome = match cli.command {
        #[cfg(feature = "proxy")]
        Command::Proxy(options) => proxying::proxy(*options),
        #[cfg(feature = "proxy")]
        Command::Check(options) => proxying::check(options),
        #[cfg(feature = "launch")]
        Command::Launch(options) => launching::launch(*options),
        #[cfg(feature = "launch")]
        Command::Pull(options) => launching::pull(&options),
        #[cfg(feature = "launch")]
        Command::List(options) => launching::list(&options),
        #[cfg(feature = "launch")]
        Command::Doctor(options) => doctoring::doctor(*options),
        #[cfg(feature = "launch")]
        Command::Probe => doctoring::probe(),
        #[cfg(feature = "launch")]
        Command::Sweep(options) => launching::sweep(&options),
        #[cfg(feature = "launch")]
        Command::Config(options) => launching::config(&options),
        #[cfg(feature = "launch")]
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
