//! Tunnels carry every byte both ways, keep half-closes, and end when they should.

use std::time::Duration;

use strait::proxy::{Limits, Stop};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Dial, Origin, PATIENCE, Running, Setup, soon};

const CONNECT: &str = "CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n";

async fn proxy_to(origin: &Origin, change: impl FnOnce(&mut Limits)) -> Running {
    Setup::allowing(&["api.example.com"])
        .answering("api.example.com", &["93.184.216.34"])
        .dialling(Dial::To(origin.address))
        .limited(change)
        .logging_close()
        .start()
        .await
}

fn closed(ended: &str, to_origin: usize, from_origin: usize) -> String {
    format!(
        "{{\"time\":\"2026-11-30T22:20:00.123Z\",\"event\":\"close\",\"id\":1,\
         \"to_origin\":{to_origin},\"from_origin\":{from_origin},\"ended\":\"{ended}\",\"ms\":0}}"
    )
}

#[tokio::test]
async fn bytes_sent_along_with_connect_reach_the_origin_after_the_200() {
    // I1
    let origin = Origin::echoing().await;
    let proxy = proxy_to(&origin, |_| {}).await;
    let mut client = proxy.client_sending(format!("{CONNECT}early")).await;
    assert_eq!(client.response().await.status, 200);
    assert_eq!(client.take(5).await, b"early");
    client.send("later").await;
    assert_eq!(client.take(5).await, b"later");
}

#[tokio::test]
async fn the_200_stands_alone_and_says_nothing_of_length() {
    // I8
    let origin = Origin::serving(|mut stream| async move {
        stream.write_all(b"banner").await.unwrap();
        // Open until the client goes.
        let _ = stream.read_u8().await;
    });
    let origin = origin.await;
    let proxy = proxy_to(&origin, |_| {}).await;
    let mut client = proxy.client_sending(CONNECT).await;
    let response = client.response().await;
    assert_eq!(response.status, 200);
    assert!(
        response.head.starts_with("HTTP/1.1 200"),
        "{}",
        response.head
    );
    for field in ["content-length", "transfer-encoding"] {
        assert_eq!(response.field(field), None);
    }
    // An origin that speaks first is heard without a byte from the client.
    assert_eq!(client.take(6).await, b"banner");
}

#[tokio::test]
async fn a_half_close_is_passed_on_and_the_other_direction_goes_on() {
    // From the client: its end reaches the origin, whose answer still comes.
    let origin = Origin::serving(|mut stream| async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        stream
            .write_all(format!("got {}", all.len()).as_bytes())
            .await
            .unwrap();
    });
    let origin = origin.await;
    let proxy = proxy_to(&origin, |_| {}).await;
    let mut client = proxy.tunnel_to("api.example.com:443").await;
    client.send(vec![b'x'; 300_000]).await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await, "got 300000");
    assert_eq!(proxy.audit_of(2).await[1], closed("complete", 300_000, 10));

    // From the origin: its end reaches the client, which can still send.
    let origin = Origin::serving(|mut stream| async move {
        stream.shutdown().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"after the end");
    });
    let origin = origin.await;
    let proxy = proxy_to(&origin, |_| {}).await;
    let mut client = proxy.tunnel_to("api.example.com:443").await;
    assert_eq!(client.stream.read(&mut [0]).await.unwrap(), 0);
    client.send("after the end").await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(proxy.audit_of(2).await[1], closed("complete", 13, 0));
}

#[tokio::test]
async fn a_reset_ends_both_sides_as_a_reset_and_the_bytes_are_counted() {
    // I14, from the origin
    let origin = Origin::serving(|mut stream| async move {
        stream.write_all(b"half an ans").await.unwrap();
        let mut word = [0; 4];
        stream.read_exact(&mut word).await.unwrap();
        stream.set_zero_linger().unwrap();
    });
    let origin = origin.await;
    let proxy = proxy_to(&origin, |_| {}).await;
    let mut client = proxy.tunnel_to("api.example.com:443").await;
    assert_eq!(client.take(11).await, b"half an ans");
    client.send("quit").await;
    assert!(
        client.end().await.is_err(),
        "a broken origin must not look like a finished one"
    );
    assert_eq!(proxy.audit_of(2).await[1], closed("origin_gone", 4, 11));

    // From the client
    let (seen, mut broke) = tokio::sync::mpsc::channel(1);
    let origin = Origin::serving(move |mut stream| {
        let seen = seen.clone();
        async move {
            let mut bytes = Vec::new();
            let outcome = stream.read_to_end(&mut bytes).await;
            seen.send((bytes, outcome.is_err())).await.unwrap();
        }
    });
    let origin = origin.await;
    let proxy = proxy_to(&origin, |_| {}).await;
    let mut client = proxy.tunnel_to("api.example.com:443").await;
    client.send("half a reques").await;
    client.stream.set_zero_linger().unwrap();
    drop(client);
    let (bytes, is_reset) = soon("the origin's end", broke.recv()).await.unwrap();
    assert!(
        is_reset,
        "a broken client must not look like a finished one"
    );
    // A reset may overtake bytes the origin had not read; those it got were counted.
    let line = &proxy.audit_of(2).await[1];
    assert_eq!(*line, closed("client_gone", 13, 0));
    assert!(bytes.len() <= 13);
}

#[tokio::test]
async fn a_slow_reader_holds_the_sender_back() {
    let origin = Origin::serving(|mut stream| async move {
        let chunk = vec![7; 1 << 20];
        while stream.write_all(&chunk).await.is_ok() {}
    });
    let origin = origin.await;
    let proxy = proxy_to(&origin, |_| {}).await;
    let mut client = proxy.tunnel_to("api.example.com:443").await;
    client.take(1).await;
    // The client reads nothing more. What is on its way fills the sockets' buffers and then stops:
    // the proxy itself holds one piece a direction at most.
    proxy.stop.send_replace(Stop::Now);
    let close = &proxy.audit_of(2).await[1];
    let close: serde_json::Value = serde_json::from_str(close).unwrap();
    assert_eq!(close["ended"], "shutdown");
    let moved = close["from_origin"].as_u64().unwrap();
    assert!(
        (1..64 << 20).contains(&moved),
        "{moved} bytes were taken for a client that reads none"
    );
}

#[tokio::test]
async fn a_large_transfer_both_ways_arrives_whole() {
    let origin = Origin::echoing().await;
    let proxy = proxy_to(&origin, |_| {}).await;
    let client = proxy.tunnel_to("api.example.com:443").await;
    let sent: Vec<u8> = (0..=250).cycle().take(20 << 20).collect();
    let (mut from, mut to) = client.stream.into_split();
    let sending = sent.clone();
    let sender = tokio::spawn(async move {
        to.write_all(&sending).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    soon("20 MiB back", from.read_to_end(&mut received))
        .await
        .unwrap();
    sender.await.unwrap();
    assert!(
        received == sent,
        "{} of {} bytes",
        received.len(),
        sent.len()
    );
    assert_eq!(
        proxy.audit_of(2).await[1],
        closed("complete", sent.len(), sent.len())
    );
}

#[tokio::test]
async fn a_silent_tunnel_ends_after_the_idle_limit_and_not_before() {
    let limit = Duration::from_millis(300);
    let origin = Origin::echoing().await;
    let proxy = proxy_to(&origin, |limits| limits.idle = Some(limit)).await;
    let mut client = proxy.tunnel_to("api.example.com:443").await;
    let started = tokio::time::Instant::now();
    assert!(client.end().await.is_err());
    assert!(started.elapsed() >= limit && started.elapsed() < PATIENCE);
    assert_eq!(proxy.audit_of(2).await[1], closed("idle", 0, 0));
}

#[tokio::test]
async fn a_half_closed_tunnel_has_a_limit_of_its_own() {
    // I13
    let origin = Origin::serving(|mut stream| async move {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        // Silent, and never closing by itself.
        std::future::pending::<()>().await;
    });
    let origin = origin.await;
    let limit = Duration::from_millis(200);
    let proxy = proxy_to(&origin, |limits| limits.half_closed = limit).await;
    let mut client = proxy.tunnel_to("api.example.com:443").await;
    client.stream.shutdown().await.unwrap();
    assert!(client.end().await.is_err());
    assert_eq!(proxy.audit_of(2).await[1], closed("idle", 0, 0));
}

#[tokio::test]
async fn early_bytes_wait_unread_while_the_proxy_dials() {
    // I3
    let proxy = Setup::allowing(&["api.example.com"])
        .answering("api.example.com", &["93.184.216.34"])
        .dialling(Dial::Hang)
        .start()
        .await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(CONNECT.as_bytes()).await.unwrap();
    proxy.dialling().await;
    let chunk = vec![1; 1 << 20];
    let mut written = 0;
    // Writing stalls once the sockets' buffers are full; a proxy that read on would take it all.
    let flood = async {
        for _ in 0..64 {
            stream.write_all(&chunk).await.unwrap();
            written += chunk.len();
        }
    };
    let stalled = tokio::time::timeout(Duration::from_secs(1), flood).await;
    assert!(
        stalled.is_err(),
        "{written} bytes went into a tunnel that does not exist"
    );
}

#[tokio::test]
async fn a_refused_connect_is_closed_with_its_early_bytes_unread_as_a_request() {
    // I2: one line, and the client can read the answer although it had sent more.
    let proxy = Setup::allowing(&["api.example.com"]).start().await;
    let head = "CONNECT evil.com:443 HTTP/1.1\r\nHost: x\r\n\r\n";
    let early = "GET http://evil.com/ HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
    let mut client = proxy.client_sending(format!("{head}{early}")).await;
    let response = client.response().await;
    assert_eq!(
        (response.status, response.field("connection")),
        (403, Some("close"))
    );
    assert_eq!(client.rest().await, "");
    assert_eq!(proxy.stop().await.len(), 1);
}

#[tokio::test]
async fn failures_of_the_dial_are_answered_before_any_200() {
    // I9, H11
    for (dial, status, reason) in [
        (Dial::Refuse, 502, "connect_refused"),
        (Dial::Hang, 504, "connect_timeout"),
    ] {
        let proxy = Setup::allowing(&["api.example.com"])
            .answering("api.example.com", &["93.184.216.34", "2606:4700::1111"])
            .dialling(dial)
            .limited(|limits| limits.connect = Duration::from_millis(400))
            .start()
            .await;
        let mut client = proxy.client_sending(CONNECT).await;
        assert_eq!(client.response().await.status, status);
        assert_eq!(
            proxy.dialled(),
            ["[2606:4700::1111]:443", "93.184.216.34:443"],
            "v6 first"
        );
        let line = proxy.stop().await.remove(0);
        assert!(
            line.contains("\"allowed\":true"),
            "the policy's word: {line}"
        );
        assert!(
            line.contains(reason) && line.contains("\"address\":\""),
            "{line}"
        );
    }
}
