//! A proxy under test: a real listener, names from a map, a dialer that records what it is asked
//! for, audit lines in memory. Nothing leaves loopback, whatever addresses a test makes up.

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use strait::destination::HostName;
use strait::document;
use strait::policy::{Checked, Policy};
use strait::proxy::{BoxFuture, Connect, Limits, Proxy, ProxyConfig, Resolve, ServeError, Stop};
use strait::refusal::Failed;
use strait::rule::Rule;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The instant every audit line under test carries.
pub(crate) fn fixed_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_796_077_200_123)
}

/// Waits for something that must happen.
pub(crate) async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    let outcome = timeout(PATIENCE, happens).await;
    outcome.unwrap_or_else(|_| panic!("{what} did not happen within {PATIENCE:?}"))
}

/// What is asked for, and in which order.
#[derive(Debug)]
pub(crate) struct Log<T>(Mutex<Vec<T>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<T: Clone> Log<T> {
    fn add(&self, entry: T) {
        self.0.lock().unwrap().push(entry);
    }

    fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

/// Names from a map.
#[derive(Debug, Default)]
struct Names {
    answers: HashMap<String, Result<Vec<IpAddr>, Failed>>,
    /// These names never get an answer.
    silent: Vec<String>,
    asked: Log<String>,
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a HostName) -> BoxFuture<'a, Result<Vec<IpAddr>, Failed>> {
        self.asked.add(name.to_string());
        let answer = self.answers.get(name.as_str()).cloned();
        let is_silent = self.silent.iter().any(|silent| silent == name.as_str());
        Box::pin(async move {
            if is_silent {
                std::future::pending::<()>().await;
            }
            answer.unwrap_or(Err(Failed::DnsNameNotFound))
        })
    }
}

/// How the recording dialer treats every address.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Dial {
    /// Connects to a test origin on loopback instead.
    To(SocketAddr),
    /// Fails as the system would.
    #[default]
    Refuse,
    /// Never answers.
    Hang,
    /// Panics, as a fault in the proxy would.
    Panic,
}

#[derive(Debug, Default)]
struct Dialer {
    dial: Dial,
    asked: Log<SocketAddr>,
    started: Notify,
}

impl Connect for Dialer {
    fn connect(&self, to: Checked) -> BoxFuture<'static, io::Result<TcpStream>> {
        self.asked.add(to.get());
        self.started.notify_waiters();
        let dial = self.dial;
        Box::pin(async move {
            match dial {
                Dial::To(origin) => TcpStream::connect(origin).await,
                Dial::Refuse => Err(io::ErrorKind::ConnectionRefused.into()),
                Dial::Hang => std::future::pending().await,
                Dial::Panic => panic!("a dialer that panics, as the test asked"),
            }
        })
    }
}

/// Audit lines in memory, and whoever waits for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    text: Arc<Mutex<Vec<u8>>>,
    grown: Arc<Notify>,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.lock().unwrap().extend_from_slice(bytes);
        self.grown.notify_waiters();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn all(&self) -> Vec<String> {
        let text = self.text.lock().unwrap().clone();
        let text = String::from_utf8(text).expect("audit lines are ASCII");
        text.lines().map(str::to_owned).collect()
    }
}

/// A proxy about to be started.
pub(crate) struct Setup {
    rules: Vec<Rule>,
    networks: Vec<ipnet::IpNet>,
    names: Names,
    dial: Dial,
    limits: Limits,
    name: Option<String>,
    log_close: bool,
    notice: fn(std::fmt::Arguments<'_>),
}

impl Setup {
    /// Allows the hosts, like `--allow`.
    pub(crate) fn allowing(rules: &[&str]) -> Self {
        Self {
            rules: rules
                .iter()
                .map(|rule| Rule::parse(rule).expect("a rule"))
                .collect(),
            networks: Vec::new(),
            names: Names::default(),
            dial: Dial::default(),
            limits: Limits {
                grace: Duration::from_millis(100),
                ..Limits::default()
            },
            name: None,
            log_close: false,
            notice: |_| {},
        }
    }

    pub(crate) fn opening(mut self, network: &str) -> Self {
        self.networks
            .push(document::parse_network(network).expect("a network"));
        self
    }

    pub(crate) fn answering(mut self, name: &str, addresses: &[&str]) -> Self {
        let addresses = addresses
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect();
        self.names.answers.insert(name.to_owned(), Ok(addresses));
        self
    }

    pub(crate) fn failing(mut self, name: &str, failed: Failed) -> Self {
        self.names.answers.insert(name.to_owned(), Err(failed));
        self
    }

    pub(crate) fn silent(mut self, name: &str) -> Self {
        self.names.silent.push(name.to_owned());
        self
    }

    pub(crate) fn dialling(mut self, dial: Dial) -> Self {
        self.dial = dial;
        self
    }

    pub(crate) fn limited(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    pub(crate) fn logging_close(mut self) -> Self {
        self.log_close = true;
        self
    }

    /// Starts it with its audit lines in memory.
    pub(crate) async fn start(self) -> Running {
        let lines = Lines::default();
        self.start_with(lines.clone(), lines).await
    }

    /// Starts it with another sink for its audit lines.
    pub(crate) async fn start_with(
        self,
        sink: impl Write + Send + 'static,
        lines: Lines,
    ) -> Running {
        let policy = Policy::new(self.rules, self.networks).expect("a policy");
        let config = ProxyConfig {
            policy,
            limits: self.limits,
            name: self.name,
            log_close: self.log_close,
            clock: fixed_clock,
            notice: self.notice,
        };
        let names = Arc::new(self.names);
        let dialer = Arc::new(Dialer {
            dial: self.dial,
            ..Dialer::default()
        });
        let resolver: Arc<dyn Resolve> = names.clone();
        let connector: Arc<dyn Connect> = dialer.clone();
        let proxy = Proxy::new(config, resolver, connector, sink).expect("a thread");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = watch::channel(Stop::Run);
        let task = tokio::spawn(async move { proxy.serve(listener, stopped).await });
        Running {
            address,
            stop,
            task,
            names,
            dialer,
            lines,
        }
    }
}

/// A running proxy.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: watch::Sender<Stop>,
    pub(crate) task: JoinHandle<Result<(), ServeError>>,
    names: Arc<Names>,
    dialer: Arc<Dialer>,
    lines: Lines,
}

impl Running {
    /// A new client.
    pub(crate) async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address)
            .await
            .expect("the proxy listens");
        Client {
            stream,
            unread: Vec::new(),
        }
    }

    /// A client that has sent something.
    pub(crate) async fn client_sending(&self, bytes: impl AsRef<[u8]>) -> Client {
        let mut client = self.client().await;
        client.send(bytes).await;
        client
    }

    /// A client whose tunnel is open.
    pub(crate) async fn tunnel_to(&self, destination: &str) -> Client {
        let head = format!("CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n\r\n");
        let mut client = self.client_sending(head).await;
        assert_eq!(client.response().await.status, 200);
        client
    }

    /// Sends bytes and returns everything that comes back, up to the end or reset of the connection.
    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.client_sending(bytes).await;
        client.rest().await
    }

    /// The names resolved.
    pub(crate) fn resolved(&self) -> Vec<String> {
        self.names.asked.all()
    }

    /// The addresses dialled.
    pub(crate) fn dialled(&self) -> Vec<String> {
        self.dialer
            .asked
            .all()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// Waits until an address is being dialled.
    pub(crate) async fn dialling(&self) {
        soon("a dial", async {
            loop {
                let started = self.dialer.started.notified();
                if !self.dialled().is_empty() {
                    return;
                }
                started.await;
            }
        })
        .await;
    }

    /// The audit lines so far, with the times that differ from run to run set to 0.
    pub(crate) fn audit(&self) -> Vec<String> {
        self.lines
            .all()
            .iter()
            .map(|line| without_ms(line))
            .collect()
    }

    /// The `reason` and `ended` words of the audit lines so far.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let word = |line: String| {
            let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            let word = line.get("reason").or_else(|| line.get("ended"));
            word.and_then(|word| word.as_str())
                .expect("a reason")
                .to_owned()
        };
        self.lines.all().into_iter().map(word).collect()
    }

    /// Waits for this many audit lines.
    pub(crate) async fn audit_of(&self, count: usize) -> Vec<String> {
        let lines = soon("an audit line", async {
            loop {
                let grown = self.lines.grown.notified();
                if self.lines.all().len() >= count {
                    return self.audit();
                }
                grown.await;
            }
        });
        lines.await
    }

    /// Stops the proxy at once and returns all of its audit lines.
    pub(crate) async fn stop(self) -> Vec<String> {
        self.stop.send_replace(Stop::Now);
        let outcome = soon("the end of the proxy", self.task)
            .await
            .expect("no panic");
        outcome.expect("the lines were written");
        self.lines
            .all()
            .iter()
            .map(|line| without_ms(line))
            .collect()
    }
}

/// Sets `"ms":N` to `"ms":0`: the one field of a line that no test can fix.
fn without_ms(line: &str) -> String {
    let (before, after) = line
        .rsplit_once("\"ms\":")
        .expect("every line has its time");
    assert!(after.trim_end_matches('}').parse::<u64>().is_ok(), "{line}");
    format!("{before}\"ms\":0}}")
}

/// One client connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

/// A response, as far as its head and length go.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    /// The value of a field, by its lower-case name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The proxy may have answered and closed before it has everything.
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// Reads one response with the length its head gives it.
    pub(crate) async fn response(&mut self) -> Response {
        let end = self.read_until(b"\r\n\r\n").await;
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let head = String::from_utf8(head).expect("heads in tests are text");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let mut response = Response {
            status: status.expect("a status"),
            head,
            body: String::new(),
        };
        if let Some(length) = response.field("content-length") {
            let length: usize = length.parse().expect("a length");
            while self.unread.len() < length {
                assert!(self.read_more().await > 0, "the body was cut short");
            }
            let body: Vec<u8> = self.unread.drain(..length).collect();
            response.body = String::from_utf8(body).expect("bodies in tests are text");
        }
        response
    }

    /// Reads up to and including a mark.
    async fn read_until(&mut self, mark: &[u8]) -> usize {
        loop {
            let found = self
                .unread
                .windows(mark.len())
                .position(|window| window == mark);
            if let Some(found) = found {
                return found + mark.len();
            }
            let so_far = String::from_utf8_lossy(&self.unread).into_owned();
            assert!(
                self.read_more().await > 0,
                "the connection ended after {so_far:?}"
            );
        }
    }

    /// Reads exactly this many bytes.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            assert!(self.read_more().await > 0, "the connection ended early");
        }
        self.unread.drain(..count).collect()
    }

    /// Everything up to the end or the reset of the connection.
    pub(crate) async fn rest(&mut self) -> String {
        while self.read_more().await > 0 {}
        String::from_utf8_lossy(&std::mem::take(&mut self.unread)).into_owned()
    }

    /// How the connection ends, once what is left has been read: cleanly, or by a reset.
    pub(crate) async fn end(&mut self) -> io::Result<()> {
        let mut ignored = [0; 4096];
        loop {
            match soon("the end of a connection", self.stream.read(&mut ignored)).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn read_more(&mut self) -> usize {
        let reading = self.stream.read_buf(&mut self.unread);
        soon("bytes from the proxy", reading).await.unwrap_or(0)
    }
}

/// A test origin on loopback: what it got, and how it answers.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Origin {
    /// Runs `serve` for every connection.
    pub(crate) async fn serving<F>(serve: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        Self { address, task }
    }

    /// Answers every connection's first head with these bytes, then closes.
    pub(crate) async fn replying(reply: &'static str) -> Self {
        Self::serving(move |mut stream| async move {
            read_head(&mut stream).await;
            let _ = stream.write_all(reply.as_bytes()).await;
        })
        .await
    }

    /// Answers with what it got: the whole head, as text.
    pub(crate) async fn showing() -> Self {
        Self::serving(|mut stream| async move {
            let head = read_head(&mut stream).await;
            let length = head.len();
            let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{head}");
            let _ = stream.write_all(reply.as_bytes()).await;
        })
        .await
    }

    /// Sends back whatever comes, until it ends.
    pub(crate) async fn echoing() -> Self {
        Self::serving(|mut stream| async move {
            let (mut from, mut to) = stream.split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
            let _ = to.shutdown().await;
        })
        .await
    }
}

/// Reads a request head from a connection, and perhaps what came along with it.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
