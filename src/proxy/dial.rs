//! Checked addresses become a connection: the only `connect` in the crate.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until};

use super::BoxFuture;
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
///
/// One attempt at a time is always allowed; those beside it take a place in `beside`, so that a crowd
/// whose addresses are all dead does not use up the open files. Without a place the next attempt
/// waits another step, or until it is the only one.
pub(super) async fn dial(
    connector: &dyn Connect,
    beside: &Semaphore,
    to: &Dialable,
    limit: Duration,
    step: Duration,
) -> Result<Connection, DialFailure> {
    let mut waiting = interleave(to.addresses()).into_iter();
    let mut under_way: Vec<Trial<'_>> = Vec::new();
    let mut failure: Option<DialFailure> = None;
    let mut deadline = pin!(sleep(limit));
    // The first attempt waits for no timer: even one of 0 fires a millisecond late.
    for to in waiting.by_ref().take(1) {
        let connecting = connector.connect(to);
        under_way.push(Trial {
            address: to.get(),
            connecting,
            _place: None,
        });
    }
    let mut next = pin!(sleep(step));
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
            let place = beside.try_acquire().ok();
            if place.is_none() && !under_way.is_empty() && waiting.len() > 0 {
                next.set(sleep(step));
                continue;
            }
            match waiting.next() {
                Some(to) => {
                    let connecting = connector.connect(to);
                    under_way.push(Trial {
                        address: to.get(),
                        connecting,
                        _place: place,
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

/// A connection attempt that is under way.
struct Trial<'a> {
    address: SocketAddr,
    connecting: Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>,
    _place: Option<SemaphorePermit<'a>>,
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Mutex;

    use super::*;
    use crate::destination::Destination;
    use crate::policy::Policy;
    use crate::rule::Rule;

    const LIMIT: Duration = Duration::from_secs(10);
    const STEP: Duration = Duration::from_millis(250);

    fn dialable(addresses: &[&str]) -> Dialable {
        let rule = Rule::parse("api.example.com").expect("a rule");
        let policy = Policy::new([rule], []).expect("a policy");
        let asked = Destination::from_authority_form("api.example.com:443").expect("valid");
        let answers: Vec<IpAddr> = addresses
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect();
        policy
            .permit(asked)
            .expect("listed")
            .check(&answers, &[])
            .expect("public")
    }

    /// Refuses, hangs or connects by address, and notes when it was asked.
    struct Script {
        started: Instant,
        asked: Mutex<Vec<(String, u128)>>,
        refusing: &'static [&'static str],
        accepting: &'static [&'static str],
        origin: Option<SocketAddr>,
    }

    impl Script {
        fn new(refusing: &'static [&'static str]) -> Self {
            let (started, asked) = (Instant::now(), Mutex::default());
            Self {
                started,
                asked,
                refusing,
                accepting: &[],
                origin: None,
            }
        }

        fn asked(&self) -> Vec<(String, u128)> {
            self.asked.lock().expect("not poisoned").clone()
        }
    }

    impl Connect for Script {
        #[expect(
            clippy::disallowed_methods,
            reason = "a loopback origin in place of the address"
        )]
        fn connect(&self, to: Checked) -> BoxFuture<'static, io::Result<TcpStream>> {
            let ip = to.get().ip().to_string();
            let at = self.started.elapsed().as_millis();
            self.asked
                .lock()
                .expect("not poisoned")
                .push((ip.clone(), at));
            let is_refused = self.refusing.contains(&ip.as_str());
            let origin = self
                .origin
                .filter(|_| self.accepting.contains(&ip.as_str()));
            Box::pin(async move {
                match origin {
                    Some(origin) => TcpStream::connect(origin).await,
                    None if is_refused => Err(io::ErrorKind::ConnectionRefused.into()),
                    None => std::future::pending().await,
                }
            })
        }
    }

    fn beside() -> Semaphore {
        Semaphore::new(MAX_ATTEMPTS)
    }

    fn order(addresses: &[(&str, u128)]) -> Vec<(String, u128)> {
        addresses
            .iter()
            .map(|(ip, at)| ((*ip).to_owned(), *at))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn silent_addresses_are_tried_a_step_apart_and_share_one_limit() {
        // H11, D26
        let script = Script::new(&[]);
        let to = dialable(&["8.8.8.8", "8.8.4.4", "2606:4700::1", "2606:4700::2"]);
        let failure = dial(&script, &beside(), &to, LIMIT, STEP)
            .await
            .expect_err("nobody answers");
        assert_eq!(failure.failed, Failed::ConnectTimeout);
        let expected = [
            ("2606:4700::1", 0),
            ("8.8.8.8", 250),
            ("2606:4700::2", 500),
            ("8.8.4.4", 750),
        ];
        assert_eq!(script.asked(), order(&expected));
        assert_eq!(script.started.elapsed().as_secs(), LIMIT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_starts_the_next_attempt_at_once() {
        let script = Script::new(&["2606:4700::1", "8.8.8.8"]);
        let to = dialable(&["2606:4700::1", "8.8.8.8"]);
        let failure = dial(&script, &beside(), &to, LIMIT, STEP)
            .await
            .expect_err("both refuse");
        assert_eq!(failure.failed, Failed::ConnectRefused);
        assert_eq!(
            script.asked(),
            order(&[("2606:4700::1", 0), ("8.8.8.8", 0)])
        );
    }

    #[tokio::test]
    async fn the_first_connection_wins() {
        // D26: a host without working IPv6 gets through within a step.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let script = Script {
            accepting: &["8.8.8.8"],
            origin: listener.local_addr().ok(),
            ..Script::new(&[])
        };
        let to = dialable(&["2606:4700::1", "8.8.8.8"]);
        let connection = dial(&script, &beside(), &to, LIMIT, STEP)
            .await
            .expect("one accepts");
        assert_eq!(connection.address, "8.8.8.8:443".parse().expect("valid"));
    }

    #[tokio::test(start_paused = true)]
    async fn sixteen_addresses_are_enough() {
        // D14
        let many: Vec<String> = (1..=100).map(|n| format!("8.8.8.{n}")).collect();
        let script = Script::new(&[]);
        let to = dialable(&many.iter().map(String::as_str).collect::<Vec<_>>());
        dial(&script, &beside(), &to, LIMIT, STEP)
            .await
            .expect_err("nobody answers");
        assert_eq!(script.asked().len(), MAX_ATTEMPTS);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_beside_the_first_need_a_place() {
        let to = dialable(&["8.8.8.1", "8.8.8.2", "8.8.8.3", "8.8.8.4"]);
        let script = Script::new(&[]);
        let beside = Semaphore::new(1);
        dial(&script, &beside, &to, LIMIT, STEP)
            .await
            .expect_err("nobody answers");
        assert_eq!(script.asked(), order(&[("8.8.8.1", 0), ("8.8.8.2", 250)]));
        assert_eq!(beside.available_permits(), 1, "the place is given back");

        // One at a time goes on without any.
        let script = Script::new(&["8.8.8.1", "8.8.8.2", "8.8.8.3", "8.8.8.4"]);
        dial(&script, &Semaphore::new(0), &to, LIMIT, STEP)
            .await
            .expect_err("all refuse");
        assert_eq!(script.asked().len(), 4);
    }
}
