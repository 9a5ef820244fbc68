//! Where the screen, the exchange and a connection's task meet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::time::Instant;

use super::tunnel::Tunnel;
use crate::head::{RefusedHead, RequestHead};

/// One per client connection; all that the three share is here.
#[derive(Clone, Debug, Default)]
pub(super) struct Seat {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The head hyper is about to deliver.
    head: Option<Result<RequestHead, RefusedHead>>,
    turn: Turn,
    /// The connection's task, waiting for its turn to read the next head.
    waiting: Option<Waker>,
    /// When a byte last crossed between us and the client.
    active: Option<Instant>,
    /// How many contents are on their way and must not stall: the request's, the response's.
    contents: usize,
    /// A tunnel that waits for the connection's stream.
    tunnel: Option<Tunnel>,
    /// The reply could not be finished: the client must not take what it has for all of it.
    is_broken: bool,
}

/// Whose turn it is on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// The client's, to send a head.
    #[default]
    Client,
    /// Ours, to reply.
    Reply,
    /// The reply is complete but for its last bytes, which are in hyper's buffer.
    Flush,
}

impl Seat {
    /// Takes the head that belongs to the request hyper delivered.
    pub(super) fn take_head(&self) -> Option<Result<RequestHead, RefusedHead>> {
        let mut state = self.lock();
        if let Some(waiting) = state.waiting.take() {
            waiting.wake();
        }
        state.head.take()
    }

    /// Whether a head waits for its exchange; if so, `waker` is called when it no longer does.
    pub(super) fn holds_head(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        let holds_head = state.head.is_some();
        if holds_head {
            state.waiting = Some(waker.clone());
        }
        holds_head
    }

    /// Notes that the reply is complete.
    pub(super) fn reply_ended(&self) {
        let mut state = self.lock();
        if state.turn == Turn::Reply {
            state.turn = Turn::Flush;
        }
        state.contents = 0;
        state.active.get_or_insert_with(Instant::now);
    }

    /// Notes that the reply ends in the middle.
    pub(super) fn reply_broke(&self) {
        self.lock().is_broken = true;
    }

    /// Whether a reply ended in the middle.
    pub(super) fn is_broken(&self) -> bool {
        self.lock().is_broken
    }

    /// Leaves a tunnel for the connection's task, which has the client's stream.
    pub(super) fn hand_over(&self, tunnel: Tunnel) {
        self.lock().tunnel = Some(tunnel);
    }

    /// Takes the tunnel, if the last request ended in one.
    pub(super) fn take_tunnel(&self) -> Option<Tunnel> {
        self.lock().tunnel.take()
    }

    /// Notes that content is on its way: from here on bytes must cross.
    pub(super) fn content_starts(&self) {
        let mut state = self.lock();
        state.contents += 1;
        state.active = Some(Instant::now());
    }

    /// Notes that content has ended.
    pub(super) fn content_ended(&self) {
        let mut state = self.lock();
        state.contents = state.contents.saturating_sub(1);
    }

    /// When content that is on its way last moved; the last bytes of a reply count as content until
    /// the client has taken them.
    pub(super) fn watched_since(&self) -> Option<Instant> {
        let state = self.lock();
        let is_watched = state.contents > 0 || state.turn == Turn::Flush;
        state.active.filter(|_| is_watched)
    }

    /// Notes that a byte crossed.
    pub(super) fn touch(&self) {
        self.lock().active = Some(Instant::now());
    }

    /// When a byte last crossed.
    pub(super) fn active_since(&self) -> Option<Instant> {
        self.lock().active
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding it, and the state is plain values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a head for the exchange: from here on the turn is ours.
    pub(super) fn deliver(&self, head: Result<RequestHead, RefusedHead>) {
        let mut state = self.lock();
        state.head = Some(head);
        state.turn = Turn::Reply;
    }

    /// Whether a reply is under way; if so, `waker` is called when it no longer is.
    pub(super) fn is_replying(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        let is_replying = state.turn != Turn::Client;
        if is_replying {
            state.waiting = Some(waker.clone());
        }
        is_replying
    }

    /// hyper has written out everything it had.
    pub(super) fn flushed(&self) {
        let mut state = self.lock();
        if state.turn == Turn::Flush {
            state.turn = Turn::Client;
            if let Some(waiting) = state.waiting.take() {
                waiting.wake();
            }
        }
    }
}
