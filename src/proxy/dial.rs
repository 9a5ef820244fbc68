//! Checked addresses become a connection: the only `connect` in the crate.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

use super::resolve::BoxFuture;
use crate::policy::{Checked, Dialable};
use crate::refusal::Failed;

/// The most addresses of one name that are tried; all of them were checked.
const MAX_ATTEMPTS: usize = 16;

/// Opens connections. A replacement sees every address this proxy would dial, and no other.
pub trait Connect: Send + Sync + 'static {
    /// Connects to one checked address.
    fn connect(&self, to: Checked) -> BoxFuture<'static, io::Result<TcpStream>>;
}

/// Plain TCP, without delay for small segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConnect;

impl Connect for TcpConnect {
    fn connect(&self, to: Checked) -> BoxFuture<'static, io::Result<TcpStream>> {
        Box::pin(async move {
            #[expect(
                clippy::disallowed_methods,
                reason = "the one place that dials: a Checked"
            )]
            let stream = TcpStream::connect(to.get()).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }
}

/// An open connection and the address it goes to.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
}

/// No connection, and the address whose failure is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DialFailure {
    pub(super) failed: Failed,
    pub(super) address: SocketAddr,
}

/// Tries the addresses in turn, the families interleaved, each `step` after the one before or at
/// once when that fails; the first connection wins (RFC 8305 §4, §5). `limit` is for all of them.
pub(super) async fn dial(
    connector: &dyn Connect,
    to: &Dialable,
    limit: Duration,
    step: Duration,
) -> Result<Connection, DialFailure> {
    let mut waiting = interleave(to.addresses()).into_iter();
    let mut under_way: Vec<Attempt> = Vec::new();
    let mut failure: Option<DialFailure> = None;
    let mut deadline = pin!(sleep(limit));
    let mut next = pin!(sleep(Duration::ZERO));
    poll_fn(|context| {
        loop {
            let mut finished = None;
            for (index, attempt) in under_way.iter_mut().enumerate() {
                if let Poll::Ready(outcome) = attempt.connecting.as_mut().poll(context) {
                    finished = Some((index, outcome));
                    break;
                }
            }
            let start_next = match finished {
                Some((index, outcome)) => {
                    let address = under_way.remove(index).address;
                    match outcome {
                        Ok(stream) => return Poll::Ready(Ok(Connection { stream, address })),
                        Err(error) => {
                            let now = DialFailure {
                                failed: classify(&error),
                                address,
                            };
                            failure = Some(failure.map_or(now, |before| more_telling(before, now)));
                            true
                        }
                    }
                }
                None if deadline.as_mut().poll(context).is_ready() => {
                    let slow = under_way.first().map(|attempt| attempt.address);
                    let address = slow.or_else(|| failure.map(|failure| failure.address));
                    let failed = Failed::ConnectTimeout;
                    return address.map_or(Poll::Pending, |address| {
                        Poll::Ready(Err(DialFailure { failed, address }))
                    });
                }
                None => next.as_mut().poll(context).is_ready(),
            };
            if !start_next {
                return Poll::Pending;
            }
            match waiting.next() {
                Some(to) => {
                    let connecting = connector.connect(to);
                    under_way.push(Attempt {
                        address: to.get(),
                        connecting,
                    });
                    next.set(sleep(step));
                }
                None if under_way.is_empty() => {
                    // `Dialable` is never empty, so an attempt failed before this.
                    return failure.map_or(Poll::Pending, |failure| Poll::Ready(Err(failure)));
                }
                // Nothing left to start: wait for those under way, or for the deadline.
                None => next.set(sleep_until(Instant::now() + limit)),
            }
        }
    })
    .await
}

struct Attempt {
    address: SocketAddr,
    connecting: Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>,
}

/// IPv6 first, then the families in turn, each in the resolver's order (RFC 8305 §4).
fn interleave(addresses: &[Checked]) -> Vec<Checked> {
    let mut v6 = addresses.iter().filter(|address| address.get().is_ipv6());
    let mut v4 = addresses.iter().filter(|address| address.get().is_ipv4());
    let mut order = Vec::with_capacity(addresses.len());
    loop {
        let pair = (v6.next(), v4.next());
        if pair == (None, None) || order.len() >= MAX_ATTEMPTS {
            order.truncate(MAX_ATTEMPTS);
            return order;
        }
        order.extend([pair.0, pair.1].into_iter().flatten());
    }
}

/// Of two failures, the one told: "no route" is normal where a family is missing altogether.
fn more_telling(before: DialFailure, now: DialFailure) -> DialFailure {
    if before.failed == Failed::ConnectUnreachable {
        now
    } else {
        before
    }
}

fn classify(error: &io::Error) -> Failed {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        Failed::ConnectRefused
    } else if matches!(
        error.kind(),
        io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::PermissionDenied
    ) {
        Failed::ConnectUnreachable
    } else if error.kind() == io::ErrorKind::TimedOut {
        Failed::ConnectTimeout
    } else {
        Failed::Connect
    }
}
