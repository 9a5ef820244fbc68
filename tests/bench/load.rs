//! Loads forward proxies in turn, beside no proxy at all, and prints what they did as a table.
//!
//! `scripts/bench` runs it, in a network namespace where the origin's address exists:
//! `load ORIGIN-IP [NAME=PROXY-ADDRESS/PROCESS-ID]...`. The origin is part of it. Every loop is bounded
//! in time, every wait has a deadline, and every figure is the median of some rounds in which the
//! programs take turns, so that a disturbance hits them all.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a driver connects to what it is told, fails loudly and counts roughly"
)]

use std::fs;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How often everything is measured.
const ROUNDS: usize = 3;
/// How long one measurement takes.
const SPAN: Duration = Duration::from_secs(2);
/// How long one step of a client may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Between two measurements, for what was closed to be cleared away.
const PAUSE: Duration = Duration::from_millis(500);
/// Clients at a time, where many are.
const CLIENTS: usize = 16;
/// Set-ups one after the other, for their latency.
const SAMPLES: usize = 1_000;
/// Tunnels that are open and silent.
const IDLE: usize = 1_000;
/// What is written and read at once in a stream.
const PIECE: usize = 64 * 1024;
const MIB: f64 = 1024.0 * 1024.0;
/// The origin's answer to a GET.
const BODY: [u8; 128] = [b'x'; 128];

const HTTP_PORT: u16 = 8080;
const STREAM_PORT: u16 = 8443;
/// First byte of a stream, and what the origin does then: send, receive, or answer that byte.
const SEND: u8 = b's';
const RECEIVE: u8 = b'r';
const ECHO: u8 = b'e';

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: load ORIGIN-IP [NAME=PROXY-ADDRESS/PROCESS-ID]...";
    let origin: IpAddr = arguments.next().ok_or(usage)?.parse()?;
    let mut ways = vec![Way::direct()];
    for argument in arguments {
        ways.push(Way::parse(&argument).ok_or(usage)?);
    }
    let origin = Origin::start(origin).await?;
    let mut table: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); ways.len()]; FIGURES.len()];
    // First, and once: what a program has ever needed it keeps.
    for (column, way) in ways.iter().enumerate() {
        eprintln!("memory: {}", way.name);
        for (row, value) in (RATES..).zip(measure_memory(way, &origin).await) {
            table[row][column].push(value);
        }
    }
    for round in 1..=ROUNDS {
        for (column, way) in ways.iter().enumerate() {
            eprintln!("round {round} of {ROUNDS}: {}", way.name);
            for (row, value) in measure(way, &origin).await.into_iter().enumerate() {
                table[row][column].push(value);
            }
        }
    }
    print(&ways, &table);
    Ok(())
}

/// A way to the origin: directly, or through a proxy.
#[derive(Clone)]
struct Way {
    name: String,
    proxy: Option<(SocketAddr, u32)>,
}

impl Way {
    fn direct() -> Self {
        Self {
            name: "direct".to_owned(),
            proxy: None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (name, proxy) = text.split_once('=')?;
        let (address, process) = proxy.split_once('/')?;
        Some(Self {
            name: name.to_owned(),
            proxy: Some((address.parse().ok()?, process.parse().ok()?)),
        })
    }

    /// A connection to the first hop.
    async fn connect(&self, to: SocketAddr) -> Result<TcpStream> {
        let first = self.proxy.map_or(to, |(address, _)| address);
        let stream = timeout(DEADLINE, TcpStream::connect(first)).await??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A connection to the origin, through a tunnel where there is a proxy.
    async fn tunnel(&self, to: SocketAddr) -> Result<TcpStream> {
        let mut stream = self.connect(to).await?;
        if self.proxy.is_some() {
            let head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            let mut answer = Vec::new();
            read_head(&mut stream, &mut answer).await?;
            if answer.get(8..12) != Some(b" 200") {
                return Err(String::from_utf8_lossy(&answer).into());
            }
        }
        Ok(stream)
    }

    /// The same, and a byte has been to the origin and back: the tunnel is there.
    async fn proven_tunnel(&self, to: SocketAddr) -> Result<TcpStream> {
        let mut stream = self.tunnel(to).await?;
        stream.write_all(&[ECHO]).await?;
        timeout(DEADLINE, stream.read_exact(&mut [0])).await??;
        Ok(stream)
    }

    /// Seconds of processor time, and bytes resident, of the proxy.
    fn process(&self) -> Usage {
        let read = |file: &str| {
            let (_, process) = self.proxy?;
            fs::read_to_string(format!("/proc/{process}/{file}")).ok()
        };
        // The name may hold spaces; utime and stime are the 12th and 13th field behind it (proc(5)),
        // in hundredths of a second on every Linux.
        let ticks = read("stat").and_then(|stat| {
            let (_, fields) = stat.rsplit_once(") ")?;
            let ticks = fields.split(' ').skip(11).take(2);
            Some(
                ticks
                    .filter_map(|field| field.parse::<f64>().ok())
                    .sum::<f64>(),
            )
        });
        let resident = read("status").and_then(|status| {
            let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
            line.split_whitespace().nth(1)?.parse::<f64>().ok()
        });
        Usage {
            seconds: ticks.map_or(f64::NAN, |ticks| ticks / 100.0),
            resident: resident.map_or(f64::NAN, |kib| kib * 1024.0),
        }
    }
}

#[derive(Clone, Copy)]
struct Usage {
    seconds: f64,
    resident: f64,
}

/// A row of the table: what it says, and what is printed of its numbers.
struct Figure {
    name: &'static str,
    decimals: usize,
}

const fn figure(name: &'static str, decimals: usize) -> Figure {
    Figure { name, decimals }
}

/// How many of the figures come from `measure`; `measure_memory` gives the rest.
const RATES: usize = 10;
const FIGURES: [Figure; 13] = [
    figure("tunnels set up and used once, per second", 0),
    figure("… processor time of the proxy, µs each", 0),
    figure("from connect to the first byte back, p50, µs", 0),
    figure("from connect to the first byte back, p99, µs", 0),
    figure("tunnel to the client, MiB/s", 0),
    figure("… processor time of the proxy, ms per GiB", 0),
    figure("tunnel to the origin, MiB/s", 0),
    figure("… processor time of the proxy, ms per GiB", 0),
    figure("GET of 128 bytes, per second", 0),
    figure("… processor time of the proxy, µs each", 0),
    figure("memory before 1,000 tunnels, MiB", 1),
    figure("memory with 1,000 idle tunnels, MiB", 1),
    figure("… for each tunnel, KiB", 1),
];

async fn measure(way: &Way, origin: &Origin) -> [f64; RATES] {
    let said = |what: &str, outcome| said(way, what, outcome);
    let set_ups = rate(way, || set_ups(way, origin.stream)).await;
    let (set_ups, set_up_cost) = said("set-ups", set_ups);
    let (median, worst) = said("latency", latency(way, origin.stream).await);
    let down = rate(way, || download(way, origin.stream)).await;
    let (down, down_cost) = said("tunnel to the client", down);
    let up = rate(way, || upload(way, origin)).await;
    let (up, up_cost) = said("tunnel to the origin", up);
    let gets = rate(way, || gets(way, origin.http)).await;
    let (gets, get_cost) = said("GET", gets);
    [
        set_ups,
        set_up_cost * 1e6,
        median * 1e6,
        worst * 1e6,
        down / MIB,
        down_cost * 1e3 * 1024.0 * MIB,
        up / MIB,
        up_cost * 1e3 * 1024.0 * MIB,
        gets,
        get_cost * 1e6,
    ]
}

async fn measure_memory(way: &Way, origin: &Origin) -> [f64; FIGURES.len() - RATES] {
    let (before, with) = said(way, "idle tunnels", idle(way, origin.stream).await);
    let each = (with - before) / 1024.0 / IDLE as f64;
    [before / MIB, with / MIB, each]
}

/// A pair of figures; what failed has none, and says so above the table.
fn said(way: &Way, what: &str, outcome: Result<(f64, f64)>) -> (f64, f64) {
    outcome.unwrap_or_else(|error| {
        println!("FAILED: {}: {what}: {error}\n", way.name);
        (f64::NAN, f64::NAN)
    })
}

/// How many a second, and the proxy's seconds of processor time for each.
async fn rate<F: Future<Output = Result<u64>>>(
    way: &Way,
    work: impl FnOnce() -> F,
) -> Result<(f64, f64)> {
    sleep(PAUSE).await;
    let (started, before) = (Instant::now(), way.process().seconds);
    let count = work().await? as f64;
    let elapsed = started.elapsed().as_secs_f64();
    Ok((count / elapsed, (way.process().seconds - before) / count))
}

/// Runs clients side by side until the time is over; each says how much it has done.
async fn side_by_side<F>(client: impl Fn(Instant) -> F) -> Result<u64>
where
    F: Future<Output = Result<u64>> + Send + 'static,
{
    let end = Instant::now() + SPAN;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(client(end));
    }
    let mut done = 0;
    while let Some(count) = clients.join_next().await {
        done += count??;
    }
    Ok(done)
}

async fn set_ups(way: &Way, to: SocketAddr) -> Result<u64> {
    side_by_side(|end| {
        let way = way.clone();
        async move {
            let mut count = 0;
            while Instant::now() < end {
                drop(way.proven_tunnel(to).await?);
                count += 1;
            }
            Ok(count)
        }
    })
    .await
}

async fn latency(way: &Way, to: SocketAddr) -> Result<(f64, f64)> {
    sleep(PAUSE).await;
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let started = Instant::now();
        let stream = way.proven_tunnel(to).await?;
        samples.push(started.elapsed().as_secs_f64());
        drop(stream);
    }
    samples.sort_by(f64::total_cmp);
    Ok((samples[SAMPLES / 2], samples[SAMPLES * 99 / 100]))
}

async fn download(way: &Way, to: SocketAddr) -> Result<u64> {
    let mut stream = way.tunnel(to).await?;
    stream.write_all(&[SEND]).await?;
    let mut piece = vec![0; PIECE];
    let (mut count, end) = (0, Instant::now() + SPAN);
    while Instant::now() < end {
        match timeout(DEADLINE, stream.read(&mut piece)).await?? {
            0 => return Err("the stream ended".into()),
            read => count += read as u64,
        }
    }
    Ok(count)
}

async fn upload(way: &Way, origin: &Origin) -> Result<u64> {
    let mut stream = way.tunnel(origin.stream).await?;
    stream.write_all(&[RECEIVE]).await?;
    let piece = vec![0; PIECE];
    let before = origin.received.load(Ordering::Relaxed);
    let end = Instant::now() + SPAN;
    while Instant::now() < end {
        timeout(DEADLINE, stream.write_all(&piece)).await??;
    }
    Ok(origin.received.load(Ordering::Relaxed) - before)
}

async fn gets(way: &Way, to: SocketAddr) -> Result<u64> {
    side_by_side(|end| {
        let way = way.clone();
        async move {
            let target = if way.proxy.is_some() {
                format!("http://{to}/")
            } else {
                "/".to_owned()
            };
            let head = format!("GET {target} HTTP/1.1\r\nHost: {to}\r\nAccept: */*\r\n\r\n");
            let (mut count, mut kept) = (0, None);
            while Instant::now() < end {
                let is_kept = kept.is_some();
                let mut stream = match kept.take() {
                    Some(stream) => stream,
                    None => way.connect(to).await?,
                };
                stream.write_all(head.as_bytes()).await?;
                match read_response(&mut stream).await {
                    Ok(stays_open) => kept = stays_open.then_some(stream),
                    // Closed without a word after the last response; clients try again.
                    Err(_) if is_kept => continue,
                    Err(error) => return Err(error),
                }
                count += 1;
            }
            Ok(count)
        }
    })
    .await
}

/// Bytes resident before and with many silent tunnels, all of them known to work.
async fn idle(way: &Way, to: SocketAddr) -> Result<(f64, f64)> {
    sleep(PAUSE).await;
    let before = way.process().resident;
    let mut tunnels = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        tunnels.push(way.proven_tunnel(to).await?);
    }
    sleep(PAUSE).await;
    Ok((before, way.process().resident))
}

/// Reads to the end of a head, and perhaps into what follows.
async fn read_head(stream: &mut TcpStream, into: &mut Vec<u8>) -> Result<usize> {
    loop {
        if let Some(end) = into.windows(4).position(|end| end == b"\r\n\r\n") {
            return Ok(end + 4);
        }
        if timeout(DEADLINE, stream.read_buf(into)).await?? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// Reads one response, and says whether its connection stays open.
async fn read_response(stream: &mut TcpStream) -> Result<bool> {
    let mut bytes = Vec::with_capacity(1024);
    let end = read_head(stream, &mut bytes).await?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    if head.get(8..12) != Some(" 200") {
        return Err(head.into());
    }
    while bytes.len() < end + BODY.len() {
        if timeout(DEADLINE, stream.read_buf(&mut bytes)).await?? == 0 {
            return Err("the response ended early".into());
        }
    }
    Ok(head.starts_with("http/1.1") && !head.contains("\r\nconnection: close"))
}

/// The server behind everything.
struct Origin {
    http: SocketAddr,
    stream: SocketAddr,
    received: Arc<AtomicU64>,
}

impl Origin {
    async fn start(address: IpAddr) -> io::Result<Self> {
        let origin = Self {
            http: SocketAddr::new(address, HTTP_PORT),
            stream: SocketAddr::new(address, STREAM_PORT),
            received: Arc::default(),
        };
        let http = TcpListener::bind(origin.http).await?;
        let stream = TcpListener::bind(origin.stream).await?;
        tokio::spawn(async move {
            while let Ok((client, _)) = http.accept().await {
                // A client that has gone has had enough.
                tokio::spawn(async move { drop(answer(client).await) });
            }
        });
        let received = Arc::clone(&origin.received);
        tokio::spawn(async move {
            while let Ok((client, _)) = stream.accept().await {
                let received = Arc::clone(&received);
                tokio::spawn(async move { drop(play(client, &received).await) });
            }
        });
        Ok(origin)
    }
}

/// Answers requests without a body, until told to close.
async fn answer(mut client: TcpStream) -> Result<()> {
    client.set_nodelay(true)?;
    let length = BODY.len();
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    response.extend(BODY);
    let mut request = Vec::with_capacity(1024);
    loop {
        request.clear();
        let end = read_head(&mut client, &mut request).await?;
        client.write_all(&response).await?;
        let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
        if head.contains("\r\nconnection: close") {
            return Ok(());
        }
    }
}

/// Does what the first byte says, until the client is gone.
async fn play(mut client: TcpStream, received: &AtomicU64) -> io::Result<()> {
    let mut piece = vec![0; 1];
    client.read_exact(&mut piece).await?;
    match piece[0] {
        SEND => {
            piece.resize(PIECE, 0);
            loop {
                client.write_all(&piece).await?;
            }
        }
        RECEIVE => {
            piece.resize(PIECE, 0);
            loop {
                match client.read(&mut piece).await? {
                    0 => return Ok(()),
                    count => received.fetch_add(count as u64, Ordering::Relaxed),
                };
            }
        }
        _ => {
            client.write_all(&piece).await?;
            client.read_to_end(&mut piece).await.map(drop)
        }
    }
}

/// Prints the medians, with their ratio to those without a proxy; then the first proxy's ratio to
/// each of the others.
fn print(ways: &[Way], table: &[Vec<Vec<f64>>]) {
    let mut names: Vec<String> = ways.iter().map(|way| way.name.clone()).collect();
    let others = names
        .iter()
        .skip(2)
        .map(|other| format!("{} : {other}", names[1]));
    names.extend(others.collect::<Vec<_>>());
    println!("| | {} |", names.join(" | "));
    println!("|---|{}", "---:|".repeat(names.len()));
    for (figure, row) in FIGURES.iter().zip(table) {
        let medians: Vec<f64> = row.iter().map(|values| median(values)).collect();
        let decimals = figure.decimals;
        let mut cells: Vec<String> = medians
            .iter()
            .map(|value| match (value, value / medians[0]) {
                (value, _) if value.is_nan() => "–".to_owned(),
                (value, ratio) if ratio.is_nan() => format!("{value:.decimals$}"),
                (value, ratio) => format!("{value:.decimals$} ({ratio:.2})"),
            })
            .collect();
        cells.extend(
            medians
                .iter()
                .skip(2)
                .map(|other| match medians[1] / other {
                    ratio if ratio.is_nan() => "–".to_owned(),
                    ratio => format!("{ratio:.2}"),
                }),
        );
        println!("| {} | {} |", figure.name, cells.join(" | "));
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
