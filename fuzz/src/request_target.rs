//! Request targets and whole heads: what is accepted is canonical, and more bytes change nothing.

use http::{Method, Uri};
use strait::destination::{Destination, Host};
use strait::head::{Form, HeadLimits, RefusedHead, RequestHead};

/// Small, so that inputs reach them.
const LIMITS: HeadLimits = HeadLimits {
    bytes: 1024,
    fields: 8,
};
/// How many prefixes of an input are tried.
const PREFIXES: usize = 64;

/// Takes the input for a CONNECT target, for an absolute-form target, and for a head.
pub fn check(input: &[u8]) {
    if let Ok(target) = str::from_utf8(input) {
        check_authority_form(target);
        for method in ["GET", "OPTIONS"] {
            let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            check_head(head.as_bytes());
        }
    }
    check_head(input);
}

fn check_authority_form(target: &str) {
    if let Ok(destination) = Destination::from_authority_form(target) {
        assert!(!target.contains('@'));
        check_canonical(&destination);
        let printed = destination.to_string();
        assert_eq!(
            Destination::from_authority_form(&printed),
            Ok(destination),
            "{printed}"
        );
    }
}

/// One spelling: lower-case ASCII without a trailing dot, and a port that can be connected to.
fn check_canonical(destination: &Destination) {
    let host = destination.host().bare();
    assert!(!host.is_empty() && !host.ends_with('.'), "{host}");
    assert!(
        host.bytes()
            .all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase()),
        "{host}"
    );
    assert_ne!(destination.port().number(), 0);
    assert_eq!(
        host.parse::<std::net::IpAddr>().is_ok(),
        matches!(destination.host(), Host::Ip(_))
    );
    let field = destination.http_host();
    assert_eq!(
        Destination::from_http_authority(&field).as_ref(),
        Ok(destination),
        "{field}"
    );
}

fn check_head(bytes: &[u8]) {
    match RequestHead::parse(bytes, LIMITS) {
        Ok(Some(head)) => {
            assert!(head.length <= bytes.len().min(LIMITS.bytes));
            check_accepted(&head, bytes);
            check_prefixes(bytes, Some(&head));
        }
        Ok(None) => {
            assert!(bytes.len() < LIMITS.bytes);
            check_prefixes(bytes, None);
        }
        Err(refused) => {
            check_refused(&refused);
            check_prefixes(bytes, None);
        }
    }
}

/// More bytes turn "not complete" into an answer, and never one answer into another.
fn check_prefixes(bytes: &[u8], complete: Option<&RequestHead>) {
    let mut longer = bytes.to_vec();
    longer.extend_from_slice(b"\r\n\r\nGET / HTTP/1.1\r\n@");
    let step = 1 + longer.len() / PREFIXES;
    let around = complete.map_or(0..0, |head| head.length - 1..head.length + 1);
    let mut ends: Vec<usize> = (0..longer.len()).step_by(step).chain(around).collect();
    ends.extend([bytes.len(), longer.len()]);
    ends.sort_unstable();

    let mut refused = None;
    for end in ends {
        let outcome = RequestHead::parse(&longer[..end], LIMITS);
        if let Some(head) = complete {
            let expected = (end >= head.length).then_some(head);
            assert_eq!(outcome.as_ref().map(Option::as_ref), Ok(expected), "{end}");
        } else if let Some(reason) = refused {
            assert_eq!(outcome.map_err(|now| now.reason), Err(reason), "{end}");
        } else if let Err(now) = outcome {
            refused = Some(now.reason);
        }
    }
}

fn check_accepted(head: &RequestHead, bytes: &[u8]) {
    check_canonical(&head.destination);
    let text = String::from_utf8_lossy(&bytes[..head.length]);
    let mut words = text.trim_start_matches(['\r', '\n']).split(' ');
    assert_eq!(words.next(), Some(head.method.as_str()));
    let sent = words.next().expect("a target");

    let Form::Forward { target } = &head.form else {
        assert_eq!(head.method, Method::CONNECT);
        assert!(!sent.contains('@'), "{sent}");
        return;
    };
    let (_, rest) = sent.split_once("://").expect("absolute-form");
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    assert!(!authority.contains('@'), "{sent}");
    // hyper reads the same bytes after us, by `Uri`.
    let uri: Uri = sent.parse().expect("what was accepted is a URI");
    assert_eq!(
        Host::parse(uri.host().unwrap_or_default()).as_ref(),
        Ok(head.destination.host())
    );

    let path = if target == "*" { "" } else { target };
    let printed = format!(
        "{} http://{}{path} HTTP/1.1\r\nHost: a\r\n\r\n",
        head.method, head.destination
    );
    let limits = HeadLimits {
        bytes: 2 * LIMITS.bytes,
        ..LIMITS
    };
    let again = RequestHead::parse(printed.as_bytes(), limits)
        .ok()
        .flatten()
        .expect("it parses again");
    assert_eq!(
        (&again.method, &again.destination, &again.form),
        (&head.method, &head.destination, &head.form),
        "{printed}"
    );
}

/// What goes into the audit line holds no user name, path or query.
fn check_refused(refused: &RefusedHead) {
    if let Some(host) = &refused.host {
        assert!(
            !host.is_empty() && !host.contains(['@', '/', '?', '#']),
            "{host}"
        );
    }
    if let Some(method) = &refused.method {
        assert!(Method::from_bytes(method.as_bytes()).is_ok(), "{method}");
    }
}
