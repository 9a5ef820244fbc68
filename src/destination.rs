//! Where a request wants to go, in the one spelling everything after this uses.
//!
//! A request target is parsed once, here, strictly, and from its raw bytes: `http::Uri` takes
//! `user@host`, `[name]`, zone ids and `:+443` for authorities, and each of those has been a way
//! past some proxy's allowlist. What comes out is canonical (lower case, no trailing dot, A-labels
//! as they came, a port that is a number), so that the name that is matched, the name that is
//! resolved and the name the origin is told cannot differ.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use crate::refusal::Malformed;

/// The longest name in text form, without the trailing dot (RFC 1035 §2.3.4).
const MAX_NAME: usize = 253;
/// The longest label (RFC 1035 §2.3.4).
const MAX_LABEL: usize = 63;

/// A host and a port: what a policy grants and what a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Destination {
    host: Host,
    port: Port,
}

impl Destination {
    /// A destination of parts that are canonical already.
    pub fn new(host: Host, port: Port) -> Self {
        Self { host, port }
    }

    /// Parses the target of a CONNECT request: `host:port`, nothing before, between or after.
    ///
    /// There is no default port (RFC 9110 §9.3.6).
    pub fn from_authority_form(target: &str) -> Result<Self, Malformed> {
        if target.starts_with('/') || target == "*" || target.contains("://") {
            return Err(Malformed::TargetForm);
        }
        let (host, port) = split_authority(target)?;
        let port = port.ok_or(Malformed::Port)?;
        Ok(Self::new(Host::parse(host)?, Port::parse(port)?))
    }

    /// Parses the authority of an `http` URI, where an absent or empty port means 80
    /// (RFC 9110 §4.2.1).
    pub fn from_http_authority(authority: &str) -> Result<Self, Malformed> {
        let (host, port) = split_authority(authority)?;
        let port = match port {
            None | Some("") => Port::HTTP,
            Some(digits) => Port::parse(digits)?,
        };
        Ok(Self::new(Host::parse(host)?, port))
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> Port {
        self.port
    }

    /// The value of a Host field for a plain-HTTP request to here: without the port where it is
    /// the scheme's own (RFC 9110 §7.2, §4.2.3).
    pub fn http_host(&self) -> String {
        if self.port == Port::HTTP {
            self.host.to_string()
        } else {
            self.to_string()
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A name or an address, decided once at the parse and matched exhaustively after.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A DNS name.
    Name(HostName),
    /// An address literal: a dotted quad, or IPv6 that stood in brackets.
    Ip(IpAddr),
}

impl Host {
    /// Parses a host as it stands in an authority: a name, a dotted quad, or `[IPv6]`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        if let Some(inner) = text.strip_prefix('[') {
            // No zone id (local to a machine, RFC 6874) and no IPvFuture: std refuses both.
            let inner = inner.strip_suffix(']').ok_or(Malformed::Host)?;
            let address = inner.parse::<Ipv6Addr>().map_err(|_| Malformed::Host)?;
            return Ok(Self::Ip(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Ip(address.into()));
        }
        HostName::parse(text).map(Self::Name)
    }

    /// The host without the brackets of an IPv6 literal, as the audit line has it.
    pub fn bare(&self) -> String {
        match self {
            Self::Name(name) => name.to_string(),
            Self::Ip(address) => address.to_string(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Ip(IpAddr::V4(address)) => address.fmt(f),
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// A DNS name in canonical form: lower-case letters, digits, hyphens and underscores in labels of
/// 1 to 63 bytes, 253 bytes at most, no trailing dot.
///
/// Underscores are no host name by RFC 1123 but common in DNS. A name whose last label is a number
/// (`127.1`, `0x7f000001`, `2130706433`) is refused: `inet_aton` and URL parsers read an IPv4
/// address there (RFC 6943 §3.1.1), and this program must not mean one thing and its neighbour another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// Parses an ASCII name; one trailing dot is taken off, upper case is folded.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_well_formed =
            name.len() <= MAX_NAME && name.split('.').all(is_label) && !ends_in_number(&name);
        if is_well_formed {
            Ok(Self(name))
        } else {
            Err(Malformed::Host)
        }
    }

    /// The name, without a trailing dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the name is `localhost` or below it, which resolvers answer with loopback
    /// (RFC 6761 §6.3).
    pub fn is_localhost(&self) -> bool {
        self.0 == "localhost" || self.0.ends_with(".localhost")
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A TCP port that can be connected to: never 0 (RFC 6335 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(NonZeroU16);

impl Port {
    /// The port of `http` URIs.
    pub const HTTP: Self = Self(NonZeroU16::new(80).unwrap());
    /// The port of `https` URIs.
    pub const HTTPS: Self = Self(NonZeroU16::new(443).unwrap());

    /// Parses one to five decimal digits without a leading zero. `u16::from_str` would take `+443`,
    /// and `0443` is octal to some.
    pub fn parse(digits: &str) -> Result<Self, Malformed> {
        if digits.starts_with('0') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Malformed::Port);
        }
        digits.parse().map(Self).map_err(|_| Malformed::Port)
    }

    /// The number.
    pub fn number(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Splits `host[:port]` at the colon behind the host; a host with colons of its own needs brackets
/// (RFC 3986 §3.2.2).
fn split_authority(authority: &str) -> Result<(&str, Option<&str>), Malformed> {
    if authority.contains('@') {
        return Err(Malformed::Userinfo);
    }
    let host_end = if authority.starts_with('[') {
        authority.find(']').ok_or(Malformed::Host)? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(host_end);
    match rest.strip_prefix(':') {
        Some(port) if port.contains(':') => Err(Malformed::Host),
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(Malformed::Host),
    }
}

fn is_label(label: &str) -> bool {
    let in_bounds = (1..=MAX_LABEL).contains(&label.len());
    in_bounds
        && label
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
}

/// The test of the URL standard's "ends in a number" checker: what such a parser takes for IPv4.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_hex = last
        .strip_prefix("0x")
        .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_hex || last.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn connect(target: &str) -> Result<String, Malformed> {
        Destination::from_authority_form(target).map(|destination| destination.to_string())
    }

    #[test]
    fn the_canonical_spelling_is_the_only_one_that_comes_out() {
        for (target, canonical) in [
            ("api.example.com:443", "api.example.com:443"),  // A1
            ("API.Example.COM:443", "api.example.com:443"),  // A2
            ("api.example.com.:443", "api.example.com:443"), // A5's listed twin
            ("ex_ample.com:443", "ex_ample.com:443"),        // A24
            ("-ex.com:443", "-ex.com:443"),                  // A25
            ("ex-.com:443", "ex-.com:443"),                  // A25
            ("127.0.0.1:443", "127.0.0.1:443"),              // a literal, refused later
            ("[::1]:443", "[::1]:443"),                      // C47
            ("[0:0:0:0:0:0:0:1]:443", "[::1]:443"),          // C17
            ("[::ffff:127.0.0.1]:443", "[::ffff:127.0.0.1]:443"), // C48
            ("[2606:4700:0::1111]:65535", "[2606:4700::1111]:65535"),
        ] {
            assert_eq!(connect(target).as_deref(), Ok(canonical), "{target}");
        }
    }

    #[test]
    fn what_is_not_a_host_and_a_port_is_malformed() {
        let long_label = format!("{}.com:443", "a".repeat(64));
        let long_name = format!("{}a:443", "abcdefg.".repeat(32));
        let huge = format!("{}:443", "a".repeat(60 * 1024));
        for (target, fault) in [
            ("[api.example.com]:443", Malformed::Host),        // A6
            ("[::1:443", Malformed::Host),                     // A8
            ("::1]:443", Malformed::Host),                     // A8
            ("[[::1]]:443", Malformed::Host),                  // A8
            ("user@api.example.com:443", Malformed::Userinfo), // A9
            ("api.example.com@evil.com:443", Malformed::Userinfo), // A10
            ("api.example.com:443@evil.com:443", Malformed::Userinfo), // A11
            ("%61pi.example.com:443", Malformed::Host),        // A14
            ("evil.com%00.example.com:443", Malformed::Host),  // A16
            ("evil.com\0.api.example.com:443", Malformed::Host), // A17
            ("b\u{fc}cher.example:443", Malformed::Host),      // A19
            ("\u{ff41}pi.example.com:443", Malformed::Host),   // A23
            ("\u{ff11}27.0.0.1:443", Malformed::Host),         // A23
            ("api\u{3002}example\u{3002}com:443", Malformed::Host), // A23
            ("ex..com:443", Malformed::Host),                  // A26
            (".ex.com:443", Malformed::Host),                  // A26
            (".:443", Malformed::Host),                        // A26
            (":443", Malformed::Host),                         // A26
            ("ex.com..:443", Malformed::Host),                 // A26
            ("*.example.com:443", Malformed::Host),            // A27
            (&long_label, Malformed::Host),                    // A28
            (&long_name, Malformed::Host),                     // A28
            (&huge, Malformed::Host),                          // A29
            ("api.example.com;evil.com:443", Malformed::Host), // A30
            ("api.example.com,evil.com:443", Malformed::Host), // A30
            ("api.example.com&evil.com:443", Malformed::Host), // A30
            ("api.example.com':443", Malformed::Host),         // A30
            ("evil.com:443.api.example.com:443", Malformed::Host), // A33
            ("::ffff:1.2.3.4%x.api.example.com", Malformed::Host), // A34
            ("api.example.com", Malformed::Port),              // B1
            ("api.example.com:", Malformed::Port),             // B2
            ("api.example.com:0", Malformed::Port),            // B3
            ("api.example.com:65536", Malformed::Port),        // B6
            ("api.example.com:65979", Malformed::Port),        // B6: 443 modulo 65536
            ("api.example.com:4294967739", Malformed::Port),   // B6
            ("api.example.com:99999999999999999999", Malformed::Port), // B6
            ("api.example.com:+443", Malformed::Port),         // B7
            ("api.example.com:-443", Malformed::Port),         // B7
            ("api.example.com:00443", Malformed::Port),        // B8
            ("api.example.com:0443", Malformed::Port),         // B8
            ("api.example.com:443abc", Malformed::Port),
            ("api.example.com:0x1bb", Malformed::Port),
            ("api.example.com: 443", Malformed::Port),
            ("127.1:443", Malformed::Host),               // C42
            ("127.0.1:443", Malformed::Host),             // C42
            ("0x7f.0.0.1:443", Malformed::Host),          // C42
            ("0x7f000001:443", Malformed::Host),          // C42
            ("0177.0.0.1:443", Malformed::Host),          // C42
            ("2130706433:443", Malformed::Host),          // C42
            ("017700000001:443", Malformed::Host),        // C42
            ("0:443", Malformed::Host),                   // C42
            ("0x0:443", Malformed::Host),                 // C42
            ("0x:443", Malformed::Host),                  // C42
            ("00.00.00.00:443", Malformed::Host),         // C42
            ("169.254.43518:443", Malformed::Host),       // C43
            ("0xA9FEA9FE:443", Malformed::Host),          // C43
            ("0251.0376.0251.0376:443", Malformed::Host), // C43
            ("2852039166:443", Malformed::Host),          // C43
            ("127.0.0.1.:443", Malformed::Host),          // C44
            ("127.0.0.01:443", Malformed::Host),          // C46
            ("evil.com.0x1:443", Malformed::Host),
            ("::1:443", Malformed::Host),                // C49
            ("[fe80::1%25eth0]:443", Malformed::Host),   // C50
            ("[fe80::1%eth0]:443", Malformed::Host),     // C50
            ("[::1%25lo]:443", Malformed::Host),         // C50
            ("[2606:4700::1%25x]:443", Malformed::Host), // C50
            ("[v1.fe80::a]:443", Malformed::Host),       // C51
            ("[::1]x:443", Malformed::Host),
            ("[]:443", Malformed::Host),
            ("/x", Malformed::TargetForm), // E14
            ("*", Malformed::TargetForm),  // E14
            ("http://api.example.com:443", Malformed::TargetForm),
            ("api.example.com:443/evil", Malformed::Port), // E15
            ("", Malformed::Port),
        ] {
            assert_eq!(connect(target), Err(fault), "{target}");
        }
    }

    #[test]
    fn the_port_of_an_http_authority_may_be_absent_or_empty() {
        for authority in ["www.example.com", "www.example.com:", "www.example.com:80"] {
            let destination = Destination::from_http_authority(authority);
            let host = destination.map(|destination| destination.http_host());
            assert_eq!(host.as_deref(), Ok("www.example.com"), "B14: {authority}");
        }
        let other = Destination::from_http_authority("www.example.com:8080");
        assert_eq!(
            other.map(|other| other.http_host()).as_deref(),
            Ok("www.example.com:8080")
        );
        assert_eq!(
            Destination::from_http_authority(":80"),
            Err(Malformed::Host)
        );
        assert_eq!(Destination::from_http_authority(""), Err(Malformed::Host));
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_what_it_accepts_is_stable(target in ".{0,80}") {
            if let Ok(destination) = Destination::from_authority_form(&target) {
                let printed = destination.to_string();
                prop_assert_eq!(Destination::from_authority_form(&printed), Ok(destination));
                prop_assert!(printed.is_ascii());
                prop_assert!(!printed.contains('@'));
            }
        }
    }
}
