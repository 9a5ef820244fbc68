//! Exactly one line per attempt, whatever happens to it, and no traffic without one.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use strait::proxy::{ServeError, Stop};
use tokio::io::AsyncWriteExt;

use crate::harness::{Dial, Lines, Origin, Setup, soon};

const CONNECT: &str = "CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n";

fn setup() -> Setup {
    Setup::allowing(&["api.example.com", "slow.example.com"])
        .answering("api.example.com", &["93.184.216.34"])
        .silent("slow.example.com")
}

#[tokio::test]
async fn a_label_stands_in_every_line() {
    let proxy = setup().named("notion").start().await;
    proxy.exchange(CONNECT).await;
    let lines = proxy.stop().await;
    let expected = "{\"time\":\"2026-11-30T22:20:00.123Z\",\"event\":\"egress\",\"server\":\"notion\",\
                    \"id\":1,\"method\":\"CONNECT\",\"host\":\"api.example.com\",\"port\":443,\
                    \"allowed\":true,\"reason\":\"connect_refused\",\"address\":\"93.184.216.34:443\",\"ms\":0}";
    assert_eq!(lines, [expected]);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_its_line() {
    // I10: while resolving, while dialling.
    for head in [
        CONNECT,
        "CONNECT slow.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let proxy = setup().dialling(Dial::Hang).start().await;
        let client = proxy.client_sending(head).await;
        if head == CONNECT {
            proxy.dialling().await;
        } else {
            soon("a question", async {
                while proxy.resolved().is_empty() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
        drop(client);
        proxy.audit_of(1).await;
        assert_eq!(proxy.reasons(), ["client_gone"]);
        assert_eq!(proxy.stop().await.len(), 1);
    }
}

#[tokio::test]
async fn a_client_that_goes_away_at_once_leaves_its_line_all_the_same() {
    let get = "GET http://evil.com/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let proxy = setup().start().await;
    let mut attempts = 0;
    for head in [CONNECT, &CONNECT.replace("api", "evil"), get] {
        for is_reset in [false, true] {
            for _ in 0..50 {
                let client = proxy.client_sending(head).await;
                if is_reset {
                    client.stream.set_zero_linger().unwrap();
                }
                drop(client);
                attempts += 1;
            }
        }
    }
    // A reset may overtake the head it follows: then nothing ever came. Every end leaves its line.
    proxy.audit_of(attempts / 2).await;
    let lines = proxy.stop().await;
    let ids = lines
        .iter()
        .filter_map(|line| line.split("\"id\":").nth(1)?.split(',').next());
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), lines.len(), "one line an attempt");

    for head in [CONNECT, &CONNECT.replace("api", "evil"), get] {
        let proxy = setup().start().await;
        for _ in 0..50 {
            let mut client = proxy.client_sending(head).await;
            client.stream.shutdown().await.unwrap();
            client.rest().await;
        }
        proxy.audit_of(50).await;
        assert_eq!(proxy.stop().await.len(), 50, "{head}");
    }
}

#[tokio::test]
async fn half_a_head_leaves_a_line_when_the_proxy_stops() {
    for level in [Stop::Drain, Stop::Now] {
        let proxy = setup().start().await;
        let mut client = proxy
            .client_sending("CONNECT api.example.com:443 HTTP/1.1\r\nHo")
            .await;
        // It has arrived once the one behind it on another connection is answered.
        proxy.exchange("nonsense\r\n\r\n").await;
        proxy.stop.send_replace(level);
        client.rest().await;
        let lines = proxy.audit_of(2).await;
        assert!(
            lines[1].contains(
                "\"host\":\"api.example.com:443\",\"allowed\":false,\"reason\":\"shutdown\""
            ),
            "{lines:?}"
        );
    }
}

#[tokio::test]
async fn a_shutdown_leaves_a_line_for_what_it_cuts() {
    let proxy = setup().dialling(Dial::Hang).start().await;
    let _client = proxy.client_sending(CONNECT).await;
    proxy.dialling().await;
    let lines = proxy.stop().await;
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].contains("\"allowed\":true,\"reason\":\"shutdown\""),
        "{}",
        lines[0]
    );
}

#[tokio::test]
async fn a_fault_in_one_connection_leaves_its_line_and_the_others_alone() {
    // M18
    let proxy = setup().dialling(Dial::Panic).start().await;
    assert_eq!(proxy.exchange(CONNECT).await, "");
    proxy.audit_of(1).await;
    assert_eq!(proxy.reasons(), ["internal_error"]);
    let refused = proxy
        .exchange("CONNECT evil.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    assert!(refused.contains("not_listed"), "{refused}");
    assert_eq!(proxy.stop().await.len(), 2);
}

#[tokio::test]
async fn a_connection_without_a_byte_is_no_attempt_and_half_a_head_is_one() {
    // M6
    let proxy = setup().start().await;
    drop(proxy.client().await);
    let mut client = proxy.client_sending("CONNECT api.exam").await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.response().await.status, 400);
    assert_eq!(proxy.reasons(), ["head_incomplete"]);
    // Between requests an end is just that.
    let mut client = proxy
        .client_sending("GET http://evil.com/ HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    assert_eq!(client.response().await.status, 403);
    drop(client);
    assert_eq!(proxy.stop().await.len(), 2);
}

#[tokio::test]
async fn many_at_once_leave_one_line_each_in_one_piece() {
    // M4
    let proxy = Arc::new(setup().start().await);
    let attempts = (0..500).map(|number| {
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            let head = format!("CONNECT evil{number}.com:443 HTTP/1.1\r\nHost: x\r\n\r\n");
            proxy.exchange(head).await
        })
    });
    for attempt in attempts.collect::<Vec<_>>() {
        assert!(attempt.await.unwrap().starts_with("HTTP/1.1 403"));
    }
    let lines = proxy.audit();
    let mut hosts: Vec<String> = Vec::new();
    for line in &lines {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object a line");
        hosts.push(line["host"].as_str().unwrap().to_owned());
    }
    hosts.sort();
    hosts.dedup();
    assert_eq!((lines.len(), hosts.len()), (500, 500));
}

/// A sink that takes nothing until it is told to.
#[derive(Clone, Default)]
struct Blocked {
    lines: Lines,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Blocked {
    fn open(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }
}

impl Write for Blocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut is_open = self.open.0.lock().unwrap();
        while !*is_open {
            is_open = self.open.1.wait(is_open).unwrap();
        }
        self.lines.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn nothing_passes_while_the_log_is_blocked() {
    // M3
    let origin = Origin::echoing().await;
    let sink = Blocked::default();
    let setup = setup().dialling(Dial::To(origin.address));
    let proxy = setup.start_with(sink.clone(), sink.lines.clone()).await;
    let mut client = proxy.client_sending(format!("{CONNECT}hello")).await;
    proxy.dialling().await;
    let early = tokio::time::timeout(Duration::from_millis(300), client.take(1)).await;
    assert!(early.is_err(), "an answer before its line was written");
    sink.open();
    assert_eq!(client.response().await.status, 200);
    assert_eq!(client.take(5).await, b"hello");
    assert_eq!(proxy.reasons(), ["listed"]);
}

/// A sink that takes so many bytes and then fails, as a pipe does whose reader has gone.
struct Broken(usize);

impl Write for Broken {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(self.0);
        self.0 -= count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_broken_log_stops_the_proxy() {
    let origin = Origin::echoing().await;
    for takes in [0, 10] {
        let setup = setup().dialling(Dial::To(origin.address));
        let proxy = setup.start_with(Broken(takes), Lines::default()).await;
        let answer = proxy.exchange(format!("{CONNECT}hello")).await;
        assert_eq!(answer, "", "an answer without its line");
        let outcome = soon("the end of the proxy", proxy.task).await.unwrap();
        assert!(matches!(outcome, Err(ServeError::Audit(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_client_that_goes_while_its_line_is_written_leaves_the_close_line_too() {
    let origin = Origin::echoing().await;
    let sink = Blocked::default();
    let setup = setup().dialling(Dial::To(origin.address)).logging_close();
    let proxy = setup.start_with(sink.clone(), sink.lines.clone()).await;
    let client = proxy.client_sending(CONNECT).await;
    proxy.dialling().await;
    client.stream.set_zero_linger().unwrap();
    drop(client);
    // The attempt waits for its line, and is dropped at that: if the reset is noticed in time.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    sink.open();
    proxy.audit_of(2).await;
    assert_eq!(proxy.reasons(), ["listed", "client_gone"]);
}

#[tokio::test]
async fn a_log_that_breaks_cuts_what_is_open_as_a_break() {
    let origin = Origin::echoing().await;
    // It takes the first line and no second one.
    let setup = setup().dialling(Dial::To(origin.address));
    let proxy = setup.start_with(Broken(250), Lines::default()).await;
    let mut client = proxy.tunnel_to("api.example.com:443").await;
    proxy.exchange(CONNECT).await;
    assert!(
        client.end().await.is_err(),
        "a cut tunnel must not look finished"
    );
    let outcome = soon("the end of the proxy", proxy.task).await.unwrap();
    assert!(matches!(outcome, Err(ServeError::Audit(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_client_too_many_does_not_hold_up_the_end_of_a_blocked_log() {
    let sink = Blocked::default();
    let setup = setup().limited(|limits| limits.connections = 1);
    let proxy = setup.start_with(sink.clone(), sink.lines.clone()).await;
    let _first = proxy.client_sending(CONNECT).await;
    proxy.dialling().await;
    let _second = proxy.client_sending(CONNECT).await;
    proxy.stop.send_replace(Stop::Now);
    let outcome = soon("the end of the proxy", proxy.task).await.unwrap();
    assert!(matches!(outcome, Err(ServeError::LastLines)), "{outcome:?}");
    sink.open();
}

#[tokio::test]
async fn a_log_that_blocks_for_ever_does_not_hold_up_the_end() {
    let sink = Blocked::default();
    let proxy = setup().start_with(sink.clone(), sink.lines.clone()).await;
    let _client = proxy.client_sending(CONNECT).await;
    proxy.dialling().await;
    proxy.stop.send_replace(Stop::Now);
    let outcome = soon("the end of the proxy", proxy.task).await.unwrap();
    assert!(matches!(outcome, Err(ServeError::LastLines)), "{outcome:?}");
    sink.open();
}
