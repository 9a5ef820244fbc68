//! Plain HTTP: streamed both ways, rewritten for the next hop, and never complete by accident.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Dial, Origin, Running, Setup, read_head, soon};

async fn proxy_to(origin: &Origin) -> Running {
    Setup::allowing(&["www.example.com:80", "api.example.com"])
        .answering("www.example.com", &["93.184.216.35"])
        .dialling(Dial::To(origin.address))
        .logging_close()
        .start()
        .await
}

fn get(fields: &str) -> String {
    format!("GET http://www.example.com/a?b HTTP/1.1\r\nHost: evil.com\r\n{fields}\r\n")
}

#[tokio::test]
async fn the_origin_sees_its_own_name_and_no_field_of_our_hop() {
    let origin = Origin::showing().await;
    let proxy = proxy_to(&origin).await;
    let fields = "X-Kept: 1\r\nConnection: keep-alive, X-Foo\r\nX-Foo: 1\r\nConnection: X-Bar\r\n\
                  X-Bar: 1\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\n\
                  Keep-Alive: 5\r\nTE: trailers\r\nTrailer: x\r\nUpgrade: websocket\r\n";
    let mut client = proxy.client_sending(get(fields)).await;
    let mut seen: Vec<String> = client
        .response()
        .await
        .body
        .trim_end()
        .split("\r\n")
        .map(str::to_owned)
        .collect();
    assert_eq!(seen.remove(0), "GET /a?b HTTP/1.1");
    seen.sort();
    let expected = [
        "Connection: close",
        "Host: www.example.com",
        "Via: 1.1 strait",
        "X-Kept: 1",
    ];
    assert_eq!(seen, expected, "J1, J2, J5, J6, F8, J13");
}

#[tokio::test]
async fn a_kept_connection_decides_every_request_anew() {
    // G32, J25: in order, one packet.
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let proxy = proxy_to(&origin).await;
    let evil = "GET http://evil.com/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut client = proxy
        .client_sending(format!("{}{evil}{}", get(""), get("")))
        .await;
    for status in [200, 403, 200] {
        assert_eq!(client.response().await.status, status);
    }
    drop(client);
    let lines = proxy.stop().await;
    let reasons = [
        "\"listed\"",
        "\"complete\"",
        "\"not_listed\"",
        "\"listed\"",
        "\"complete\"",
    ];
    assert_eq!(lines.len(), reasons.len(), "{lines:?}");
    for (line, reason) in lines.iter().zip(reasons) {
        assert!(line.contains(reason), "{line}");
    }
}

#[tokio::test]
async fn a_malformed_head_behind_a_good_one_waits_its_turn() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let proxy = proxy_to(&origin).await;
    let mut client = proxy
        .client_sending(format!("{}nonsense\r\n\r\n", get("")))
        .await;
    let first = client.response().await;
    assert_eq!((first.status, first.body.as_str()), (200, "ok"));
    let second = client.response().await;
    assert_eq!(
        (second.status, second.field("connection")),
        (400, Some("close"))
    );
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn what_follows_a_body_is_read_as_a_head() {
    // G34, and the same behind a length.
    let origin = Origin::serving(|mut stream| async move {
        read_head(&mut stream).await;
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(reply).await.unwrap();
        // The whole upload is taken, whenever it comes.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    });
    let origin = origin.await;
    let smuggled = "GET http://evil.com/ HTTP/1.1\r\nHost: x\r\n\r\n";
    for body in [
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "Content-Length: 3\r\n\r\nabc",
    ] {
        let proxy = proxy_to(&origin).await;
        let head = "POST http://www.example.com/ HTTP/1.1\r\nHost: x\r\n";
        let mut client = proxy
            .client_sending(format!("{head}{body}{smuggled}"))
            .await;
        assert_eq!(client.response().await.status, 200);
        assert_eq!(client.response().await.status, 403, "{body:?}");
        drop(client);
        let reasons: Vec<String> = proxy.stop().await;
        assert!(
            reasons.iter().any(|line| line.contains("\"not_listed\"")),
            "{reasons:?}"
        );
        assert_eq!(
            reasons
                .iter()
                .filter(|line| line.contains("egress"))
                .count(),
            2
        );
    }
}

#[tokio::test]
async fn a_body_goes_to_the_origin_as_it_was_framed() {
    // G7, G29
    for (head, framing, body) in [
        ("POST", "Content-Length: 5\r\n", "hello"),
        (
            "POST",
            "Transfer-Encoding: Chunked\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        ("GET", "Content-Length: 5\r\n", "hello"),
        (
            "DELETE",
            "Transfer-Encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "GET",
            "Transfer-Encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "HEAD",
            "Transfer-Encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
    ] {
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        let origin = Origin::serving(move |mut stream| {
            let tell = tell.clone();
            async move {
                let mut seen = read_head(&mut stream).await;
                while !seen.contains("hello")
                    || (seen.contains("chunked") && !seen.ends_with("0\r\n\r\n"))
                {
                    let mut more = [0; 1024];
                    let count = stream.read(&mut more).await.unwrap();
                    seen += std::str::from_utf8(&more[..count]).unwrap();
                }
                let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(reply).await.unwrap();
                tell.send(seen).await.unwrap();
            }
        });
        let origin = origin.await;
        let proxy = proxy_to(&origin).await;
        let request =
            format!("{head} http://www.example.com/ HTTP/1.1\r\nHost: x\r\n{framing}\r\n{body}");
        let mut client = proxy.client_sending(request).await;
        assert_eq!(client.response().await.status, 200);
        let seen = soon("the request", told.recv())
            .await
            .unwrap()
            .to_ascii_lowercase();
        let (_, got) = seen.split_once("\r\n\r\n").unwrap();
        assert_eq!(got, body.to_ascii_lowercase(), "{head}");
        assert!(seen.contains(&framing.to_ascii_lowercase()), "{seen}");
    }
}

#[tokio::test]
async fn one_hundred_continue_comes_from_us_once_the_origin_is_connected() {
    // J15, J16
    let origin = Origin::serving(|mut stream| async move {
        let head = read_head(&mut stream).await;
        assert!(!head.to_ascii_lowercase().contains("expect:"), "{head}");
        let mut body = [0; 5];
        stream.read_exact(&mut body).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
    });
    let origin = origin.await;
    let proxy = proxy_to(&origin).await;
    let head = |host: &str| {
        format!(
            "POST http://{host}/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        )
    };
    let mut client = proxy.client_sending(head("www.example.com")).await;
    assert_eq!(client.response().await.status, 100);
    client.send("hello").await;
    assert_eq!(client.response().await.status, 200);
    // A refusal is final: no 100 before it, and no request after it.
    let mut client = proxy.client_sending(head("evil.com")).await;
    let refused = client.response().await;
    assert_eq!(
        (refused.status, refused.field("connection")),
        (403, Some("close"))
    );
}

#[tokio::test]
async fn responses_come_as_they_are_framed() {
    for (reply, method, expected) in [
        // K5
        (
            "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
            "GET",
            (204, None, ""),
        ),
        (
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            "GET",
            (304, None, ""),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            "HEAD",
            (200, Some("5"), ""),
        ),
        // One length, however it is stated
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 002\r\n\r\nok",
            "GET",
            (200, Some("2"), "ok"),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
            "HEAD",
            (200, Some("5"), ""),
        ),
        // K6
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "GET",
            (200, None, "2\r\nok\r\n0\r\n\r\n"),
        ),
        // Ended by the close
        (
            "HTTP/1.1 200 OK\r\n\r\nok",
            "GET",
            (200, None, "2\r\nok\r\n0\r\n\r\n"),
        ),
        // K14: trailers are dropped
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n",
            "GET",
            (200, None, "2\r\nok\r\n0\r\n\r\n"),
        ),
        // K1: interim responses are not passed on
        (
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "GET",
            (200, Some("2"), "ok"),
        ),
        // K4
        (
            "HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok",
            "GET",
            (999, Some("2"), "ok"),
        ),
        // A server that speaks HTTP/1.0
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "GET",
            (200, Some("2"), "ok"),
        ),
    ] {
        let origin = Origin::replying(reply).await;
        let proxy = proxy_to(&origin).await;
        let request = format!(
            "{method} http://www.example.com/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        );
        let all = proxy.exchange(request).await;
        let (head, body) = all.split_once("\r\n\r\n").expect("a head");
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")
                .map(str::to_owned)
        });
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(
            head.starts_with("HTTP/1.1 ")
                && head.contains("1.1 strait") | head.contains("1.0 strait"),
            "{head}"
        );
        assert_eq!((status, length.as_deref(), body), expected, "{reply:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_none_is_a_502_of_its_own_code() {
    for (reply, code) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok",
            "response_invalid",
        ),
        (
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
            "response_invalid",
        ),
        (
            "HTTP/1.1 304 Not Modified\r\nContent-Length: +2\r\n\r\n",
            "response_invalid",
        ),
        ("HTTP/1.1 099 x\r\n\r\n", "response_invalid"), // K3
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            "response_invalid",
        ), // K2
        ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "response_invalid"), // K8
        ("HTTP/1.1 200 OK\r\nX : a\r\n\r\n", "response_invalid"), // K8
        ("SSH-2.0-OpenSSH_9.2\r\n", "response_invalid"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "response_invalid",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
            "response_invalid",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nx",
            "response_invalid",
        ),
        ("", "response_incomplete"),
        ("HTTP/1.1 200 OK\r\nContent-", "response_incomplete"),
    ] {
        let origin = Origin::replying(reply).await;
        let proxy = proxy_to(&origin).await;
        let mut client = proxy.client_sending(get("")).await;
        let response = client.response().await;
        assert_eq!(response.status, 502, "{reply:?}");
        assert!(response.body.contains(code), "{reply:?}: {}", response.body);
        // The attempt was let through, and its end says what became of it.
        proxy.audit_of(2).await;
        assert_eq!(proxy.reasons(), ["listed", code], "{reply:?}");
    }
}

#[tokio::test]
async fn a_response_head_is_bounded() {
    // K12
    for fields in [
        format!("X: {}\r\n", "y".repeat(1 << 20)),
        "X: y\r\n".repeat(1000),
    ] {
        let reply: &'static str = Box::leak(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into());
        let origin = Origin::replying(reply).await;
        let proxy = proxy_to(&origin).await;
        let mut client = proxy.client_sending(get("")).await;
        assert_eq!(client.response().await.status, 502);
    }
}

#[tokio::test]
async fn a_truncated_response_never_ends_cleanly() {
    // K13, for each way the client may be told of an end.
    for (reply, version) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "1.1"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "1.0"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
            "1.1",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
            "1.0",
        ),
    ] {
        let origin = Origin::replying(reply).await;
        let proxy = proxy_to(&origin).await;
        let request = format!("GET http://www.example.com/ HTTP/{version}\r\nHost: x\r\n\r\n");
        let mut client = proxy.client_sending(request).await;
        assert!(client.end().await.is_err(), "HTTP/{version}: {reply:?}");
        assert_eq!(proxy.audit_of(2).await.len(), 2);
        assert_eq!(proxy.reasons(), ["listed", "origin_gone"]);
    }
}

#[tokio::test]
async fn a_truncated_request_body_is_never_completed_for_the_origin() {
    // G30
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let origin = Origin::serving(move |mut stream| {
        let tell = tell.clone();
        async move {
            let mut all = Vec::new();
            let _ = stream.read_to_end(&mut all).await;
            tell.send(String::from_utf8_lossy(&all).into_owned())
                .await
                .unwrap();
        }
    });
    let origin = origin.await;
    for framing in [
        "Content-Length: 10\r\n\r\nhalf",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let proxy = proxy_to(&origin).await;
        let head = "POST http://www.example.com/ HTTP/1.1\r\nHost: x\r\n";
        let client = proxy.client_sending(format!("{head}{framing}")).await;
        proxy.audit_of(1).await;
        drop(client);
        let seen = soon("the origin's end", told.recv()).await.unwrap();
        assert!(!seen.ends_with("0\r\n\r\n"), "{seen:?}");
        proxy.audit_of(2).await;
        assert_eq!(proxy.reasons(), ["listed", "client_gone"]);
    }
}

#[tokio::test]
async fn chunks_that_are_none_are_a_400_and_never_complete_for_the_origin() {
    // G25, and sizes that are no sizes
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let origin = Origin::serving(move |mut stream| {
        let tell = tell.clone();
        async move {
            let mut all = Vec::new();
            let _ = stream.read_to_end(&mut all).await;
            let _ = tell.send(String::from_utf8_lossy(&all).into_owned()).await;
        }
    });
    let origin = origin.await;
    for chunks in [
        "3\nabc\r\n0\r\n\r\n",
        "3\rXabc\r\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "x\r\n",
        "\r\n",
        "-1\r\n",
        "fffffffffffffffff\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nA: b\n\n",
        "3\r\nabc\r\n0\r\n\n",
        "3\r\nabc\r\n0\r\n\n\r\n\r\n",
        "3\r\nabc\r\n0\r\nA: b\n\r\n\r\n",
        "ffffffffffffffff\r\nabc",
        "8000000000000000\r\nabc",
    ] {
        let proxy = proxy_to(&origin).await;
        let head = "POST http://www.example.com/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut client = proxy.client_sending(format!("{head}{chunks}")).await;
        let response = client.response().await;
        assert_eq!(
            (response.status, response.field("connection")),
            (400, Some("close")),
            "{chunks:?}"
        );
        assert_eq!(client.rest().await, "", "{chunks:?}");
        let seen = soon("the origin's end", told.recv()).await.unwrap();
        assert!(!seen.ends_with("0\r\n\r\n"), "{seen:?}");
        proxy.audit_of(2).await;
        assert_eq!(proxy.reasons(), ["listed", "bad_framing"], "{chunks:?}");
    }
}

#[tokio::test]
async fn a_response_may_come_before_the_request_has_ended() {
    let origin = Origin::serving(|mut stream| async move {
        read_head(&mut stream).await;
        let reply = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!";
        stream.write_all(reply).await.unwrap();
    });
    let origin = origin.await;
    let proxy = proxy_to(&origin).await;
    let head =
        "POST http://www.example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
    let mut client = proxy.client_sending(format!("{head}a part of it")).await;
    let response = client.response().await;
    assert_eq!((response.status, response.body.as_str()), (413, "no!"));
}

#[tokio::test]
async fn an_early_response_is_not_lost_to_the_reset_behind_it() {
    // The origin answers and closes with the upload unread: its kernel sends a reset.
    let origin = Origin::serving(|mut stream| async move {
        read_head(&mut stream).await;
        let reply = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!";
        stream.write_all(reply).await.unwrap();
        stream.readable().await.unwrap();
    });
    let origin = origin.await;
    let size = 4 << 20;
    for round in 0..20 {
        let proxy = proxy_to(&origin).await;
        let head = format!(
            "POST http://www.example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
        );
        let mut client = proxy.client_sending(head).await;
        // All of it is taken, although nobody wants it: the client reads its answer when it is done.
        let upload = vec![b'x'; size];
        soon("the upload", client.stream.write_all(&upload))
            .await
            .expect("it is taken");
        let response = client.response().await;
        assert_eq!(
            (response.status, response.body.as_str()),
            (413, "no!"),
            "round {round}"
        );
        assert!(client.end().await.is_ok(), "round {round}");
    }
}

#[tokio::test]
async fn content_is_passed_on_as_it_comes() {
    // K18: each event arrives before the next is sent.
    let (tell, told) = tokio::sync::watch::channel(0);
    let origin = Origin::serving(move |mut stream| {
        let mut told = told.clone();
        async move {
            read_head(&mut stream).await;
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            for event in 1..=3 {
                stream
                    .write_all(format!("data: {event}\n\n").as_bytes())
                    .await
                    .unwrap();
                let _ = told.wait_for(|seen| *seen >= event).await;
            }
        }
    });
    let origin = origin.await;
    let proxy = proxy_to(&origin).await;
    let mut client = proxy.client_sending(get("")).await;
    client.response().await;
    for event in 1..=3 {
        assert_eq!(
            client.take(14).await,
            format!("9\r\ndata: {event}\n\n\r\n").as_bytes()
        );
        tell.send_replace(event);
    }
}

#[tokio::test]
async fn options_is_answered_here_when_its_hops_are_used_up() {
    // J9, J10
    let origin = Origin::showing().await;
    let proxy = proxy_to(&origin).await;
    let options = |hops: u8| {
        format!(
            "OPTIONS http://www.example.com HTTP/1.1\r\nHost: x\r\nMax-Forwards: {hops}\r\n\r\n"
        )
    };
    let mut client = proxy.client_sending(options(0)).await;
    assert_eq!(client.response().await.status, 200);
    assert!(proxy.dialled().is_empty());
    client.send(options(5)).await;
    let seen = client.response().await.body;
    assert!(
        seen.starts_with("OPTIONS * HTTP/1.1\r\n") && seen.contains("Max-Forwards: 4"),
        "E4: {seen}"
    );
}

#[tokio::test]
async fn a_silent_origin_is_a_504() {
    // H10
    let origin = Origin::serving(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    });
    let origin = origin.await;
    let proxy = Setup::allowing(&["www.example.com:80"])
        .answering("www.example.com", &["93.184.216.35"])
        .dialling(Dial::To(origin.address))
        .limited(|limits| limits.response = Duration::from_millis(200))
        .logging_close()
        .start()
        .await;
    let mut client = proxy.client_sending(get("")).await;
    let response = client.response().await;
    assert_eq!(response.status, 504);
    proxy.audit_of(2).await;
    assert_eq!(proxy.reasons(), ["listed", "response_timeout"]);
}

#[tokio::test]
async fn content_that_stalls_ends_in_a_reset() {
    // H6, H7
    let origin = Origin::serving(|mut stream| async move {
        read_head(&mut stream).await;
        let part = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
        stream.write_all(part).await.unwrap();
        std::future::pending::<()>().await;
    });
    let origin = origin.await;
    let proxy = Setup::allowing(&["www.example.com:80"])
        .answering("www.example.com", &["93.184.216.35"])
        .dialling(Dial::To(origin.address))
        .limited(|limits| limits.idle = Some(Duration::from_millis(200)))
        .logging_close()
        .start()
        .await;
    let mut client = proxy.client_sending(get("")).await;
    assert!(client.end().await.is_err());
    proxy.audit_of(2).await;
    assert_eq!(proxy.reasons(), ["listed", "idle"]);
    // The same for what the client sends.
    let head = "POST http://www.example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf";
    let silent = Origin::serving(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    });
    let silent = silent.await;
    let proxy = Setup::allowing(&["www.example.com:80"])
        .answering("www.example.com", &["93.184.216.35"])
        .dialling(Dial::To(silent.address))
        .limited(|limits| limits.idle = Some(Duration::from_millis(200)))
        .logging_close()
        .start()
        .await;
    let mut client = proxy.client_sending(head).await;
    assert!(client.end().await.is_err());
    proxy.audit_of(2).await;
    assert_eq!(proxy.reasons(), ["listed", "idle"]);
}
