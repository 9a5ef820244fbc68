//! The client's bytes on their way to hyper: every head is read strictly first.
//!
//! [`Screen`] wraps the client's stream. It collects a head, parses it with
//! [`RequestHead`], leaves the result at the [`Seat`] for the exchange, and only then
//! lets hyper read those bytes. In place of a head it refused, hyper reads a harmless stand-in, so
//! that a refusal for a malformed head takes the way of every other answer. While a reply is under
//! way nothing of the next request is handed on: the screen only notices whether the client is
//! still there, so what follows a CONNECT stays here until the tunnel takes it.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::seat::Seat;
use super::{Client, Limits};
use crate::body::BodyEnd;
use crate::head::{RefusedHead, RequestHead};
use crate::refusal::Malformed;

/// What hyper reads in place of a head that was refused. Nothing in it is ever looked at.
const STAND_IN: &[u8] =
    b"GET http://refused.invalid/ HTTP/1.1\r\nHost: refused.invalid\r\nConnection: close\r\n\r\n";
/// How much is read from the client at a time.
const READ_SIZE: usize = 16 * 1024;

/// The client's stream, screened.
#[derive(Debug)]
pub(super) struct Screen<C> {
    client: C,
    seat: Seat,
    limits: Limits,
    /// Read from the client and not yet handed on.
    buffer: Vec<u8>,
    phase: Phase,
    /// Fires when the head is due; re-armed by [`Screen::arm`].
    due: Pin<Box<Sleep>>,
    /// Bytes of `buffer` that hold no complete head, as far as is known.
    unfinished: usize,
}

#[derive(Debug)]
enum Phase {
    /// Waiting for the first byte of a head.
    Idle,
    /// Collecting a head.
    Head,
    /// Handing on a head of this many bytes, then the body behind it.
    Deliver(usize, BodyEnd),
    /// Handing on a body.
    Body(BodyEnd),
    /// Handing on the rest of the stand-in; nothing after it.
    StandIn(&'static [u8]),
}

impl<C: Client> Screen<C> {
    /// Screens a new connection; its first head is due at once.
    pub(super) fn new(client: C, seat: Seat, limits: Limits) -> Self {
        let due = Box::pin(sleep_until(Instant::now() + limits.head_read));
        Self {
            client,
            seat,
            limits,
            buffer: Vec::new(),
            phase: Phase::Idle,
            due,
            unfinished: 0,
        }
    }

    /// What has come of a head that is not complete, when the connection is cut.
    pub(super) fn unfinished_head(&self) -> Option<RefusedHead> {
        let is_under_way = matches!(self.phase, Phase::Head) && !self.buffer.is_empty();
        is_under_way.then(|| RefusedHead::new(Malformed::HeadIncomplete, &self.buffer))
    }

    /// The client's stream, and what was read from it but not handed on.
    pub(super) fn into_parts(self) -> (C, Bytes) {
        (self.client, self.buffer.into())
    }

    fn arm(&mut self, after: Duration) {
        self.due.as_mut().reset(Instant::now() + after);
    }

    /// Reads once from the client into the buffer; 0 bytes are its end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // On the stack: a connection that waits holds no memory for what may come.
        let mut space = [MaybeUninit::uninit(); READ_SIZE];
        let mut piece = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.client).poll_read(cx, &mut piece))?;
        let piece = piece.filled();
        if !piece.is_empty() {
            self.seat.touch();
            self.buffer.extend_from_slice(piece);
        }
        Poll::Ready(Ok(piece.len()))
    }

    /// While a reply is under way: pending until it is over or the client has gone.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An end now would end the connection before there is an attempt to leave a line.
        if self.seat.holds_head(cx.waker()) {
            return Poll::Pending;
        }
        while self.buffer.len() < READ_SIZE {
            if ready!(self.poll_fill(cx))? == 0 {
                // What it sent before its end is still to be taken: the next request, or the first
                // bytes of a tunnel that is open one way.
                return if self.buffer.is_empty() {
                    Poll::Ready(Ok(()))
                } else {
                    Poll::Pending
                };
            }
        }
        // It has more to say, which has to wait: unread bytes are back-pressure.
        Poll::Pending
    }

    /// Collects a head. `None` is the end of the connection between requests.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Result<RequestHead, RefusedHead>>>> {
        loop {
            // An empty line before a head is ignored (RFC 9112 §2.2).
            let start = self.buffer.iter().position(|byte| !b"\r\n".contains(byte));
            self.buffer.drain(..start.unwrap_or(self.buffer.len()));
            if matches!(self.phase, Phase::Idle) && !self.buffer.is_empty() {
                self.phase = Phase::Head;
                self.unfinished = 0;
                self.arm(self.limits.head_read);
            }
            if let Some(head) = self.parse() {
                return Poll::Ready(Ok(Some(head)));
            }
            let read = match self.poll_fill(cx) {
                Poll::Ready(read) => read,
                Poll::Pending if self.due.as_mut().poll(cx).is_ready() => {
                    return Poll::Ready(Ok(self.give_up(Malformed::HeadTimeout)));
                }
                Poll::Pending => return Poll::Pending,
            };
            match read {
                Ok(0) => return Poll::Ready(Ok(self.give_up(Malformed::HeadIncomplete))),
                Ok(_) => {}
                // A reset in the middle of a head is an attempt too.
                Err(_) if !self.buffer.is_empty() => {
                    return Poll::Ready(Ok(self.give_up(Malformed::HeadIncomplete)));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Parses the buffer, where a line has ended since the last time or nothing was tried yet.
    fn parse(&mut self) -> Option<Result<RequestHead, RefusedHead>> {
        let new = self.buffer.get(self.unfinished..).unwrap_or_default();
        let is_due = self.unfinished == 0
            || self.buffer.len() >= self.limits.head.bytes
            || new.contains(&b'\n');
        if self.buffer.is_empty() || !is_due {
            return None;
        }
        self.unfinished = self.buffer.len();
        RequestHead::parse(&self.buffer, self.limits.head).transpose()
    }

    fn give_up(&self, reason: Malformed) -> Option<Result<RequestHead, RefusedHead>> {
        (!self.buffer.is_empty()).then(|| Err(RefusedHead::new(reason, &self.buffer)))
    }

    /// Moves `count` bytes of the buffer to hyper.
    fn hand_on(&mut self, count: usize, out: &mut ReadBuf<'_>) {
        out.put_slice(self.buffer.get(..count).unwrap_or_default());
        self.buffer.drain(..count);
    }

    /// After a head or body: the next head is due within the keep-alive time.
    fn await_head(&mut self) {
        self.phase = Phase::Idle;
        self.arm(self.limits.keep_alive);
    }
}

impl<C: Client> AsyncRead for Screen<C> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match &mut this.phase {
                Phase::Idle | Phase::Head if this.seat.is_replying(cx.waker()) => {
                    // The time to the next head counts from the end of this reply.
                    this.arm(this.limits.keep_alive);
                    return this.poll_gone(cx);
                }
                Phase::Idle | Phase::Head => {
                    let Some(head) = ready!(this.poll_head(cx))? else {
                        return Poll::Ready(Ok(()));
                    };
                    this.phase = match &head {
                        Ok(head) => Phase::Deliver(head.length, BodyEnd::of(head.framing)),
                        Err(_) => Phase::StandIn(STAND_IN),
                    };
                    this.seat.deliver(head);
                }
                Phase::Deliver(left, body) => {
                    let count = (*left).min(out.remaining());
                    *left -= count;
                    if *left == 0 {
                        this.phase = Phase::Body(body.clone());
                    }
                    this.hand_on(count, out);
                    return Poll::Ready(Ok(()));
                }
                Phase::Body(body) if body.is_reached() => this.await_head(),
                // A break in the content now would end the connection before there is an attempt.
                Phase::Body(_) if this.seat.holds_head(cx.waker()) => return Poll::Pending,
                // Our own reading of chunks is the stricter one, so nothing after them is a head.
                Phase::Body(body) if body.is_lost() => {
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                Phase::Body(body) if !this.buffer.is_empty() => {
                    let room = out.remaining().min(this.buffer.len());
                    let count = body.advance(this.buffer.get(..room).unwrap_or_default());
                    if body.is_lost() {
                        // Not a byte of it: hyper might find an end in there.
                        continue;
                    }
                    this.hand_on(count, out);
                    return Poll::Ready(Ok(()));
                }
                Phase::Body(_) => {
                    if ready!(this.poll_fill(cx))? == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                Phase::StandIn([]) => return Poll::Pending,
                Phase::StandIn(rest) => {
                    let (now, later) = rest.split_at(rest.len().min(out.remaining()));
                    out.put_slice(now);
                    *rest = later;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl<C: Client> AsyncWrite for Screen<C> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let count = ready!(Pin::new(&mut this.client).poll_write(cx, bytes))?;
        this.seat.touch();
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let count = ready!(Pin::new(&mut this.client).poll_write_vectored(cx, bytes))?;
        this.seat.touch();
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.client.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.client).poll_flush(cx))?;
        this.seat.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().client).poll_shutdown(cx)
    }
}
