//! A whole connection: any bytes in any pieces, any answer from the origin, and whatever happens,
//! only permitted addresses are dialled, every attempt has one line, and everything ends.
//!
//! An input has three parts. The first line is how the client acts: numbers are sizes of pieces, `.`
//! waits until nothing moves, and `eof` (the default), `drop` or `stop` is how it ends, without
//! waiting if `hasty`; `first` makes the origin talk first. What the client sends follows, and after
//! a line `====` what the origin answers.

mod aftermath;
mod request;
mod stage;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use strait::audit::Ended;
use strait::proxy::{Limits, Proxy, ProxyConfig, Stop};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;

use self::stage::{Connector, Sink, Stage};

/// Everything must have ended this long after the client has.
const BOUND: Duration = Duration::from_secs(10);
/// Nothing moves when nothing has moved for this long, and for this many turns of every task. A
/// guess, as is the next: being wrong costs depth, not truth.
const QUIET: (Duration, u32) = (Duration::from_micros(150), 100);
/// How long the first line is waited for, where one is due: a thread has to start for it.
const FIRST_LINE: Duration = Duration::from_millis(20);
/// What separates the client's bytes from the origin's.
const SEPARATOR: &[u8] = b"\n====\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Longer inputs repeat themselves.
const MOST_BYTES: usize = 64 * 1024;

/// How the client acts.
#[derive(Clone, Debug)]
struct Act<'a> {
    steps: Vec<Step>,
    ending: Ending,
    /// Whether the origin waits for a request before it answers.
    origin_waits: bool,
    sends: &'a [u8],
    answer: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    Settle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It says it has nothing more to send, and reads on.
    Eof,
    /// It is gone.
    Drop,
    /// The proxy is told to stop.
    Stop,
}

impl<'a> Act<'a> {
    fn read(input: &'a [u8]) -> Self {
        let end = input.iter().position(|byte| *byte == b'\n');
        let (line, rest) = input.split_at(end.map_or(input.len(), |end| end + 1));
        let between = rest
            .windows(SEPARATOR.len())
            .position(|window| window == SEPARATOR);
        let (sends, answer) = match between {
            Some(at) => (&rest[..at], &rest[at + SEPARATOR.len()..]),
            None => (rest, ANSWER),
        };
        let mut act = Self {
            steps: Vec::new(),
            ending: Ending::Eof,
            origin_waits: true,
            sends,
            answer,
        };
        let mut is_hasty = false;
        for word in String::from_utf8_lossy(line).split_ascii_whitespace() {
            match word {
                "." => act.steps.push(Step::Settle),
                "drop" => act.ending = Ending::Drop,
                "stop" => act.ending = Ending::Stop,
                "hasty" => is_hasty = true,
                "first" => act.origin_waits = false,
                size => act.steps.extend(size.parse().ok().map(Step::Send)),
            }
        }
        act.steps.push(Step::Send(usize::MAX));
        if !is_hasty {
            act.steps.push(Step::Settle);
        }
        act
    }
}

/// Plays the act of an input, and checks what is left of it.
pub fn check(input: &[u8]) {
    let act = Act::read(input.get(..MOST_BYTES).unwrap_or(input));
    let stage = Stage::new(act.answer, act.origin_waits);
    let (sink, log) = Sink::new(Arc::clone(&stage));
    let proxy = proxy(&stage, sink);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let received = runtime.block_on(play(&act, proxy, &stage));
    // The journal's thread lets go of the sink when the last one who could write has gone.
    let log = log
        .recv_timeout(BOUND)
        .expect("nobody holds on to the proxy");
    drop(runtime);
    aftermath::check(&act, &stage.facts(), &log, &received);
}

fn proxy(stage: &Arc<Stage>, sink: Sink) -> Proxy {
    let mut config = ProxyConfig::new(stage::policy());
    config.log_close = true;
    config.limits = Limits {
        head: aftermath::LIMITS,
        // One address after the other, on a slow machine too.
        attempt_delay: Duration::from_hours(1),
        connect: Duration::from_hours(1),
        ..Limits::default()
    };
    let connector = Arc::new(Connector(Arc::clone(stage)));
    Proxy::new(config, stage.clone(), connector, sink).expect("a thread for the journal")
}

async fn play(act: &Act<'_>, proxy: Proxy, stage: &Arc<Stage>) -> Vec<u8> {
    let (tell, told) = watch::channel(Stop::Run);
    let (client, served) = tokio::io::duplex(16 * 1024);
    let serving = tokio::spawn(async move { proxy.serve_stream(served, told).await });
    let (from_proxy, to_proxy) = tokio::io::split(client);
    let reading = tokio::spawn(read(from_proxy, Arc::clone(stage)));

    let sent = timeout(BOUND, send(act, to_proxy, stage)).await;
    let to_proxy = sent.expect("the proxy takes the client's bytes, or closes");
    let received = end(act.ending, to_proxy, reading, &tell).await;
    timeout(BOUND, serving)
        .await
        .expect("a connection ends with its client")
        .expect("no panic");
    let received = match received {
        Received::All(bytes) => bytes,
        Received::Still(reading) => reading.await.expect("no panic"),
    };
    for origin in stage.take_origins() {
        timeout(BOUND, origin)
            .await
            .expect("an origin is let go of")
            .expect("no panic");
    }
    received
}

/// What the client has received, or the task that receives it.
enum Received {
    All(Vec<u8>),
    Still(JoinHandle<Vec<u8>>),
}

async fn send(
    act: &Act<'_>,
    mut to_proxy: WriteHalf<DuplexStream>,
    stage: &Stage,
) -> WriteHalf<DuplexStream> {
    let mut sent = 0;
    for step in &act.steps {
        match step {
            Step::Send(size) => {
                let piece = &act.sends[sent..];
                let piece = &piece[..piece.len().min(*size)];
                // A proxy that has closed takes no more.
                if to_proxy.write_all(piece).await.is_err() {
                    break;
                }
                sent += piece.len();
                yield_now().await;
            }
            Step::Settle => {
                let is_line_due = !matches!(aftermath::first_head(&act.sends[..sent]), Ok(None));
                settle(stage, is_line_due).await;
            }
        }
    }
    to_proxy
}

/// Waits until nothing has moved for a while. Not by a timer, which would be ten times slower.
async fn settle(stage: &Stage, is_line_due: bool) {
    let started = Instant::now();
    let (mut since, mut turns) = (started, 0);
    let mut seen = stage.moved.load(Ordering::Relaxed);
    while since.elapsed() < QUIET.0 || turns < QUIET.1 {
        yield_now().await;
        turns += 1;
        let now = stage.moved.load(Ordering::Relaxed);
        let is_early = is_line_due && stage.lines.load(Ordering::Relaxed) == 0;
        if now != seen || (is_early && started.elapsed() < FIRST_LINE) {
            seen = now;
            (since, turns) = (Instant::now(), 0);
        }
    }
}

async fn end(
    ending: Ending,
    mut to_proxy: WriteHalf<DuplexStream>,
    reading: JoinHandle<Vec<u8>>,
    tell: &watch::Sender<Stop>,
) -> Received {
    match ending {
        Ending::Eof => {
            // It fails where the proxy has closed, which is an end too.
            let _ = to_proxy.shutdown().await;
            Received::Still(reading)
        }
        Ending::Drop => {
            reading.abort();
            let _ = reading.await;
            Received::All(Vec::new())
        }
        Ending::Stop => {
            tell.send_replace(Stop::Now);
            Received::Still(reading)
        }
    }
}

async fn read(mut from_proxy: ReadHalf<DuplexStream>, stage: Arc<Stage>) -> Vec<u8> {
    let mut received = Vec::new();
    // An error is an end; what came before it counts.
    while let Ok(1..) = from_proxy.read_buf(&mut received).await {
        stage.moved.fetch_add(1, Ordering::Relaxed);
    }
    received
}

/// The words of a close line that say everything went over.
fn is_complete(ended: &str) -> bool {
    ended == Ended::Complete.code()
}
