//! Bytes both ways between a client and its origin, until both have said everything.
//!
//! Each direction ends on its own: one side's end of stream is passed on as that and the other goes
//! on. While nothing moves a tunnel holds no buffer; while the reader is slow it holds one piece per
//! direction and reads no more. A break on either side is passed on as a reset, never as an end.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::attempt::Passage;
use super::{Client, Limits, Stop};
use crate::audit::Ended;

/// The most that is read at once, and so the most one direction ever holds.
const PIECE: usize = 64 * 1024;

/// An origin that was connected for a tunnel.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) origin: TcpStream,
    pub(super) passage: Passage,
}

/// Relays until both directions have ended, one side breaks, nothing moves for too long, or the
/// proxy stops. `early` is what the client sent behind its CONNECT.
pub(super) async fn relay<C: Client>(
    mut client: C,
    early: Bytes,
    tunnel: Tunnel,
    limits: &Limits,
    mut stop: watch::Receiver<Stop>,
) {
    let Tunnel {
        mut origin,
        passage,
    } = tunnel;
    let counts = passage.counts();
    let mut to_origin = Flow::starting_with(early);
    let mut to_client = Flow::starting_with(Bytes::new());
    let mut active = Instant::now();
    let mut due = pin!(sleep(limits.idle.unwrap_or(limits.half_closed)));
    let both = poll_fn(|cx| {
        let outward = to_origin.poll(cx, &mut client, &mut origin, &mut |bytes| {
            counts.add_to_origin(bytes);
            active = Instant::now();
        });
        if let Poll::Ready(Err(side)) = outward {
            return Poll::Ready(side.gone(Ended::ClientGone, Ended::OriginGone));
        }
        let homeward = to_client.poll(cx, &mut origin, &mut client, &mut |bytes| {
            counts.add_from_origin(bytes);
            active = Instant::now();
        });
        if let Poll::Ready(Err(side)) = homeward {
            return Poll::Ready(side.gone(Ended::OriginGone, Ended::ClientGone));
        }
        if outward.is_ready() && homeward.is_ready() {
            return Poll::Ready(Ended::Complete);
        }
        let is_half_closed = outward.is_ready() || homeward.is_ready();
        let Some(limit) = (if is_half_closed {
            Some(limits.half_closed)
        } else {
            limits.idle
        }) else {
            return Poll::Pending;
        };
        // One timer a tunnel, pushed on when it fires and not with every byte.
        while due.as_mut().poll(cx).is_ready() {
            if active.elapsed() >= limit {
                return Poll::Ready(Ended::Idle);
            }
            due.set(sleep_until(active + limit));
        }
        // Half-closed, the limit is another one than the timer was set for.
        if is_half_closed && due.deadline() > active + limit {
            due.set(sleep_until(active + limit));
            return due.as_mut().poll(cx).map(|()| Ended::Idle);
        }
        Poll::Pending
    });
    let ended = tokio::select! {
        ended = both => ended,
        () = Stop::reached(&mut stop, Stop::Now) => Ended::Shutdown,
    };
    if ended != Ended::Complete {
        client.reset();
        origin.reset();
    }
    passage.close(ended);
}

/// Which end of a flow broke.
enum Side {
    Source,
    Sink,
}

impl Side {
    fn gone(self, source: Ended, sink: Ended) -> Ended {
        match self {
            Self::Source => source,
            Self::Sink => sink,
        }
    }
}

/// One direction.
struct Flow {
    /// Read and not yet written.
    held: Bytes,
    state: FlowState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FlowState {
    /// Nothing to flush.
    Open,
    /// Something was written that may have to be flushed.
    Written,
    /// The source has ended; the sink is still to be told.
    Ending,
    Ended,
}

impl Flow {
    fn starting_with(held: Bytes) -> Self {
        Self {
            held,
            state: FlowState::Open,
        }
    }

    #[expect(
        clippy::large_stack_arrays,
        reason = "a waiting tunnel must not hold a buffer"
    )]
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut (impl AsyncRead + Unpin),
        sink: &mut (impl AsyncWrite + Unpin),
        moved: &mut impl FnMut(usize),
    ) -> Poll<Result<(), Side>> {
        loop {
            if !self.held.is_empty() {
                let count = ready!(poll_write(cx, sink, &self.held))?;
                moved(count);
                self.held = self.held.split_off(count);
                self.state = FlowState::Written;
                continue;
            }
            match self.state {
                FlowState::Ended => return Poll::Ready(Ok(())),
                FlowState::Ending => {
                    ready!(Pin::new(&mut *sink).poll_shutdown(cx)).map_err(|_| Side::Sink)?;
                    self.state = FlowState::Ended;
                }
                FlowState::Open | FlowState::Written => {
                    // On the stack: a tunnel that waits for bytes holds no memory for them.
                    let mut space = [MaybeUninit::uninit(); PIECE];
                    let mut piece = ReadBuf::uninit(&mut space);
                    match Pin::new(&mut *source).poll_read(cx, &mut piece) {
                        Poll::Ready(read) => read.map_err(|_| Side::Source)?,
                        Poll::Pending if self.state == FlowState::Written => {
                            ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(|_| Side::Sink)?;
                            self.state = FlowState::Open;
                            return Poll::Pending;
                        }
                        Poll::Pending => return Poll::Pending,
                    }
                    let piece = piece.filled();
                    if piece.is_empty() {
                        self.state = FlowState::Ending;
                        continue;
                    }
                    self.state = FlowState::Written;
                    match poll_write(cx, sink, piece) {
                        Poll::Ready(count) => {
                            let count = count?;
                            moved(count);
                            self.held = held(piece, count);
                        }
                        Poll::Pending => {
                            self.held = held(piece, 0);
                            return Poll::Pending;
                        }
                    }
                }
            }
        }
    }
}

fn held(piece: &[u8], written: usize) -> Bytes {
    Bytes::copy_from_slice(piece.get(written..).unwrap_or_default())
}

fn poll_write(
    cx: &mut Context<'_>,
    sink: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> Poll<Result<usize, Side>> {
    match ready!(Pin::new(sink).poll_write(cx, bytes)) {
        Ok(0) | Err(_) => Poll::Ready(Err(Side::Sink)),
        Ok(count) => Poll::Ready(Ok(count)),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A sink that takes three bytes at a time and is pending before each: the case in which a relay
    /// has lost data (ztunnel #1249).
    #[derive(Default)]
    struct Reluctant {
        taken: Vec<u8>,
        was_pending: bool,
        is_shut: bool,
    }

    impl AsyncWrite for Reluctant {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.was_pending = !self.was_pending;
            if self.was_pending {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let count = bytes.len().min(3);
            self.taken.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.is_shut = true;
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_reluctant_sink_gets_every_byte_in_order_and_then_the_end() {
        let sent: Vec<u8> = (0..=255).cycle().take(200_000).collect();
        let mut source = sent.as_slice();
        let mut sink = Reluctant::default();
        let mut flow = Flow::starting_with(Bytes::from_static(b"early"));
        let mut moved = 0;
        let outcome =
            poll_fn(|cx| flow.poll(cx, &mut source, &mut sink, &mut |count| moved += count));
        assert!(outcome.await.is_ok());
        assert_eq!(moved, sent.len() + 5);
        assert!(sink.taken.starts_with(b"early") && sink.taken[5..] == sent[..]);
        assert!(sink.is_shut);
    }
}
