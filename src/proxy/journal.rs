//! The audit sink: lines in order, one `write` each, and nobody proceeds without one.
//!
//! *No record, no traffic.* An attempt reserves its place before anything is decided and waits until
//! its line has been written before a byte is relayed. When the sink blocks, attempts wait; when it
//! breaks, [`Journal::broken`] resolves and the proxy stops.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;

use tokio::sync::{OnceCell, mpsc, oneshot};

/// Bytes of stack for the thread: it calls nothing deep. Not from the environment.
const STACK: usize = 256 * 1024;

/// The audit sink of one proxy.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    entries: mpsc::Sender<Entry>,
    failure: Arc<Failure>,
}

/// The audit sink is gone: nothing may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit log can no longer be written")]
pub(crate) struct JournalBroken;

/// A place reserved for one line.
#[derive(Debug)]
pub(crate) struct Slot {
    place: mpsc::OwnedPermit<Entry>,
}

#[derive(Debug)]
struct Entry {
    line: String,
    written: oneshot::Sender<()>,
}

/// The first error of the sink, once there is one.
#[derive(Debug, Default)]
struct Failure {
    error: OnceCell<io::Error>,
    happened: tokio::sync::Notify,
}

impl Journal {
    /// Starts a thread that writes lines to `sink`; at most `capacity` of them wait at a time.
    pub(crate) fn start(sink: impl Write + Send + 'static, capacity: usize) -> io::Result<Self> {
        let (entries, waiting) = mpsc::channel(capacity);
        let failure = Arc::<Failure>::default();
        let journal = Self {
            entries,
            failure: Arc::clone(&failure),
        };
        thread::Builder::new()
            .name("audit".to_owned())
            .stack_size(STACK)
            .spawn(move || write_entries(sink, waiting, &failure))?;
        Ok(journal)
    }

    /// Reserves the place for one line, waiting while the sink is behind.
    pub(crate) async fn reserve(&self) -> Result<Slot, JournalBroken> {
        let place = self
            .entries
            .clone()
            .reserve_owned()
            .await
            .map_err(|_| JournalBroken)?;
        Ok(Slot { place })
    }

    /// Resolves when every line sent before has been written.
    pub(crate) async fn written(&self) -> Result<(), JournalBroken> {
        self.reserve().await?.send(String::new()).written().await
    }

    /// Resolves once the sink has failed.
    pub(crate) async fn broken(&self) {
        loop {
            let happened = self.failure.happened.notified();
            if self.failure.error.get().is_some() {
                return;
            }
            happened.await;
        }
    }

    /// What the sink failed with, if it has.
    pub(crate) fn failure(&self) -> Option<&io::Error> {
        self.failure.error.get()
    }
}

impl Slot {
    /// Hands a line over, without waiting: this works in `Drop` too.
    pub(crate) fn send(self, line: String) -> Sent {
        let (written, receiver) = oneshot::channel();
        self.place.send(Entry { line, written });
        Sent(receiver)
    }
}

/// A line on its way to the sink.
#[derive(Debug)]
pub(crate) struct Sent(oneshot::Receiver<()>);

impl Sent {
    /// Waits until the sink has taken the line.
    pub(crate) async fn written(self) -> Result<(), JournalBroken> {
        self.0.await.map_err(|_| JournalBroken)
    }
}

fn write_entries(mut sink: impl Write, mut waiting: mpsc::Receiver<Entry>, failure: &Failure) {
    while let Some(Entry { line, written }) = waiting.blocking_recv() {
        if let Err(error) = sink.write_all(line.as_bytes()).and_then(|()| sink.flush()) {
            // The first error is the one reported, and the last: returning closes the queue.
            let _ = failure.error.set(error);
            failure.happened.notify_waiters();
            return;
        }
        // The attempt may be gone; its line is written all the same.
        let _ = written.send(());
    }
}
