//! One attempt, from its head to its end: whatever happens, its lines are written once.
//!
//! An [`Attempt`] that is dropped without a record was cut, and says so itself; a [`Passage`] does
//! the same for the close line. So a client that goes away, a panic and a shutdown leave their line
//! at whichever await point they strike.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use super::journal::{JournalBroken, Sent, Slot};
use super::{Context, Stop};
use crate::audit::{Close, Cut, Ended, Reason, Record};
use crate::destination::Destination;

/// An attempt that has no record yet.
#[derive(Debug)]
pub(super) struct Attempt {
    context: Context,
    slots: Option<Slots>,
    id: u64,
    started: Instant,
    method: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    allowed: bool,
    address: Option<SocketAddr>,
}

/// The places for an attempt's line and, with `--log-close`, for the line of its end.
#[derive(Debug)]
struct Slots {
    record: Slot,
    close: Option<Slot>,
}

impl Attempt {
    /// Opens an attempt: from here on there will be a line for it.
    pub(super) async fn open(context: &Context) -> Result<Self, JournalBroken> {
        let started = Instant::now();
        let journal = &context.shared.journal;
        let record = journal.reserve().await?;
        let close = if context.shared.config.log_close {
            Some(journal.reserve().await?)
        } else {
            None
        };
        Ok(Self {
            context: context.clone(),
            slots: Some(Slots { record, close }),
            id: context.shared.next_id.fetch_add(1, Ordering::Relaxed),
            started,
            method: None,
            host: None,
            port: None,
            allowed: false,
            address: None,
        })
    }

    /// Notes what a refused head showed.
    pub(super) fn note_fragments(&mut self, method: Option<String>, host: Option<String>) {
        self.method = method;
        self.host = host;
    }

    /// Notes what is asked for.
    pub(super) fn note_request(&mut self, method: &str, destination: &Destination) {
        self.method = Some(method.to_owned());
        self.host = Some(destination.host().bare());
        self.port = Some(destination.port().number());
    }

    /// Notes that the policy permits it.
    pub(super) fn note_allowed(&mut self) {
        self.allowed = true;
    }

    /// Writes the record of a refusal; `allowed` stays the policy's word.
    pub(super) async fn refused(
        mut self,
        reason: Reason,
        allowed: bool,
        address: Option<SocketAddr>,
    ) -> Result<(), JournalBroken> {
        self.allowed = allowed;
        self.address = address;
        let (sent, _no_close) = self.send(reason)?;
        sent.written().await
    }

    /// Writes the record of an attempt that was let through; traffic may flow with what comes back.
    pub(super) async fn passed(
        mut self,
        address: Option<SocketAddr>,
    ) -> Result<Passage, JournalBroken> {
        self.address = address;
        let (sent, close) = self.send(Reason::Listed)?;
        // Made before the wait: once the record is on its way, its close line must come.
        let passage = Passage {
            context: self.context.clone(),
            close,
            id: self.id,
            started: Instant::now(),
            counts: Arc::default(),
        };
        sent.written().await?;
        Ok(passage)
    }

    fn send(&mut self, reason: Reason) -> Result<(Sent, Option<Slot>), JournalBroken> {
        let line = self.line(reason);
        let Slots { record, close } = self.slots.take().ok_or(JournalBroken)?;
        Ok((record.send(line), close))
    }

    fn line(&self, reason: Reason) -> String {
        let record = Record {
            time: (self.context.shared.config.clock)(),
            server: self.context.shared.config.name.as_deref(),
            id: self.id,
            method: self.method.as_deref(),
            host: self.host.as_deref(),
            port: self.port,
            allowed: self.allowed,
            reason,
            address: self.address,
            elapsed: self.started.elapsed(),
        };
        record.to_line()
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            let line = self.line(Reason::Cut(cut(&self.context)));
            drop(slots.record.send(line));
        }
    }
}

/// An attempt that was let through and recorded.
#[derive(Debug)]
pub(super) struct Passage {
    context: Context,
    close: Option<Slot>,
    id: u64,
    started: Instant,
    counts: Arc<Counts>,
}

/// Bytes of content that crossed, each way.
#[derive(Debug, Default)]
pub(super) struct Counts {
    to_origin: AtomicU64,
    from_origin: AtomicU64,
}

impl Counts {
    pub(super) fn add_to_origin(&self, bytes: usize) {
        self.to_origin
            .fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn add_from_origin(&self, bytes: usize) {
        self.from_origin
            .fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Passage {
    /// Where to count.
    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Ends it.
    pub(super) fn close(mut self, ended: Ended) {
        self.write(ended);
    }

    fn write(&mut self, ended: Ended) {
        let Some(slot) = self.close.take() else {
            return;
        };
        let close = Close {
            time: (self.context.shared.config.clock)(),
            server: self.context.shared.config.name.as_deref(),
            id: self.id,
            to_origin: self.counts.to_origin.load(Ordering::Relaxed),
            from_origin: self.counts.from_origin.load(Ordering::Relaxed),
            ended,
            elapsed: self.started.elapsed(),
        };
        drop(slot.send(close.to_line()));
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let ended = match cut(&self.context) {
            Cut::ClientGone => Ended::ClientGone,
            Cut::Idle => Ended::Idle,
            Cut::Shutdown => Ended::Shutdown,
            Cut::Internal => Ended::Internal,
        };
        self.write(ended);
    }
}

/// Why something is being dropped unfinished.
fn cut(context: &Context) -> Cut {
    if std::thread::panicking() {
        Cut::Internal
    } else if *context.stop.borrow() == Stop::Now {
        Cut::Shutdown
    } else {
        context.cut.get().copied().unwrap_or(Cut::ClientGone)
    }
}
