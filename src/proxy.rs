//! The filtering forward proxy: admission, the accept loop, and the end.
//!
//! ```no_run
//! use std::sync::Arc;
//! use strait::{policy::Policy, proxy::{DnsResolver, Proxy, ProxyConfig, Stop, TcpConnect}, rule::Rule};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::new([Rule::parse("api.example.com")?], [])?;
//! let resolver = Arc::new(DnsResolver::from_system()?);
//! let proxy = Proxy::new(ProxyConfig::new(policy), resolver, Arc::new(TcpConnect), std::io::stdout())?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3128").await?;
//! let (stop, stopped) = tokio::sync::watch::channel(Stop::Run);
//! let serving = proxy.serve(listener, stopped);
//! # drop(stop);
//! serving.await?;
//! # Ok(())
//! # }
//! ```

mod attempt;
mod config;
mod connection;
mod dial;
mod exchange;
mod forward;
mod journal;
mod rarely;
mod reply;
mod resolve;
mod screen;
mod seat;
mod tunnel;

use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

pub use self::config::{Limits, ProxyConfig};
pub use self::dial::{Connect, TcpConnect};
pub use self::resolve::{DnsResolver, Resolve, lookup};

use self::attempt::Attempt;
use self::journal::Journal;
use self::rarely::Rarely;
use crate::audit::{Cut, Reason};
use crate::destination::Destination;
use crate::refusal::{Failed, Refusal};

/// How many clients beyond the limit are told so at a time; more are closed without a word.
const MAX_TURNED_AWAY: usize = 64;
/// The first and the longest pause after a failed `accept`: out of descriptors, trying again at
/// once would only spin.
const ACCEPT_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How long the last lines may take to be written at the end.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A future that borrows, for traits that are used as objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How far a proxy has been told to stop. It only ever goes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Serve.
    #[default]
    Run,
    /// Accept no more, and let what is open finish within the grace.
    Drain,
    /// Cut everything.
    Now,
}

impl Stop {
    /// Resolves when `stop` has gone up to `level`; never when its sender has gone away.
    async fn reached(stop: &mut watch::Receiver<Self>, level: Self) {
        if stop.wait_for(|now| *now >= level).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Why serving ended although nobody asked for it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The audit sink failed: no record, no traffic.
    #[error("the audit log can no longer be written: {0}; nothing more is let through")]
    Audit(String),
    /// The audit sink did not take the last lines.
    #[error("the audit log did not take its last lines within {LAST_LINES:?}")]
    LastLines,
}

/// A client's stream: TCP, or anything a host program passes in.
pub trait Client: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes the stream end with a reset when it is dropped, where there is such a thing: what the
    /// client has so far must not look like all there is.
    fn reset(&self) {}
}

impl Client for TcpStream {
    fn reset(&self) {
        // Fails on a socket that has been reset already, which is just as well.
        drop(self.set_zero_linger());
    }
}

#[cfg(unix)]
impl Client for tokio::net::UnixStream {}
impl Client for tokio::io::DuplexStream {}

/// A proxy, ready to serve.
#[derive(Clone, Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
}

/// What every connection of one proxy uses.
struct Shared {
    config: ProxyConfig,
    resolver: Arc<dyn Resolve>,
    connector: Arc<dyn Connect>,
    /// Places for attempts at a second address while the first is tried: one a client, shared.
    dials_beside: Semaphore,
    journal: Journal,
    next_id: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// What one connection is served with.
#[derive(Clone, Debug)]
struct Context {
    shared: Arc<Shared>,
    /// Where this proxy listens, if it does.
    listening: Option<SocketAddr>,
    stop: watch::Receiver<Stop>,
    /// Why we cut this connection, if we did.
    cut: Arc<OnceLock<Cut>>,
}

impl Context {
    /// The context of a proxy; each connection has a clone made by `for_connection`.
    fn new(
        shared: &Arc<Shared>,
        listening: Option<SocketAddr>,
        stop: watch::Receiver<Stop>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            listening,
            stop,
            cut: Arc::default(),
        }
    }

    /// The same for one more connection.
    fn for_connection(&self) -> Self {
        Self {
            cut: Arc::default(),
            ..self.clone()
        }
    }

    /// The socket addresses among a destination's that are this proxy's own: dialling one would be
    /// a request to itself (RFC 9110 §7.6).
    fn own_addresses(&self, destination: &Destination, answers: &[IpAddr]) -> Vec<SocketAddr> {
        let Some(listening) = self.listening else {
            return Vec::new();
        };
        if destination.port().number() != listening.port() {
            return Vec::new();
        }
        if !listening.ip().is_unspecified() {
            return vec![listening];
        }
        // Listening everywhere, an address is ours when it can be bound here; nothing is sent.
        let literal = match destination.host() {
            crate::destination::Host::Ip(address) => Some(*address),
            crate::destination::Host::Name(_) => None,
        };
        let candidates = answers.iter().copied().chain(literal);
        let own = candidates.filter(|address| UdpSocket::bind((*address, 0)).is_ok());
        own.map(|address| SocketAddr::new(address, listening.port()))
            .collect()
    }
}

impl Proxy {
    /// Makes a proxy that writes its audit lines to `audit`, from a thread of its own. Fails where
    /// no thread can be started.
    pub fn new(
        config: ProxyConfig,
        resolver: Arc<dyn Resolve>,
        connector: Arc<dyn Connect>,
        audit: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        // An attempt holds a place while it is decided, and one for its close line after.
        let clients = config.limits.connections;
        let lines = clients.saturating_mul(2).saturating_add(MAX_TURNED_AWAY);
        let journal = Journal::start(audit, lines.min(Semaphore::MAX_PERMITS))?;
        let next_id = AtomicU64::new(1);
        let shared = Shared {
            config,
            resolver,
            connector,
            dials_beside: Semaphore::new(clients.min(Semaphore::MAX_PERMITS)),
            journal,
            next_id,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Accepts and serves until told to stop.
    ///
    /// A client is admitted before anything is spent on it, and counts until its connection has
    /// ended. When this returns, everything has ended and every line has been written.
    pub async fn serve(
        &self,
        listener: TcpListener,
        stop: watch::Receiver<Stop>,
    ) -> Result<(), ServeError> {
        self.accept_until_stopped(listener, stop).await;
        if let Some(error) = self.shared.journal.failure() {
            return Err(ServeError::Audit(error.to_string()));
        }
        match timeout(LAST_LINES, self.shared.journal.written()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(ServeError::Audit("it is closed".to_owned())),
            Err(_) => Err(ServeError::LastLines),
        }
    }

    /// Serves one stream that the host program accepted itself.
    pub async fn serve_stream<C: Client>(&self, client: C, stop: watch::Receiver<Stop>) {
        let context = Context::new(&self.shared, None, stop);
        connection::serve(client, context).await;
    }

    async fn accept_until_stopped(&self, listener: TcpListener, mut stop: watch::Receiver<Stop>) {
        let limits = &self.shared.config.limits;
        let places = Arc::new(Semaphore::new(limits.connections));
        let (tell, told) = watch::channel(Stop::Run);
        let listening = listener.local_addr().ok();
        let context = Context::new(&self.shared, listening, told);
        let mut connections = JoinSet::new();
        let mut turned_away = JoinSet::new();
        let mut pause = ACCEPT_PAUSE.0;
        let (mut shortages, mut faults) = (Rarely::default(), Rarely::default());
        loop {
            let accepted = tokio::select! {
                () = Stop::reached(&mut stop, Stop::Drain) => break,
                () = self.shared.journal.broken() => break,
                Some(ended) = connections.join_next() => {
                    self.report(ended, &mut faults);
                    continue;
                }
                Some(_) = turned_away.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            let client = match accepted {
                Ok((client, _)) => client,
                Err(error) => {
                    if let Some(left_out) = shortages.happened(Instant::now()) {
                        (self.shared.config.notice)(format_args!(
                            "cannot accept a connection: {error}{left_out}"
                        ));
                    }
                    tokio::select! {
                        () = Stop::reached(&mut stop, Stop::Drain) => break,
                        () = sleep(pause) => pause = (pause * 2).min(ACCEPT_PAUSE.1),
                    }
                    continue;
                }
            };
            pause = ACCEPT_PAUSE.0;
            // Small answers must not wait for more; a socket that cannot is closed already.
            drop(client.set_nodelay(true));
            if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                let context = context.for_connection();
                connections.spawn(async move {
                    connection::serve(client, context).await;
                    drop(place);
                });
                continue;
            }
            let is_crowded = turned_away.len() >= MAX_TURNED_AWAY;
            let is_recorded = tokio::select! {
                is_recorded = self.record_turned_away(&context) => is_recorded,
                () = Stop::reached(&mut stop, Stop::Drain) => break,
            };
            if is_recorded && !is_crowded {
                turned_away.spawn(turn_away(client));
            }
        }
        drop(listener);
        self.drain(connections, &tell, stop, &mut faults).await;
    }

    /// Lets what is open finish within the grace, then cuts it.
    async fn drain(
        &self,
        mut connections: JoinSet<()>,
        tell: &watch::Sender<Stop>,
        mut stop: watch::Receiver<Stop>,
        faults: &mut Rarely,
    ) {
        tell.send_replace(Stop::Drain);
        let all_ended = async {
            while let Some(ended) = connections.join_next().await {
                self.report(ended, faults);
            }
        };
        tokio::select! {
            () = all_ended => return,
            () = sleep(self.shared.config.limits.grace) => {}
            () = Stop::reached(&mut stop, Stop::Now) => {}
            // No record, no traffic.
            () = self.shared.journal.broken() => {}
        }
        tell.send_replace(Stop::Now);
        // Told to stop at once, a connection does; one that does not is dropped, with its lines.
        let all_cut = async {
            while let Some(ended) = connections.join_next().await {
                self.report(ended, faults);
            }
        };
        if timeout(LAST_LINES, all_cut).await.is_err() {
            connections.shutdown().await;
        }
    }

    /// One line for a client that found no place.
    async fn record_turned_away(&self, context: &Context) -> bool {
        let reason = Reason::Refused(Refusal::from(Failed::Full));
        match Attempt::open(context).await {
            Ok(attempt) => attempt.refused(reason, false, None).await.is_ok(),
            Err(_) => false,
        }
    }

    fn report(&self, ended: Result<(), JoinError>, faults: &mut Rarely) {
        if let Err(error) = ended
            && error.is_panic()
            && let Some(left_out) = faults.happened(Instant::now())
        {
            (self.shared.config.notice)(format_args!(
                "a connection ended in a fault of the proxy: {error}{left_out}"
            ));
        }
    }
}

async fn turn_away(mut client: TcpStream) {
    let answer = reply::raw_refusal(Failed::Full.into());
    // A client that does not take it is closed all the same.
    drop(timeout(LAST_LINES, client.write_all(answer.as_bytes())).await);
    connection::close(&mut client).await;
}
