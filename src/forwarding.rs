//! A message rewritten for the next hop: hop-by-hop fields out, Host made from the destination, Via
//! added.
//!
//! The origin must be told what was decided here, not what the client said beside it, and no field
//! that spoke of the connection to us may speak of the connection to it (RFC 9110 §7.6).

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, MAX_FORWARDS, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};

use crate::head::{Framing, RequestHead};
use crate::refusal::{Denied, PSEUDONYM};

/// Fields that never cross a hop, whether Connection names them or not: RFC 9110 §7.6.1 and the
/// older RFC 2616 §13.5.1; `HTTP2-Settings` belongs to a deprecated upgrade (RFC 9113 §3.1).
static HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// What becomes of a permitted plain-HTTP request.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// It goes to the origin.
    Origin,
    /// It was meant for this proxy: an OPTIONS whose Max-Forwards is used up (RFC 9110 §7.6.2).
    Here,
}

/// Refuses what must not be forwarded anywhere: TRACE, and a request that was here before.
pub fn check(method: &Method, fields: &HeaderMap) -> Result<(), Denied> {
    if method == Method::TRACE {
        return Err(Denied::MethodRefused);
    }
    let has_passed_here = fields.get_all(VIA).iter().any(|value| {
        value.as_bytes().split(|byte| *byte == b',').any(|member| {
            // `1.1 strait`, `HTTP/1.1 strait (comment)`: the second word is who received it.
            let mut words = member
                .split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty());
            words
                .nth(1)
                .is_some_and(|by| by.eq_ignore_ascii_case(PSEUDONYM.as_bytes()))
        })
    });
    if has_passed_here {
        Err(Denied::Loop)
    } else {
        Ok(())
    }
}

/// Where a permitted request goes.
pub fn next_hop(method: &Method, fields: &HeaderMap) -> NextHop {
    if method == Method::OPTIONS && hops_left(fields) == Some(0) {
        NextHop::Here
    } else {
        NextHop::Origin
    }
}

/// Rewrites a request's fields for its origin.
pub fn rewrite_request(head: &RequestHead, fields: &mut HeaderMap) {
    let RequestHead {
        method,
        version,
        destination,
        framing,
        ..
    } = head;
    if method == Method::OPTIONS
        && let Some(left) = hops_left(fields)
    {
        fields.insert(MAX_FORWARDS, left.saturating_sub(1).into());
    }
    strip_hop_by_hop(fields);
    // We answer 100 ourselves, once the origin is connected and its body is wanted.
    let expects_continue =
        |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if fields.get(EXPECT).is_some_and(expects_continue) {
        fields.remove(EXPECT);
    }
    // A canonical destination is ASCII letters, digits and `-._:[]`: always a field value.
    if let Ok(host) = HeaderValue::try_from(destination.http_host()) {
        fields.insert(HOST, host);
    }
    // The framing as it was understood: never `010`, and said even where a body is unusual.
    match framing {
        Framing::Length(length) if fields.contains_key(CONTENT_LENGTH) => {
            fields.insert(CONTENT_LENGTH, (*length).into());
        }
        Framing::Length(_) => {}
        Framing::Chunked => {
            fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
    add_via(*version, fields);
}

/// Whether there is one way to tell where a response's content ends: it is in no transfer coding, or
/// chunked alone (with another one undone or left in, the client would get content that is labelled
/// wrongly, RFC 9112 §6.1), and the lengths it states, if any, are numbers and agree (§6.3).
pub fn is_plainly_framed(fields: &HeaderMap) -> bool {
    let mut codings = fields.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => stated_length(fields).is_ok(),
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

/// The length that every Content-Length line and member states: `5`, `5, 5` and `005` are five. An
/// error is a member that is no number, or one that differs.
fn stated_length(fields: &HeaderMap) -> Result<Option<u64>, ()> {
    let mut stated = None;
    for line in fields.get_all(CONTENT_LENGTH) {
        for member in line.as_bytes().split(|byte| *byte == b',') {
            let member = member.trim_ascii();
            // `parse` takes a sign.
            let is_digits = !member.is_empty() && member.iter().all(u8::is_ascii_digit);
            let digits = std::str::from_utf8(member).ok().filter(|_| is_digits);
            let length: u64 = digits.and_then(|it| it.parse().ok()).ok_or(())?;
            if *stated.get_or_insert(length) != length {
                return Err(());
            }
        }
    }
    Ok(stated)
}

/// Rewrites a response's fields for the client, leaving one way to tell where its body ends.
pub fn rewrite_response(status: StatusCode, version: Version, fields: &mut HeaderMap) {
    // Chunked wins over a length beside it (RFC 9112 §6.3); a 204 has none at all (RFC 9110 §8.6).
    if fields.contains_key(TRANSFER_ENCODING) || status == StatusCode::NO_CONTENT {
        fields.remove(CONTENT_LENGTH);
    } else if let Ok(Some(length)) = stated_length(fields) {
        fields.insert(CONTENT_LENGTH, length.into());
    }
    strip_hop_by_hop(fields);
    add_via(version, fields);
}

/// Removes the hop-by-hop fields and every field that any Connection line names.
fn strip_hop_by_hop(fields: &mut HeaderMap) {
    let named: Vec<HeaderName> = fields
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|option| HeaderName::from_bytes(option.trim_ascii()).ok())
        // Not even by request does a message lose its length or its Host.
        .filter(|name| *name != CONTENT_LENGTH && *name != HOST)
        .collect();
    // Fields for or from a proxy are between the client and us; a `Proxy-Status` from behind us would
    // speak in our name.
    let of_proxies = fields
        .keys()
        .filter(|name| name.as_str().starts_with("proxy-"));
    let of_proxies: Vec<HeaderName> = of_proxies.cloned().collect();
    for name in named.iter().chain(&of_proxies).chain(&HOP_BY_HOP) {
        fields.remove(name);
    }
}

/// The value of Max-Forwards (RFC 9110 §7.6.2), where it is a number.
fn hops_left(fields: &HeaderMap) -> Option<u32> {
    let value = fields.get(MAX_FORWARDS)?.to_str().ok()?;
    value.trim().parse().ok()
}

/// Adds ourselves to Via, with the version the message came in (RFC 9110 §7.6.3).
fn add_via(version: Version, fields: &mut HeaderMap) {
    let received = if version == Version::HTTP_10 {
        "1.0"
    } else {
        "1.1"
    };
    if let Ok(via) = HeaderValue::try_from(format!("{received} {PSEUDONYM}")) {
        fields.append(VIA, via);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::HeadLimits;

    fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(
                *name,
                HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
            );
        }
        fields
    }

    fn lines(fields: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
        };
        fields.iter().map(line).collect()
    }

    fn head(method: &str, authority: &str, framing: &str) -> RequestHead {
        let head = format!("{method} http://{authority}/ HTTP/1.1\r\nHost: x\r\n{framing}\r\n");
        let limits = HeadLimits {
            bytes: 1 << 16,
            fields: 100,
        };
        RequestHead::parse(head.as_bytes(), limits)
            .expect("a head")
            .expect("all of it")
    }

    fn rewritten(sent: &[(&'static str, &str)]) -> Vec<String> {
        let mut sent = fields(sent);
        rewrite_request(&head("GET", "www.example.com:8080", ""), &mut sent);
        lines(&sent)
    }

    #[test]
    fn the_framing_is_said_as_it_was_understood() {
        for (sent, said) in [
            ("Content-Length: 010\r\n", Some("content-length: 10")), // G6
            (
                "Transfer-Encoding: Chunked\r\n",
                Some("transfer-encoding: chunked"),
            ), // G7, G29
            ("Content-Length: 0\r\n", Some("content-length: 0")),
            ("", None),
        ] {
            let head = head("GET", "a.test", sent);
            let mut fields = HeaderMap::new();
            if let Some((name, value)) = sent.trim_end().split_once(": ") {
                let name: HeaderName = name.parse().expect("a name");
                fields.insert(name, value.parse().expect("a value"));
            }
            rewrite_request(&head, &mut fields);
            let framing = lines(&fields).into_iter().find(|line| {
                line.starts_with("content-length") || line.starts_with("transfer-encoding")
            });
            assert_eq!(framing.as_deref(), said, "{sent}");
        }
    }

    #[test]
    fn hop_by_hop_fields_stay_on_their_hop() {
        let host = "host: www.example.com:8080";
        let via = "via: 1.1 strait";
        for (sent, kept) in [
            (&[("connection", "close, X-Foo"), ("x-foo", "1")][..], None), // J1
            (
                &[
                    ("connection", "close"),
                    ("connection", "X-Bar"),
                    ("x-bar", "1"),
                ],
                None,
            ), // J2
            (
                &[
                    ("connection", "\u{e9}"),
                    ("connection", "x-bar"),
                    ("x-bar", "1"),
                ],
                None,
            ), // J2
            (&[("connection", "Connection")], None),                       // CVE-2023-49606
            (&[("connection", "host")], None),
            (
                &[
                    ("proxy-connection", "keep-alive"),
                    ("keep-alive", "timeout=5"),
                ],
                None,
            ), // J5
            (
                &[
                    ("te", "trailers"),
                    ("trailer", "x"),
                    ("upgrade", "websocket"),
                ],
                None,
            ), // J5, J6
            (&[("upgrade", "h2c"), ("http2-settings", "AAMAAABk")], None), // J19
            (
                &[
                    ("proxy-authorization", "Basic eDp5"),
                    ("proxy-authenticate", "Basic"),
                ],
                None,
            ),
            (&[("transfer-encoding", "chunked")], None),
            (&[("expect", "100-Continue")], None), // J16
            (&[("x-forwarded-host", "a")], Some("x-forwarded-host: a")), // F9
            (
                &[("proxy_authorization", "x")],
                Some("proxy_authorization: x"),
            ), // G36
            (&[("x-raw", "\u{e9}")], Some("x-raw: \u{e9}")), // J28
        ] {
            let mut expected: Vec<String> = kept.iter().map(ToString::to_string).collect();
            expected.extend([host.to_owned(), via.to_owned()]);
            assert_eq!(rewritten(sent), expected, "{sent:?}");
        }
    }

    #[test]
    fn host_is_made_from_the_destination() {
        for sent in ["evil.com", "api.example.com:443", "WWW.example.com."] {
            let expected = ["host: www.example.com:8080", "via: 1.1 strait"]; // F8, F11
            assert_eq!(rewritten(&[("host", sent)]), expected);
        }
    }

    #[test]
    fn what_was_here_before_is_a_loop_and_trace_is_refused() {
        for (via, looped) in [
            ("1.1 strait", true), // J12
            ("1.0 other, HTTP/1.1 Strait (x)", true),
            ("1.1\tstrait", true),
            ("1.1 strait.example", false),
            ("1.1 other (strait)", false),
            ("strait", false),
        ] {
            let outcome = check(&Method::GET, &fields(&[("via", "1.1 a"), ("via", via)]));
            assert_eq!(
                outcome,
                if looped { Err(Denied::Loop) } else { Ok(()) },
                "{via}"
            );
        }
        assert_eq!(
            check(&Method::TRACE, &HeaderMap::new()),
            Err(Denied::MethodRefused),
            "J8"
        );
    }

    #[test]
    fn via_names_the_version_the_message_came_in() {
        let mut old = fields(&[("via", "1.1 first")]);
        rewrite_response(StatusCode::OK, Version::HTTP_10, &mut old);
        assert_eq!(lines(&old), ["via: 1.1 first", "via: 1.0 strait"], "J13");
    }

    #[test]
    fn max_forwards_is_counted_for_options() {
        let rewrite = |method: &Method, value: &str| {
            let mut fields = fields(&[("max-forwards", value)]);
            let next = next_hop(method, &fields);
            rewrite_request(&head(method.as_str(), "a.test", ""), &mut fields);
            let left = String::from_utf8_lossy(fields[MAX_FORWARDS].as_bytes()).into_owned();
            (next, left)
        };
        let to_origin = |left: &str| (NextHop::Origin, left.to_owned());
        assert_eq!(rewrite(&Method::OPTIONS, "0").0, NextHop::Here, "J9");
        assert_eq!(rewrite(&Method::OPTIONS, "5"), to_origin("4"), "J10");
        assert_eq!(rewrite(&Method::GET, "0"), to_origin("0"), "J10");
        assert_eq!(rewrite(&Method::OPTIONS, "x"), to_origin("x"));
    }

    #[test]
    fn a_response_keeps_one_length() {
        for (status, sent, kept) in [
            (
                200,
                &[("content-length", "5"), ("transfer-encoding", "chunked")][..],
                None,
            ), // K6
            (204, &[("content-length", "5")], None), // K5
            (304, &[("content-length", "5")], Some("content-length: 5")), // K5
            (200, &[("content-length", "5")], Some("content-length: 5")),
            (200, &[("connection", "X-Foo"), ("x-foo", "1")], None), // K15
        ] {
            let mut fields = fields(sent);
            let status = StatusCode::from_u16(status).expect("a status");
            rewrite_response(status, Version::HTTP_11, &mut fields);
            let mut expected: Vec<String> = kept.iter().map(ToString::to_string).collect();
            expected.push("via: 1.1 strait".to_owned());
            assert_eq!(lines(&fields), expected, "{status} {sent:?}");
        }
    }
}
