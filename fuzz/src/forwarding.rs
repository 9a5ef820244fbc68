//! Messages rewritten for the next hop: nothing that spoke to this hop survives, one Host, one more
//! Via, and everything else as it came.
//!
//! An input is `METHOD AUTHORITY VERSION` on the first line, and field lines after it.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use strait::destination::Destination;
use strait::forwarding::{self, NextHop};
use strait::head::{Form, Framing, RequestHead};
use strait::refusal::{Denied, PSEUDONYM};

/// A field, its name in lower case.
type Field = (String, Vec<u8>);

/// RFC 9110 §7.6.1, RFC 2616 §13.5.1 and RFC 7540 §3.2.1, once more; and all that begin with `proxy-`.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Rewrites the fields of an input, as a request's and as a response's.
pub fn check(input: &[u8]) {
    let mut input = input.split(|byte| *byte == b'\n');
    let start = String::from_utf8_lossy(input.next().unwrap_or_default());
    let [method, authority, version] = start.split(' ').collect::<Vec<_>>()[..] else {
        return;
    };
    let (Ok(method), Ok(destination)) = (
        Method::from_bytes(method.as_bytes()),
        Destination::from_http_authority(authority),
    ) else {
        return;
    };
    let version = if version == "1.0" {
        Version::HTTP_10
    } else {
        Version::HTTP_11
    };
    let mut fields = HeaderMap::new();
    for line in input {
        if let Some((name, value)) = field(line) {
            fields.append(name, value);
        }
    }
    let framing = framing(&mut fields);
    let head = RequestHead {
        method,
        version,
        destination,
        form: Form::Forward {
            target: "/".to_owned(),
        },
        framing,
        length: 0,
    };
    check_request(&head, &fields);
    let status = if head.method == Method::OPTIONS {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::OK
    };
    check_response(status, version, &fields);
}

/// Makes the fields say one thing about the length of the body, as those of an accepted head do.
fn framing(fields: &mut HeaderMap) -> Framing {
    if fields.contains_key("transfer-encoding") {
        fields.remove("content-length");
        return Framing::Chunked;
    }
    let length = fields.get("content-length");
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    Framing::Length(length.unwrap_or(0))
}

fn field(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = line.split_at(colon);
    let name = HeaderName::from_bytes(name).ok()?;
    let value = HeaderValue::from_bytes(value[1..].trim_ascii()).ok()?;
    Some((name, value))
}

fn check_request(head: &RequestHead, sent: &HeaderMap) {
    let method = &head.method;
    let refused = forwarding::check(method, sent);
    let is_loop = list(sent, "via").iter().any(|member| {
        let mut words = member.split_ascii_whitespace();
        words
            .nth(1)
            .is_some_and(|by| by.eq_ignore_ascii_case(PSEUDONYM))
    });
    assert_eq!(
        refused == Err(Denied::MethodRefused),
        method == Method::TRACE
    );
    assert_eq!(refused.is_err(), method == Method::TRACE || is_loop);
    let is_used_up = forwarding::next_hop(method, sent) == NextHop::Here;
    assert!(!is_used_up || (method == Method::OPTIONS && sent.contains_key("max-forwards")));

    let mut fields = sent.clone();
    forwarding::rewrite_request(head, &mut fields);
    let mut expected = kept(sent);
    expected.retain(|(name, _)| name != "host");
    // The first decides for all; a second Expect is nobody's.
    let expect = expected.iter().find(|(name, _)| name == "expect");
    if expect.is_some_and(|(_, value)| value.eq_ignore_ascii_case(b"100-continue")) {
        expected.retain(|(name, _)| name != "expect");
    }
    match head.framing {
        Framing::Chunked => expected.push(("transfer-encoding".to_owned(), b"chunked".to_vec())),
        Framing::Length(length) if sent.contains_key("content-length") => {
            expected.retain(|(name, _)| name != "content-length");
            expected.push(("content-length".to_owned(), length.to_string().into()));
        }
        Framing::Length(_) => {}
    }
    expected.push(("host".to_owned(), head.destination.http_host().into()));
    expected.push(via(head.version));
    let mut found = flat(&fields);
    if method == Method::OPTIONS {
        // Counted down, in one line.
        expected.retain(|(name, _)| name != "max-forwards");
        found.retain(|(name, _)| name != "max-forwards");
    }
    assert_same(found, expected);
}

fn check_response(status: StatusCode, version: Version, sent: &HeaderMap) {
    // One that leaves a choice of where its content ends goes to no client.
    let lengths = lengths(sent);
    let codings = lines(sent, "transfer-encoding");
    let is_plain = match codings.as_slice() {
        [] => lengths.windows(2).all(|pair| pair[0] == pair[1]) && !lengths.contains(&None),
        [coding] => coding.eq_ignore_ascii_case("chunked"),
        _ => false,
    };
    assert_eq!(forwarding::is_plainly_framed(sent), is_plain);
    if !is_plain {
        return;
    }
    let mut fields = sent.clone();
    forwarding::rewrite_response(status, version, &mut fields);
    let mut expected = kept(sent);
    expected.retain(|(name, _)| name != "content-length");
    let is_bare = !codings.is_empty() || status == StatusCode::NO_CONTENT;
    if let (false, Some(Some(length))) = (is_bare, lengths.first()) {
        expected.push(("content-length".to_owned(), length.to_string().into()));
    }
    expected.push(via(version));
    assert_same(flat(&fields), expected);
}

/// What each member of Content-Length states; `None` is what is no number.
fn lengths(fields: &HeaderMap) -> Vec<Option<u64>> {
    let number = |member: String| {
        let is_number = member.chars().all(|digit| digit.is_ascii_digit());
        is_number.then(|| member.parse().ok()).flatten()
    };
    list(fields, "content-length")
        .into_iter()
        .map(number)
        .collect()
}

/// What crosses a hop: neither hop-by-hop nor named by Connection, but never without its length or
/// its Host.
fn kept(sent: &HeaderMap) -> Vec<Field> {
    let mut gone: Vec<String> = list(sent, "connection")
        .into_iter()
        .map(|option| option.to_ascii_lowercase())
        .filter(|option| option != "content-length" && option != "host")
        .collect();
    gone.extend(HOP_BY_HOP.map(str::to_owned));
    let mut kept = flat(sent);
    kept.retain(|(name, _)| !gone.contains(name) && !name.starts_with("proxy-"));
    kept
}

/// The members of a list field, in all its lines.
fn list(fields: &HeaderMap, name: &str) -> Vec<String> {
    let members = |line: String| {
        let members = line.split(',').map(|member| member.trim_ascii().to_owned());
        members.collect::<Vec<_>>()
    };
    lines(fields, name).into_iter().flat_map(members).collect()
}

/// The lines of a field, each byte a character.
fn lines(fields: &HeaderMap, name: &str) -> Vec<String> {
    let line = |line: &HeaderValue| {
        line.as_bytes()
            .iter()
            .map(|byte| char::from(*byte))
            .collect()
    };
    fields.get_all(name).iter().map(line).collect()
}

fn via(version: Version) -> Field {
    let received = if version == Version::HTTP_10 {
        "1.0"
    } else {
        "1.1"
    };
    ("via".to_owned(), format!("{received} {PSEUDONYM}").into())
}

fn flat(fields: &HeaderMap) -> Vec<Field> {
    let field = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), value.as_bytes().to_vec())
    };
    fields.iter().map(field).collect()
}

/// The same fields; lines of one name in the same order.
fn assert_same(mut found: Vec<Field>, mut expected: Vec<Field>) {
    found.sort_by(|one, other| one.0.cmp(&other.0));
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(found, expected);
}
