//! Everything is bounded: heads, time, clients.

use std::time::Duration;

use strait::proxy::Stop;
use strait::refusal::Failed;
use tokio::io::AsyncWriteExt;

use crate::harness::{Dial, Origin, Setup, read_head, soon};

const CONNECT: &str = "CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n";

fn setup() -> Setup {
    Setup::allowing(&["api.example.com"]).answering("api.example.com", &["93.184.216.34"])
}

#[tokio::test]
async fn a_slow_head_is_a_408_and_one_line() {
    // H3
    let limit = Duration::from_millis(200);
    let proxy = setup()
        .limited(|limits| limits.head_read = limit)
        .start()
        .await;
    let mut client = proxy.client_sending("CONNECT api.exam").await;
    let response = client.response().await;
    assert_eq!(
        (response.status, response.field("connection")),
        (408, Some("close"))
    );
    assert_eq!(proxy.reasons(), ["head_timeout"]);
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_client_that_says_nothing_is_let_go_without_a_line() {
    let limit = Duration::from_millis(200);
    let proxy = setup()
        .limited(|limits| limits.head_read = limit)
        .start()
        .await;
    let mut client = proxy.client().await;
    assert_eq!(client.rest().await, "");
    assert!(proxy.stop().await.is_empty());
}

#[tokio::test]
async fn the_pause_between_requests_has_a_limit_of_its_own() {
    let proxy = setup()
        .limited(|limits| {
            limits.head_read = Duration::from_millis(100);
            limits.keep_alive = Duration::from_millis(500);
        })
        .start()
        .await;
    let head = "GET http://evil.com/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut client = proxy.client_sending(head).await;
    assert_eq!(client.response().await.status, 403);
    let started = tokio::time::Instant::now();
    assert_eq!(client.rest().await, "");
    assert!(
        started.elapsed() >= Duration::from_millis(450),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(proxy.stop().await.len(), 1);
}

#[tokio::test]
async fn a_name_that_is_not_answered_in_time_is_a_504() {
    let proxy = Setup::allowing(&["slow.example.com"])
        .silent("slow.example.com")
        .limited(|limits| limits.dns = Duration::from_millis(100))
        .start()
        .await;
    let mut client = proxy
        .client_sending("CONNECT slow.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    assert_eq!(client.response().await.status, 504);
    assert_eq!(proxy.reasons(), ["dns_timeout"]);
    assert!(proxy.dialled().is_empty());
}

#[tokio::test]
async fn a_name_is_resolved_once_for_each_attempt() {
    // D6, D8
    let origin = Origin::echoing().await;
    let proxy = setup().dialling(Dial::To(origin.address)).start().await;
    for attempt in 1..=3 {
        drop(proxy.tunnel_to("api.example.com:443").await);
        assert_eq!(proxy.resolved().len(), attempt);
    }
}

#[tokio::test]
async fn one_client_too_many_is_a_503_and_room_is_made_again() {
    // H8
    let origin = Origin::echoing().await;
    let proxy = setup()
        .dialling(Dial::To(origin.address))
        .limited(|limits| limits.connections = 2)
        .start()
        .await;
    let first = proxy.tunnel_to("api.example.com:443").await;
    let _second = proxy.tunnel_to("api.example.com:443").await;
    let mut third = proxy.client_sending(CONNECT).await;
    let response = third.response().await;
    assert_eq!(response.status, 503);
    assert!(response.body.contains("\"full\""), "{}", response.body);
    assert_eq!(proxy.reasons(), ["listed", "listed", "full"]);
    drop(first);
    soon("a free place", async {
        loop {
            let mut client = proxy.client_sending(CONNECT).await;
            if client.response().await.status == 200 {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_drain_lets_what_is_open_finish_and_takes_no_more() {
    let origin = Origin::echoing().await;
    let proxy = setup()
        .dialling(Dial::To(origin.address))
        .limited(|limits| limits.grace = Duration::from_secs(30))
        .start()
        .await;
    let idle = proxy
        .client_sending("GET http://evil.com/ HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    let mut idle = idle;
    assert_eq!(idle.response().await.status, 403);
    let mut client = proxy.tunnel_to("api.example.com:443").await;
    proxy.stop.send_replace(Stop::Drain);
    // A connection between requests is let go; a tunnel goes on.
    assert_eq!(idle.rest().await, "");
    client.send("still here").await;
    assert_eq!(client.take(10).await, b"still here");
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await, "");
    soon("the end of the proxy", proxy.task)
        .await
        .unwrap()
        .unwrap();
    assert!(tokio::net::TcpStream::connect(proxy.address).await.is_err());
}

#[tokio::test]
async fn a_drain_cuts_what_is_open_after_the_grace() {
    let origin = Origin::echoing().await;
    let proxy = setup()
        .dialling(Dial::To(origin.address))
        .logging_close()
        .start()
        .await;
    let mut client = proxy.tunnel_to("api.example.com:443").await;
    let started = tokio::time::Instant::now();
    proxy.stop.send_replace(Stop::Drain);
    assert!(
        client.end().await.is_err(),
        "a cut tunnel must not look finished"
    );
    assert!(started.elapsed() >= Duration::from_millis(100));
    proxy.audit_of(2).await;
    assert_eq!(proxy.reasons(), ["listed", "shutdown"]);
}

#[tokio::test]
async fn a_resolver_that_fails_is_told_by_its_code() {
    for (failed, status) in [
        (Failed::Dns, 502),
        (Failed::DnsNameNotFound, 502),
        (Failed::DnsNoRecords, 502),
        (Failed::DnsTimeout, 504),
    ] {
        let proxy = setup().failing("api.example.com", failed).start().await;
        let mut client = proxy.client_sending(CONNECT).await;
        assert_eq!(client.response().await.status, status);
        assert!(proxy.dialled().is_empty(), "D9");
        assert!(proxy.stop().await[0].contains("\"allowed\":true"));
    }
}

#[tokio::test]
async fn a_client_that_never_reads_its_last_answer_is_cut() {
    // Once a reply is complete its last bytes still wait for the client.
    let origin = Origin::serving(|mut stream| async move {
        read_head(&mut stream).await;
        let content = vec![b'x'; 16 << 20];
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            content.len()
        );
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(&content).await;
    });
    let origin = origin.await;
    let proxy = Setup::allowing(&["www.example.com:80"])
        .answering("www.example.com", &["93.184.216.35"])
        .dialling(Dial::To(origin.address))
        .limited(|limits| {
            limits.idle = Some(Duration::from_millis(300));
            limits.connections = 1;
        })
        .start()
        .await;
    let get = "GET http://www.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let evil = "GET http://evil.com/ HTTP/1.1\r\nHost: x\r\n\r\n";
    // Refusals that nobody reads, enough to fill every buffer on the way.
    for unread in [get.to_owned(), evil.repeat(40_000)] {
        let mut client = proxy.client().await;
        // It may be cut while it still sends.
        let sending = client.stream.write_all(unread.as_bytes());
        let _ = tokio::time::timeout(Duration::from_secs(5), sending).await;
        soon("the only place to be free again", async {
            loop {
                let mut next = proxy.client_sending(evil).await;
                if next.response().await.status == 403 {
                    return;
                }
            }
        })
        .await;
    }
}
