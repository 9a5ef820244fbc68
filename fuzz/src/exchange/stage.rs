//! The world around the proxy: names with fixed addresses, a connector that writes down what it is
//! asked for, an origin that plays its part, and an audit log in memory.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex};

use strait::destination::HostName;
use strait::policy::{Checked, Policy};
use strait::proxy::{BoxFuture, Connect, Resolve};
use strait::refusal::Failed;
use strait::rule::Rule;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::request::Request;

/// The rules.
const RULES: [&str; 8] = [
    "public.test",
    "both.test",
    "private.test",
    "mixed.test:443",
    "lab.test:8080",
    "empty.test",
    "failing.test",
    "192.0.2.7:80",
];
/// The network that is open beside the public ones.
const NETWORK: &str = "198.51.100.0/24";
/// The addresses that may be dialled, with what a plain request there has for a Host.
pub(super) const PERMITTED: [(&str, &str); 8] = [
    ("93.184.216.34:443", "public.test:443"),
    ("93.184.216.34:80", "public.test"),
    ("[2606:4700::1111]:443", "both.test:443"),
    ("[2606:4700::1111]:80", "both.test"),
    ("104.16.132.229:443", "both.test:443"),
    ("104.16.132.229:80", "both.test"),
    ("198.51.100.3:8080", "lab.test:8080"),
    ("192.0.2.7:80", "192.0.2.7"),
];

/// What every connection of this process goes to, whatever address was dialled.
static LISTENER: LazyLock<TcpListener> =
    LazyLock::new(|| TcpListener::bind("127.0.0.1:0").expect("a port on loopback"));

pub(super) fn policy() -> Policy {
    let rules = RULES.map(|rule| Rule::parse(rule).expect("a rule"));
    Policy::new(rules, [NETWORK.parse().expect("a network")]).expect("a policy")
}

fn answers(name: &str) -> Result<Vec<IpAddr>, Failed> {
    let addresses: &[&str] = match name {
        "public.test" => &["93.184.216.34"],
        "both.test" => &["104.16.132.229", "2606:4700::1111"],
        "private.test" => &["10.0.0.1"],
        "mixed.test" => &["93.184.216.34", "::ffff:127.0.0.1"],
        "lab.test" => &["198.51.100.3"],
        "empty.test" => &[],
        "failing.test" => return Err(Failed::Dns),
        other => panic!("{other} was resolved and is not listed"),
    };
    let parse = |text: &&str| text.parse().expect("an address");
    Ok(addresses.iter().map(parse).collect())
}

/// The world, and what happened in it.
pub(super) struct Stage {
    answer: Vec<u8>,
    origin_waits: bool,
    facts: Mutex<Facts>,
    origins: Mutex<Vec<JoinHandle<()>>>,
    /// Goes up with everything that happens.
    pub(super) moved: AtomicU64,
    /// Goes up with every line of the log.
    pub(super) lines: AtomicU64,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Every address the connector was asked for.
    pub(super) dialled: Vec<SocketAddr>,
    /// Connections that were made: to where, and what the origin received on it.
    pub(super) connections: Vec<(SocketAddr, Vec<u8>)>,
}

impl Stage {
    pub(super) fn new(answer: &[u8], origin_waits: bool) -> Arc<Self> {
        Arc::new(Self {
            answer: answer.to_vec(),
            origin_waits,
            facts: Mutex::default(),
            origins: Mutex::default(),
            moved: AtomicU64::new(0),
            lines: AtomicU64::new(0),
        })
    }

    pub(super) fn facts(&self) -> Facts {
        self.facts.lock().expect("no panic").clone()
    }

    pub(super) fn take_origins(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.origins.lock().expect("no panic"))
    }

    fn dial(self: Arc<Self>, to: SocketAddr) -> io::Result<tokio::net::TcpStream> {
        self.moved.fetch_add(1, Ordering::Relaxed);
        let mut facts = self.facts.lock().expect("no panic");
        facts.dialled.push(to);
        // Has both families, and only IPv4 works: the second address is tried.
        if to.is_ipv6() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = connected_pair()?;
        let index = facts.connections.len();
        facts.connections.push((to, Vec::new()));
        drop(facts);
        let origin = tokio::spawn(Arc::clone(&self).be_origin(index, far));
        self.origins.lock().expect("no panic").push(origin);
        Ok(near)
    }

    /// Answers once a request or the end has come, or at once; then reads to the end.
    async fn be_origin(self: Arc<Self>, index: usize, mut stream: tokio::net::TcpStream) {
        let mut has_answered = false;
        let mut received = Vec::new();
        loop {
            let request = Request::read(&received);
            let is_asked = request.is_some_and(|it| matches!(it.end(), Some((true, _))));
            if !has_answered && (is_asked || !self.origin_waits) {
                has_answered = true;
                self.answer(&mut stream).await;
            }
            let read = stream.read_buf(&mut received).await;
            self.moved.fetch_add(1, Ordering::Relaxed);
            // A break is an end; what came before it counts.
            if !matches!(read, Ok(1..)) {
                break;
            }
        }
        if !has_answered {
            self.answer(&mut stream).await;
        }
        self.facts.lock().expect("no panic").connections[index].1 = received;
    }

    async fn answer(&self, stream: &mut tokio::net::TcpStream) {
        // The proxy may have gone; that is its right.
        let _ = stream.write_all(&self.answer).await;
        let _ = stream.shutdown().await;
    }
}

fn connected_pair() -> io::Result<(tokio::net::TcpStream, tokio::net::TcpStream)> {
    #[expect(
        clippy::disallowed_methods,
        reason = "to the listener of this process, in place of the address"
    )]
    let near = TcpStream::connect(LISTENER.local_addr()?)?;
    let (far, _) = LISTENER.accept()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    Ok((near.try_into()?, far.try_into()?))
}

impl Resolve for Stage {
    fn resolve<'a>(&'a self, name: &'a HostName) -> BoxFuture<'a, Result<Vec<IpAddr>, Failed>> {
        self.moved.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(answers(name.as_str())))
    }
}

/// The stage as the proxy's connector.
pub(super) struct Connector(pub(super) Arc<Stage>);

impl Connect for Connector {
    fn connect(&self, to: Checked) -> BoxFuture<'static, io::Result<tokio::net::TcpStream>> {
        let stage = Arc::clone(&self.0);
        Box::pin(async move { stage.dial(to.get()) })
    }
}

/// The audit log: handed over whole when the proxy lets go of it.
pub(super) struct Sink {
    stage: Arc<Stage>,
    log: Vec<u8>,
    whole: SyncSender<Vec<u8>>,
}

impl Sink {
    pub(super) fn new(stage: Arc<Stage>) -> (Self, Receiver<Vec<u8>>) {
        let (whole, receiver) = sync_channel(1);
        let log = Vec::new();
        (Self { stage, log, whole }, receiver)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stage.moved.fetch_add(1, Ordering::Relaxed);
        self.stage.lines.fetch_add(1, Ordering::Relaxed);
        self.log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Nobody waits for it when the check before has failed.
        let _ = self.whole.send(std::mem::take(&mut self.log));
    }
}
