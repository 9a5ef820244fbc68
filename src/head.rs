//! One request head, read strictly.
//!
//! hyper resolves ambiguities silently (it drops a Content-Length that stands beside chunked, takes
//! a repeated Transfer-Encoding, accepts a bare LF), and whoever parses the same bytes after us may
//! resolve them otherwise. So every head is read here first, from its raw bytes, and hyper only ever
//! sees heads that leave nothing to resolve. What is not clear is refused (RFC 9112 §2.2, §6.3).

use http::uri::PathAndQuery;
use http::{Method, Uri, Version};

use crate::destination::{Destination, Host};
use crate::refusal::Malformed;

/// The longest field name that `http`, and so hyper behind us, takes.
const MAX_NAME: usize = 65_535;

/// How large a head may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes from the first byte to the blank line, both included.
    pub bytes: usize,
    /// Field lines.
    pub fields: usize,
}

/// A head that says one thing only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// The method, as sent: methods are case-sensitive.
    pub method: Method,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// Where to.
    pub destination: Destination,
    /// What the client wants done there.
    pub form: Form,
    /// How long the body is.
    pub framing: Framing,
    /// Bytes the head took, the blank line included.
    pub length: usize,
}

/// The two forms of a request target that a proxy takes (RFC 9112 §3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// Authority-form, with CONNECT: a tunnel.
    Tunnel,
    /// Absolute-form with scheme `http`: one exchange with the origin.
    Forward {
        /// The target for the origin: origin-form, or `*` (RFC 9112 §3.2.4).
        target: String,
    },
}

/// How the end of a request body is found (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes; 0 also where neither field is there.
    Length(u64),
    /// By chunks.
    Chunked,
}

/// A head that was refused, with what could be made out of it for the audit line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedHead {
    /// What is wrong with it.
    pub reason: Malformed,
    /// The first word of the request line, where that is a token.
    pub method: Option<String>,
    /// The authority the target seems to name: never a user name, a path or a query.
    pub host: Option<String>,
}

impl RefusedHead {
    /// Makes what can be made out of `bytes`, which `reason` says are no good.
    pub fn new(reason: Malformed, bytes: &[u8]) -> Self {
        let line = bytes
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ');
        let method = words
            .next()
            .filter(|word| Method::from_bytes(word.as_bytes()).is_ok());
        let target = words
            .next()
            .filter(|_| method.is_some())
            .unwrap_or_default();
        let is_whole = words.next().is_some();
        let host = match target.split_once("://") {
            Some((_scheme, rest)) => authority_of(rest, is_whole),
            None if method.is_some_and(|method| method.eq_ignore_ascii_case("CONNECT")) => {
                authority_of(target, is_whole)
            }
            None => None,
        };
        Self {
            reason,
            method: method.map(str::to_owned),
            host,
        }
    }
}

impl RequestHead {
    /// Reads a head from the start of `bytes`: `None` while it is not complete.
    pub fn parse(bytes: &[u8], limits: HeadLimits) -> Result<Option<Self>, RefusedHead> {
        Self::read(bytes, limits).map_err(|reason| RefusedHead::new(reason, bytes))
    }

    fn read(bytes: &[u8], limits: HeadLimits) -> Result<Option<Self>, Malformed> {
        let within = bytes.get(..limits.bytes).unwrap_or(bytes);
        let mut fields = vec![httparse::EMPTY_HEADER; limits.fields];
        let mut request = httparse::Request::new(&mut fields);
        let length = match request.parse(within) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < limits.bytes => return Ok(None),
            Ok(httparse::Status::Partial) => return Err(too_large(within)),
            Err(httparse::Error::TooManyHeaders) => return Err(Malformed::HeadTooLarge),
            Err(httparse::Error::Version) => return Err(bad_version(within)),
            Err(_) => return Err(Malformed::Syntax),
        };
        if (request.headers.iter()).any(|field| field.name.len() > MAX_NAME) {
            return Err(Malformed::HeadTooLarge);
        }
        let head = within.get(..length).unwrap_or(within);
        // httparse takes a bare LF for a line end; the next parser may not (RFC 9112 §2.2).
        if head
            .split_inclusive(|byte| *byte == b'\n')
            .any(|line| !line.ends_with(b"\r\n"))
        {
            return Err(Malformed::Syntax);
        }
        let method = request.method.ok_or(Malformed::Syntax)?;
        let target = request.path.ok_or(Malformed::Syntax)?;
        let version = if request.version == Some(1) {
            Version::HTTP_11
        } else {
            Version::HTTP_10
        };

        let method = Method::from_bytes(method.as_bytes()).map_err(|_| Malformed::Syntax)?;
        let (destination, form) = parse_target(&method, target)?;
        check_host_field(version, request.headers)?;
        let framing = parse_framing(version, head)?;
        // A CONNECT request has no content (RFC 9110 §9.3.6).
        if form == Form::Tunnel && framing != Framing::Length(0) {
            return Err(Malformed::Framing);
        }
        Ok(Some(Self {
            method,
            version,
            destination,
            form,
            framing,
            length,
        }))
    }
}

fn parse_target(method: &Method, target: &str) -> Result<(Destination, Form), Malformed> {
    if method == Method::CONNECT {
        return Ok((Destination::from_authority_form(target)?, Form::Tunnel));
    }
    if method.as_str().eq_ignore_ascii_case("CONNECT") {
        return Err(Malformed::Method);
    }
    let (scheme, after_scheme) = target.split_once(':').ok_or(Malformed::TargetForm)?;
    let has_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !has_scheme {
        return Err(Malformed::TargetForm);
    }
    // Only `//` opens an authority; `http:/host` and `http:host` mean different things to different
    // parsers. `host:443` lands here too: authority-form without CONNECT (RFC 9112 §3.2.3).
    let Some(rest) = after_scheme.strip_prefix("//") else {
        let is_port =
            !after_scheme.is_empty() && after_scheme.bytes().all(|byte| byte.is_ascii_digit());
        return Err(if is_port {
            Malformed::TargetForm
        } else {
            bad_scheme(scheme)
        });
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(bad_scheme(scheme));
    }
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let destination = Destination::from_http_authority(authority)?;
    // What hyper will read from the same bytes: better refused here, with a code, than there without.
    Uri::try_from(target).map_err(|_| Malformed::Target)?;
    let target = origin_target(method, path)?;
    Ok((destination, Form::Forward { target }))
}

fn bad_scheme(scheme: &str) -> Malformed {
    if scheme.eq_ignore_ascii_case("https") {
        Malformed::AbsoluteHttps
    } else if scheme.eq_ignore_ascii_case("http") {
        Malformed::Target
    } else {
        Malformed::Scheme
    }
}

/// The target for the origin (RFC 9112 §3.2.1, §3.2.4); its bytes are the client's or refused,
/// never re-encoded.
fn origin_target(method: &Method, path: &str) -> Result<String, Malformed> {
    let target = match path.as_bytes().first() {
        None if method == Method::OPTIONS => return Ok("*".to_owned()),
        None => return Ok("/".to_owned()),
        Some(b'/') => path.to_owned(),
        Some(b'?') => format!("/{path}"),
        Some(_) => return Err(Malformed::Target),
    };
    // A target has no fragment (RFC 9112 §3.2.1), and `PathAndQuery` would drop one silently.
    let kept = PathAndQuery::try_from(target.as_str()).map_err(|_| Malformed::Target)?;
    if kept.as_str() == target {
        Ok(target)
    } else {
        Err(Malformed::Target)
    }
}

/// Exactly one Host field, with a host and perhaps a port in it, or none in HTTP/1.0
/// (RFC 9112 §3.2). What it names does not matter: a proxy goes by the target.
fn check_host_field(version: Version, fields: &[httparse::Header<'_>]) -> Result<(), Malformed> {
    let mut hosts = fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("host"));
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.value,
        (None, _) if version == Version::HTTP_10 => return Ok(()),
        (None | Some(_), _) => return Err(Malformed::HostField),
    };
    let host = str::from_utf8(host).map_err(|_| Malformed::HostField)?;
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        Some(_) | None => (host, ""),
    };
    let is_host = host.is_empty() || Host::parse(name).is_ok();
    let is_port = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    if is_host && is_port {
        Ok(())
    } else {
        Err(Malformed::HostField)
    }
}

/// Finds how the body is framed, from the raw field lines: httparse takes trailing whitespace off a
/// value, and `chunked` with a tab behind it has been read two ways (CVE-2026-54387).
fn parse_framing(version: Version, head: &[u8]) -> Result<Framing, Malformed> {
    let values_of = |name: &str| {
        let fields = head.split(|byte| *byte == b'\n').skip(1);
        let values = fields.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (field, value) = line.split_at(colon);
            let value = value.strip_prefix(b":")?.strip_suffix(b"\r")?;
            field
                .eq_ignore_ascii_case(name.as_bytes())
                .then(|| value.trim_ascii_start())
        });
        values.collect::<Vec<_>>()
    };
    match (
        values_of("content-length").as_slice(),
        values_of("transfer-encoding").as_slice(),
    ) {
        ([], []) => Ok(Framing::Length(0)),
        // One coding, and that chunked: anything else would have to be undone to be forwarded.
        ([], [coding])
            if version == Version::HTTP_11 && coding.eq_ignore_ascii_case(b"chunked") =>
        {
            Ok(Framing::Chunked)
        }
        ([length], []) => parse_length(length).map(Framing::Length),
        (_, _) => Err(Malformed::Framing),
    }
}

/// The longest body that is taken: nobody sends more, and sums with it cannot overflow. hyper's own
/// limit lies a little under `u64::MAX`, and it answers beyond that without asking us.
pub(crate) const MAX_LENGTH: u64 = i64::MAX.unsigned_abs();

/// Decimal digits and nothing else; `010` is ten (RFC 9110 §8.6).
fn parse_length(value: &[u8]) -> Result<u64, Malformed> {
    let digits = str::from_utf8(value).map_err(|_| Malformed::Framing)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Malformed::Framing);
    }
    let length = digits.parse().ok().filter(|length| *length <= MAX_LENGTH);
    length.ok_or(Malformed::Framing)
}

/// A request line whose third word is no version we speak: another version, or another word.
fn bad_version(head: &[u8]) -> Malformed {
    let line = head
        .trim_ascii_start()
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let version = line.split(|byte| *byte == b' ').nth(2).unwrap_or_default();
    if version.starts_with(b"HTTP/") {
        Malformed::Version
    } else {
        Malformed::Syntax
    }
}

/// A head that is over the limit: in its request line, or after it.
fn too_large(head: &[u8]) -> Malformed {
    let line_ended = head.trim_ascii_start().contains(&b'\n');
    if line_ended {
        Malformed::HeadTooLarge
    } else {
        Malformed::TargetTooLong
    }
}

/// What stands where an authority would, without user name, path or query: those may be secrets. So
/// may be what stands behind a colon and is no port.
fn authority_of(text: &str, is_whole: bool) -> Option<String> {
    let end = text.find(['/', '?', '#', '\\']);
    // One that has not ended may stop in the middle of a password.
    let (authority, _) = text.split_at(end.or_else(|| is_whole.then_some(text.len()))?);
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let shown = match authority.split_once(':') {
        Some((host, port)) if !authority.contains(['[', ']']) => {
            if port.bytes().all(|byte| byte.is_ascii_digit()) {
                authority
            } else {
                host
            }
        }
        Some(_) | None => authority,
    };
    (!shown.is_empty()).then(|| shown.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        bytes: 64 * 1024,
        fields: 100,
    };

    fn parse(head: impl AsRef<[u8]>) -> Result<RequestHead, Malformed> {
        match RequestHead::parse(head.as_ref(), LIMITS) {
            Ok(Some(head)) => Ok(head),
            Ok(None) => panic!("incomplete: {:?}", String::from_utf8_lossy(head.as_ref())),
            Err(refused) => Err(refused.reason),
        }
    }

    fn forward(target: &str) -> Result<(String, String), Malformed> {
        let head = parse(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))?;
        let Form::Forward { target } = head.form else {
            panic!("not a forward")
        };
        Ok((head.destination.to_string(), target))
    }

    fn framing(fields: &str) -> Result<Framing, Malformed> {
        let head = format!("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n\r\n");
        parse(head).map(|head| head.framing)
    }

    #[test]
    fn absolute_form_becomes_a_destination_and_a_target_for_the_origin() {
        for (target, destination, origin) in [
            ("http://www.example.com", "www.example.com:80", "/"), // E5
            ("http://www.example.com?x=1", "www.example.com:80", "/?x=1"), // E6
            ("HTTP://WWW.EXAMPLE.COM/", "www.example.com:80", "/"), // E10
            ("http://www.example.com:/", "www.example.com:80", "/"), // B14
            ("http://www.example.com:443/", "www.example.com:443", "/"), // B15
            (
                "http://www.example.com/../../x",
                "www.example.com:80",
                "/../../x",
            ), // E19
            (
                "http://www.example.com/%2e%2e/",
                "www.example.com:80",
                "/%2e%2e/",
            ), // E19
            (
                "http://www.example.com//a//b",
                "www.example.com:80",
                "//a//b",
            ),
            (
                "http://[2001:db8::1]:8080/a?b",
                "[2001:db8::1]:8080",
                "/a?b",
            ),
            (
                "http://www.example.com/a\\b\"",
                "www.example.com:80",
                "/a\\b\"",
            ), // E18
            (
                "http://www.example.com/\u{e9}",
                "www.example.com:80",
                "/\u{e9}",
            ), // E18
        ] {
            let parsed = Ok((destination.to_owned(), origin.to_owned()));
            assert_eq!(forward(target), parsed, "{target}");
        }
        let options = parse("OPTIONS http://www.example.com HTTP/1.1\r\nHost: a\r\n\r\n");
        let asterisk = Form::Forward {
            target: "*".to_owned(),
        };
        assert_eq!(options.map(|head| head.form), Ok(asterisk), "E4");
    }

    #[test]
    fn a_target_that_is_not_absolute_form_is_refused() {
        for (target, fault) in [
            ("/path", Malformed::TargetForm),                 // E1
            ("//evil.com/", Malformed::TargetForm),           // E2
            ("*", Malformed::TargetForm),                     // E3
            ("ftp://www.example.com/", Malformed::Scheme),    // E9
            ("file:///etc/passwd", Malformed::Scheme),        // E9
            ("gopher://www.example.com/", Malformed::Scheme), // E9
            ("ws://www.example.com/", Malformed::Scheme),     // E9
            ("wss://www.example.com/", Malformed::Scheme),    // E9
            ("unix:/var/run/x.sock", Malformed::Scheme),      // E9
            ("data:text/plain,x", Malformed::Scheme),         // E9
            ("https://www.example.com/", Malformed::AbsoluteHttps),
            ("http:/www.example.com/", Malformed::Target), // E11
            ("http:///x", Malformed::Host),                // E11
            ("http://", Malformed::Host),                  // E11
            ("http:www.example.com", Malformed::Target),   // E11
            ("api.example.com:443", Malformed::TargetForm), // E12
            ("http://www.example.com@evil.com/", Malformed::Userinfo), // A12
            ("http://www.example.com\\@evil.com/", Malformed::Target),
            ("http://exa%6dple.com/", Malformed::Host), // A15
            ("http://www.example.com#x", Malformed::Target),
            ("http://www.example.com/#x", Malformed::Target),
            ("http://www.example.com/<", Malformed::Target), // E18
            ("http://www.example.com:99999/", Malformed::Port),
            ("://www.example.com/", Malformed::TargetForm),
        ] {
            assert_eq!(forward(target), Err(fault), "{target}");
        }
    }

    #[test]
    fn a_request_line_has_one_shape() {
        let long = format!("GET http://a.test/{} HTTP/1.1\r\n", "a".repeat(64 * 1024));
        for (head, fault) in [
            (
                "connect a.test:443 HTTP/1.1\r\nHost: a\r\n\r\n",
                Malformed::Method,
            ), // E16
            (
                "GET  http://a.test/ HTTP/1.1\r\nHost: a\r\n\r\n",
                Malformed::Syntax,
            ), // E22
            (
                "GET\thttp://a.test/ HTTP/1.1\r\nHost: a\r\n\r\n",
                Malformed::Syntax,
            ), // E22
            (
                "GET http://a.test/ HTTP/1.1 \r\nHost: a\r\n\r\n",
                Malformed::Syntax,
            ), // E22
            (
                " GET http://a.test/ HTTP/1.1\r\nHost: a\r\n\r\n",
                Malformed::Syntax,
            ), // E22
            ("GET http://a.test/\r\n\r\n", Malformed::Syntax), // E23
            ("GET http://a.test/ HTTP/2.0\r\n\r\n", Malformed::Version), // E25
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Malformed::Version), // E25
            (
                "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03",
                Malformed::Syntax,
            ), // E25
            (
                "GET http://a.test/ HTTP/1.1\nHost: a\n\n",
                Malformed::Syntax,
            ),
            (
                "GET http://a.test/ HTTP/1.1\r\nHost: a\n\r\n",
                Malformed::Syntax,
            ),
            (
                "GET http://a.test/ b HTTP/1.1\r\nHost: a\r\n\r\n",
                Malformed::Syntax,
            ), // E22
            (long.as_str(), Malformed::TargetTooLong), // E21
        ] {
            assert_eq!(parse(head), Err(fault), "{head:.80}");
        }
        let lower = parse("get http://a.test/ HTTP/1.1\r\nHost: a\r\n\r\n"); // E17
        assert_eq!(
            lower.map(|head| head.method.to_string()).as_deref(),
            Ok("get")
        );
        let led = parse("\r\nGET http://a.test/ HTTP/1.0\r\n\r\n"); // E26, E28
        assert_eq!(led.map(|head| head.version), Ok(Version::HTTP_10));
    }

    #[test]
    fn fields_that_are_no_fields_are_refused() {
        for fields in [
            "Host : a",              // F6
            "Host: a\r\n X: folded", // obs-fold
            " X: y\r\nHost: a",      // G17
            "Host: a\r\nX: a\0b",    // G19
            "Host: a\r\nno colon",   // G21
            "Host: a\r\n: empty",    // G21
            "Host: a\r\n:",          // G21
            "Host: a\r\nX\u{85}: y", // G22
            "Host: a\r\nX\": y",     // G22
            "Host: a\r\nX(: y",      // G22
            "Host: a\r\nX Y: z",     // G22
            "Host: a\r\nX: a\rb",    // bare CR
        ] {
            let head = format!("GET http://a.test/ HTTP/1.1\r\n{fields}\r\n\r\n");
            assert_eq!(parse(head), Err(Malformed::Syntax), "{fields:?}");
        }
    }

    #[test]
    fn there_is_one_host_field_and_it_names_a_host() {
        for fields in [
            "X: y",                 // F3
            "Host: a\r\nHost: a",   // F2
            "Host: a b",            // F5
            "Host: a,b",            // F5
            "Host: a@b",            // F5
            "Host: http://a",       // F5
            "Host: b\u{fc}cher.de", // A20
            "Host: a:443x",
            "Host: [::1",
        ] {
            let head = format!("GET http://a.test/ HTTP/1.1\r\n{fields}\r\n\r\n");
            assert_eq!(parse(head), Err(Malformed::HostField), "{fields}");
        }
        for host in [
            "",
            "evil.com",
            "API.example.com.:443",
            "[::1]:80",
            "[::1]",
            "a:",
        ] {
            let head = format!("CONNECT a.test:443 HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let destination = parse(head).map(|head| head.destination.to_string());
            assert_eq!(destination.as_deref(), Ok("a.test:443"), "F7, F11: {host}");
        }
    }

    #[test]
    fn a_body_has_one_length() {
        for (fields, expected) in [
            ("X: y", Framing::Length(0)),
            ("Content-Length: 5", Framing::Length(5)),
            ("content-length:5", Framing::Length(5)),
            ("Content-Length: 010", Framing::Length(10)), // G6
            ("Transfer-Encoding: chunked", Framing::Chunked),
            ("Transfer-Encoding: Chunked", Framing::Chunked), // G7
            ("Content_Length: 7", Framing::Length(0)),        // G36
        ] {
            assert_eq!(framing(fields), Ok(expected), "{fields}");
        }
        for fields in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5, 5",
            "Content-Length: +5",                   // G5
            "Content-Length: -5",                   // G5
            "Content-Length: 0x5",                  // G5
            "Content-Length: 5 5",                  // G5
            "Content-Length: 5_0",                  // G5
            "Content-Length: \u{ff11}",             // G5
            "Content-Length: ",                     // G5
            "Content-Length: 18446744073709551616", // G5
            "Content-Length: 18446744073709551615",
            "Content-Length: 18446744073709551614",
            "Content-Length: 9223372036854775808",
            "Content-Length: 5 ",
            "Transfer-Encoding: chunked,",      // G8
            "Transfer-Encoding: ,chunked",      // G8
            "Transfer-Encoding: chunked\t",     // G8
            "Transfer-Encoding: xchunked",      // G8
            "Transfer-Encoding: chunked;q=1",   // G8
            "Transfer-Encoding: chunked, gzip", // G9
            "Transfer-Encoding: gzip",          // G9
            "Transfer-Encoding: gzip, chunked", // G10
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", // G11
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", // G12
            "Transfer-Encoding: \u{a0}chunked", // G13
            "Transfer-Encoding:",
        ] {
            assert_eq!(framing(fields), Err(Malformed::Framing), "{fields:?}");
        }
        assert_eq!(
            framing("Transfer-Encoding: \x0bchunked"),
            Err(Malformed::Syntax),
            "G13"
        );
        assert_eq!(
            framing("Transfer-Encoding : chunked"),
            Err(Malformed::Syntax),
            "G15"
        );
        let old = "POST http://a.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(parse(old), Err(Malformed::Framing), "G14");
    }

    #[test]
    fn connect_has_no_body() {
        for (field, outcome) in [
            ("Content-Length: 5", Err(Malformed::Framing)),
            ("Transfer-Encoding: chunked", Err(Malformed::Framing)), // I5
            ("Content-Length: 0", Ok(Form::Tunnel)),
            ("Expect: 100-continue", Ok(Form::Tunnel)), // I7
        ] {
            let head = format!("CONNECT a.test:443 HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
            assert_eq!(parse(head).map(|head| head.form), outcome, "{field}");
        }
    }

    #[test]
    fn a_head_is_bounded_in_bytes_and_fields() {
        let head = |fields: usize, size: usize| {
            let fields = format!("X: {}\r\n", "y".repeat(size)).repeat(fields);
            format!("GET http://a.test/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
        };
        assert!(parse(head(99, 1)).is_ok());
        assert_eq!(parse(head(100, 1)), Err(Malformed::HeadTooLarge), "H1");
        assert_eq!(parse(head(3, 30_000)), Err(Malformed::HeadTooLarge), "H2");
        let limits = HeadLimits {
            bytes: 1 << 20,
            fields: 100,
        };
        for (length, is_taken) in [(MAX_NAME, true), (MAX_NAME + 1, false)] {
            let name = "n".repeat(length);
            let head = format!("GET http://a.test/ HTTP/1.1\r\nHost: a\r\n{name}: x\r\n\r\n");
            let parsed = RequestHead::parse(head.as_bytes(), limits);
            assert_eq!(parsed.is_ok(), is_taken, "{length}");
            assert_eq!(HeaderName::from_bytes(name.as_bytes()).is_ok(), is_taken);
        }
        let unfinished = head(1, 100);
        let unfinished = unfinished.trim_end().as_bytes();
        assert_eq!(RequestHead::parse(unfinished, LIMITS), Ok(None));
        assert_eq!(RequestHead::parse(b"", LIMITS), Ok(None));
    }

    #[test]
    fn what_a_refused_head_shows_holds_no_secret() {
        for (head, method, host) in [
            (
                "CONNECT u:secret@evil.com:443 HTTP/1.1\r\n",
                Some("CONNECT"),
                Some("evil.com:443"),
            ),
            (
                "GET http://u:secret@a.test/secret HTTP/1.1\r\n",
                Some("GET"),
                Some("a.test"),
            ),
            (
                "GET https://a.test?secret HTTP/1.1\r\n",
                Some("GET"),
                Some("a.test"),
            ),
            ("GET /secret HTTP/1.1\r\n", Some("GET"), None),
            ("CONNECT /secret HTTP/1.1\r\n", Some("CONNECT"), None),
            ("\x16\x03\x01 secret", None, None),
            (
                "CONNECT evil.com\x1b[31m:443 HTTP/1.1\r\n",
                Some("CONNECT"),
                Some("evil.com\x1b[31m:443"),
            ),
            ("CONNECT evil.com\r\n", Some("CONNECT"), None), // A35
            ("CONNECT user:secr", Some("CONNECT"), None),
            (
                "CONNECT user:secret HTTP/1.1\r\n",
                Some("CONNECT"),
                Some("user"),
            ),
            (
                "CONNECT user:secret:443 HTTP/1.1\r\n",
                Some("CONNECT"),
                Some("user"),
            ),
            (
                "GET http://user:se/cret@a.test/ HTTP/1.1\r\n",
                Some("GET"),
                Some("user"),
            ),
            (
                "GET http://a.test\\secret HTTP/1.1\r\n",
                Some("GET"),
                Some("a.test"),
            ),
        ] {
            let refused = RefusedHead::new(Malformed::Syntax, head.as_bytes());
            assert_eq!(refused.method.as_deref(), method, "{head:?}");
            assert_eq!(refused.host.as_deref(), host, "{head:?}");
        }
    }
}
