//! A process that outlives a launch which was killed, and takes back what it made.
//!
//! It is started before anything exists, in a session of its own, and told everything that may come
//! to exist. It holds one end of a pipe; when the other end closes without the word that all is
//! clean, it waits until the commands that are still under way have ended, and cleans up.

use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::process::Child;
use tokio::time::{sleep, timeout};

use super::clean_up::clean_up;
use super::exec::{Exec, ExecError};
use super::plan::Undo;

/// What a launch says when nothing is left to do.
const CLEAN: &str = "clean";
/// What the reaper says once it has a session of its own and knows what to do.
const READY: &str = "ready";
/// How long the reaper may take to get ready.
const READY_IN: Duration = Duration::from_secs(10);
/// How long commands that a dead launch had under way are waited for: as long as they may take.
const UNDER_WAY: Duration = Duration::from_secs(30);
/// How often a clean-up that left something is tried again, and after how long: a daemon that is
/// being restarted is back within a minute.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_secs(2);

/// Why there is no reaper.
#[derive(Debug, Error)]
pub enum ReaperError {
    /// It could not be started.
    #[error("the reaper cannot be started: {0}")]
    Start(#[from] ExecError),
    /// It could not be told what to do, or did not answer.
    #[error("the reaper does not answer: {0}")]
    Talk(#[from] io::Error),
}

/// What the reaper is told.
#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    groups: Vec<Vec<Undo>>,
}

/// The launch's end of it.
#[derive(Debug)]
pub struct Reaper {
    control: PipeWriter,
    child: Child,
}

impl Reaper {
    /// Starts it, and waits until it is ready: from then on a dead launch leaves nothing.
    pub async fn start(
        exec: &Exec,
        program: &Path,
        leash: PipeReader,
        groups: &[Vec<Undo>],
    ) -> Result<Self, ReaperError> {
        let (reader, mut control) = io::pipe()?;
        let (child, said) = exec.reaper(program, reader, leash)?;
        let groups = groups.to_vec();
        let mut orders = serde_json::to_string(&Orders { groups }).map_err(io::Error::other)?;
        orders.push('\n');
        let talk = tokio::task::spawn_blocking(move || {
            control.write_all(orders.as_bytes())?;
            let mut answer = String::new();
            BufReader::new(said).read_line(&mut answer)?;
            if answer.trim_end() == READY {
                Ok(control)
            } else {
                Err(io::Error::other(format!(
                    "it said `{}`",
                    answer.escape_default()
                )))
            }
        });
        let control = timeout(READY_IN, talk)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
            .map_err(io::Error::other)??;
        Ok(Self { control, child })
    }

    /// Tells it that nothing is left, and waits until it has gone.
    pub async fn release(mut self) -> io::Result<()> {
        writeln!(self.control, "{CLEAN}")?;
        drop(self.control);
        self.child.wait().await?;
        Ok(())
    }
}

/// The reaper itself: what `strait reap` does. `control` is read for orders and for their end;
/// `leash` ends when the last command of the launch has.
pub async fn reap(
    exec: Exec,
    control: File,
    leash: File,
    mut answer: impl Write,
) -> io::Result<()> {
    // Alone: whatever ends the client's processes together does not end this one.
    rustix::process::setsid()?;
    let mut control = BufReader::new(control);
    let mut line = String::new();
    control.read_line(&mut line)?;
    let orders: Orders = serde_json::from_str(&line).map_err(io::Error::other)?;
    writeln!(answer, "{READY}")?;
    drop(answer);
    let mut last = String::new();
    // A reading error is an end like any other: the launch is gone.
    drop(control.read_to_string(&mut last));
    if last.trim_end() == CLEAN {
        return Ok(());
    }
    until_ended(leash);
    let exec = Arc::new(exec);
    for _ in 0..TRIES {
        if clean_up(&exec, &orders.groups).await.is_empty() {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    Err(io::Error::other(
        "something is left; `strait sweep` removes it",
    ))
}

/// Waits, within bounds, until nobody holds the other end of the leash.
fn until_ended(mut leash: File) {
    let (ended, has_ended) = mpsc::channel();
    thread::spawn(move || {
        let mut nothing = [0; 16];
        while matches!(leash.read(&mut nothing), Ok(1..)) {}
        // Nobody may be waiting any more.
        let _ = ended.send(());
    });
    // Whether it ended or takes too long: now it is cleaned up.
    let _ = has_ended.recv_timeout(UNDER_WAY);
}
