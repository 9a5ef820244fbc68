//! What must be true of a connection once it is over.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;
use strait::head::{HeadLimits, RefusedHead, RequestHead};
use strait::policy::Policy;

use super::request::Request;
use super::stage::{self, Facts, PERMITTED};
use super::{Act, Ending, is_complete};

pub(super) const LIMITS: HeadLimits = HeadLimits {
    bytes: 8 * 1024,
    fields: 16,
};

/// Fields of the client's hop that an origin must not see; `Connection` is there anew.
const HOP_BY_HOP: [&str; 7] = [
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "http2-settings",
    "te",
    "trailer",
    "upgrade",
];

/// The lines of one attempt.
#[derive(Debug)]
struct Attempt {
    record: Value,
    /// Why it ended, where it was let through.
    ended: Option<String>,
}

impl Attempt {
    fn is(&self, field: &str, text: &str) -> bool {
        self.record[field] == text
    }

    fn is_complete(&self) -> bool {
        self.ended.as_deref().is_some_and(is_complete)
    }
}

pub(super) fn check(act: &Act<'_>, facts: &Facts, log: &[u8], received: &[u8]) {
    for address in &facts.dialled {
        assert!(host_at(*address).is_some(), "{address} was dialled");
    }
    let attempts = read(log);
    let heads = act.sends.windows(4).filter(|end| *end == b"\r\n\r\n");
    // A head that is accepted has an end; one that is not is the last.
    assert!(attempts.len() <= heads.count() + 1, "{attempts:#?}");
    assert!(facts.connections.len() <= attempts.len());
    let policy = stage::policy();
    for attempt in &attempts {
        check_record(attempt, &policy);
    }
    check_first(act, attempts.first());

    // One request at a time: the n-th that got through is the n-th connection.
    let passed = attempts
        .iter()
        .filter(|attempt| attempt.is("reason", "listed") && attempt.record["address"].is_string());
    for (attempt, (address, got)) in passed.zip(&facts.connections) {
        assert!(attempt.is("address", &address.to_string()), "{attempt:?}");
        if attempt.is("method", "CONNECT") {
            check_tunnel(act, attempt, got);
        } else {
            check_forwarded(attempt, *address, got);
        }
    }
    // A client that sees its whole answer sees HTTP.
    assert!(
        received.is_empty() || received.starts_with(b"HTTP/1."),
        "{}",
        String::from_utf8_lossy(received)
    );
}

/// Reads the log: JSON a line, one record for each id, one close line for each that passed.
fn read(log: &[u8]) -> Vec<Attempt> {
    let log = str::from_utf8(log).expect("ASCII");
    assert!(log.is_empty() || log.ends_with('\n'), "{log}");
    let mut attempts = BTreeMap::new();
    for line in log.lines() {
        assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        let line: Value = serde_json::from_str(line).expect("JSON");
        let id = line["id"].as_u64().expect("an id");
        if line["event"] == "egress" {
            let attempt = Attempt {
                record: line,
                ended: None,
            };
            let earlier = attempts.insert(id, attempt);
            assert!(earlier.is_none(), "two records for {id}");
        } else {
            assert_eq!(line["event"], "close");
            let attempt: &mut Attempt = attempts.get_mut(&id).expect("a record before its end");
            let ended = line["ended"].as_str().expect("a word").to_owned();
            let earlier = attempt.ended.replace(ended);
            assert!(earlier.is_none(), "two ends for {id}");
        }
    }
    assert!(attempts.keys().copied().eq(1..=attempts.len() as u64));
    attempts.into_values().collect()
}

fn check_record(attempt: &Attempt, policy: &Policy) {
    let record = &attempt.record;
    let reason = record["reason"].as_str().expect("a reason");
    assert_eq!(attempt.ended.is_some(), reason == "listed", "{attempt:?}");
    assert_ne!(reason, "internal_error");
    // It is made from what hyper delivered without a head of ours: the two disagree about a body.
    assert!(
        reason != "bad_framing" || record["method"].is_string(),
        "the screen and hyper disagree"
    );
    if record["allowed"] == true {
        let host = record["host"].as_str().expect("a host");
        let port = record["port"].as_u64().expect("a port");
        let grants = |rule: &strait::rule::Rule| {
            rule.host().bare() == host && rule.ports().any(|it| u64::from(it.number()) == port)
        };
        assert!(policy.rules().iter().any(grants), "{record}");
    } else {
        assert_ne!(reason, "listed");
    }
}

/// The first head decides the first record, however it came in pieces.
fn check_first(act: &Act<'_>, first: Option<&Attempt>) {
    let Some(first) = first else {
        // Told to stop, or with nothing said, there need not be one.
        let is_silent = without_empty_lines(act.sends).is_empty();
        assert!(is_silent || act.ending != Ending::Eof, "no record");
        return;
    };
    match first_head(act.sends) {
        Ok(Some(head)) => {
            assert!(first.is("method", head.method.as_str()) || head.method.as_str().len() > 32);
            assert!(first.is("host", &head.destination.host().bare()));
            assert_eq!(first.record["port"], head.destination.port().number());
        }
        Ok(None) | Err(_) => assert_eq!(first.record["allowed"], false),
    }
}

/// The first head in what a client sends.
pub(super) fn first_head(sends: &[u8]) -> Result<Option<RequestHead>, RefusedHead> {
    RequestHead::parse(without_empty_lines(sends), LIMITS)
}

fn behind_first_head(sends: &[u8]) -> Option<&[u8]> {
    let head = first_head(sends).ok().flatten()?;
    without_empty_lines(sends).get(head.length..)
}

/// Empty lines before a head do not count (RFC 9112 §2.2).
fn without_empty_lines(sends: &[u8]) -> &[u8] {
    let start = sends.iter().position(|byte| !b"\r\n".contains(byte));
    &sends[start.unwrap_or(sends.len())..]
}

/// A tunnel carries what stands behind its CONNECT, as it is; all of it, if it ended well.
fn check_tunnel(act: &Act<'_>, attempt: &Attempt, got: &[u8]) {
    let is_whole = attempt.is_complete() && act.ending == Ending::Eof;
    let is_carried = if is_whole && attempt.record["id"] == 1 {
        behind_first_head(act.sends) == Some(got)
    } else if is_whole {
        act.sends.ends_with(got)
    } else {
        got.is_empty() || act.sends.windows(got.len()).any(|window| window == got)
    };
    assert!(is_carried, "{}", String::from_utf8_lossy(got));
}

/// An origin gets one request, made of what was decided, and not a byte behind it.
fn check_forwarded(attempt: &Attempt, address: SocketAddr, got: &[u8]) {
    let Some(request) = Request::read(got) else {
        assert!(!attempt.is_complete() || got.is_empty());
        return;
    };
    let host = host_at(address).unwrap_or_default();
    assert!(request.start.ends_with(" HTTP/1.1"), "{request:?}");
    assert_eq!(request.values("host"), [host], "{request:?}");
    assert_eq!(request.values("connection"), ["close"], "{request:?}");
    let via = request.values("via").last().copied().unwrap_or_default();
    assert!(via.ends_with(" strait"), "{request:?}");
    for gone in HOP_BY_HOP {
        assert!(request.values(gone).is_empty(), "{request:?}");
    }
    let (_, behind) = request.end().expect("one framing");
    assert_eq!(behind, 0, "{request:?}");
}

/// The Host of a plain request to an address that may be dialled.
fn host_at(address: SocketAddr) -> Option<&'static str> {
    let address = address.to_string();
    let found = PERMITTED
        .iter()
        .find(|(permitted, _)| *permitted == address);
    found.map(|(_, host)| *host)
}
