//! One allowlist entry, as a user writes it.
//!
//! Read at start-up and read strictly: an entry that could never match, or that means something
//! else than it seems to, stops the program with the entry, the reason and what to write instead.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use thiserror::Error;

use crate::address::{self, Class, Reach};
use crate::destination::{Destination, Host, HostName, Port};

/// One allowlist entry: `HOST` for ports 443 and 80, or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    host: Host,
    port: Option<Port>,
}

/// Why an entry was refused, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// Nothing there.
    #[error("an entry is empty; write HOST or HOST:PORT")]
    Empty,
    /// `*` in any place.
    #[error("`{0}`: there are no wildcards; list every host by its whole name")]
    Wildcard(String),
    /// A URL.
    #[error("`{entry}`: an entry is HOST or HOST:PORT, not a URL{}", write_instead(.instead.as_slice()))]
    Url {
        /// The entry as given.
        entry: String,
        /// The host and port in it, where there is no doubt about them.
        instead: Option<Rule>,
    },
    /// `user@host`.
    #[error("`{0}`: an entry has no user name; write the host alone")]
    Userinfo(String),
    /// An IPv6 address without brackets.
    #[error("`{entry}`: an IPv6 address stands in brackets{}", write_instead(.readings))]
    Brackets {
        /// The entry as given.
        entry: String,
        /// What it may mean: what stands behind the last colon can be a port.
        readings: Vec<Rule>,
    },
    /// A port that is none.
    #[error("`{0}`: the port must be a number from 1 to 65535, without sign or leading zero")]
    Port(String),
    /// A host that is none.
    #[error("`{0}`: the host is not a DNS name, a dotted quad or a bracketed IPv6 address")]
    Host(String),
    /// An IPv4 address in IPv6 clothes: the request will come in the other spelling.
    #[error("`{entry}` is an IPv4 address; write `{instead}`")]
    Mapped {
        /// The entry as given.
        entry: String,
        /// The same in its usual form.
        instead: Rule,
    },
    /// A name that changes when it is normalised to another name.
    #[error("`{entry}`: the name has another spelling in DNS; write `{instead}` if you mean that")]
    Spelling {
        /// The entry as given.
        entry: String,
        /// What IDNA makes of it.
        instead: Rule,
    },
    /// `localhost`.
    #[error("`{0}` leads to loopback, which is never opened; remove it")]
    Localhost(String),
    /// A literal that is refused whatever is configured.
    #[error("`{entry}` leads to {}, which is never opened; remove it", .class.describe())]
    NeverAddress {
        /// The entry as given.
        entry: String,
        /// Why the address is never reached.
        class: Class,
    },
}

impl Rule {
    /// Parses an entry; names in other scripts become A-labels (RFC 5890 §2.3.2.1).
    pub fn parse(entry: &str) -> Result<Self, RuleError> {
        let given = || entry.to_owned();
        if entry.is_empty() {
            return Err(RuleError::Empty);
        }
        if entry.contains('*') {
            return Err(RuleError::Wildcard(given()));
        }
        if let Some((scheme, rest)) = entry.split_once("://") {
            return Err(url(entry, scheme, rest));
        }
        if entry.contains('@') {
            return Err(RuleError::Userinfo(given()));
        }
        if let Some(error) = without_brackets(entry) {
            return Err(error);
        }
        // The colon before a port stands behind the brackets, where there are any.
        let brackets_end = entry.rfind(']').map_or(0, |bracket| bracket + 1);
        let (bracketed, rest) = entry.split_at(brackets_end);
        let (host, port) = match rest.split_once(':') {
            Some((name, digits)) => {
                let port = Port::parse(digits).map_err(|_| RuleError::Port(given()))?;
                (
                    entry.strip_suffix(&format!(":{digits}")).unwrap_or(name),
                    Some(port),
                )
            }
            None if bracketed.is_empty() => (rest, None),
            None => (entry, None),
        };
        if host.is_ascii() {
            let host = Host::parse(host).map_err(|_| RuleError::Host(given()))?;
            Self::granting(host, port, entry)
        } else {
            to_a_labels(host, port, entry)
        }
    }

    /// The rule that grants one destination, if there can be one.
    pub fn for_destination(destination: &Destination) -> Result<Self, RuleError> {
        let (host, port) = (destination.host().clone(), destination.port());
        Self::granting(host, Some(port), &destination.to_string())
    }

    /// The rule, if its host can be reached at all, and by this spelling.
    fn granting(host: Host, port: Option<Port>, entry: &str) -> Result<Self, RuleError> {
        let given = || entry.to_owned();
        match &host {
            Host::Name(name) if name.is_localhost() => Err(RuleError::Localhost(given())),
            Host::Ip(address) if address::classify(*address).reach() == Reach::Never => {
                let class = address::classify(*address);
                Err(RuleError::NeverAddress {
                    entry: given(),
                    class,
                })
            }
            Host::Ip(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
                let host = Host::Ip(address.to_canonical());
                Err(RuleError::Mapped {
                    entry: given(),
                    instead: Self { host, port },
                })
            }
            Host::Name(_) | Host::Ip(_) => Ok(Self { host, port }),
        }
    }

    /// The host granted.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The ports granted.
    pub fn ports(&self) -> impl Iterator<Item = Port> + use<> {
        let both = [Port::HTTPS, Port::HTTP];
        let one = self.port.map(|port| [port, port]);
        let count = if self.port.is_some() { 1 } else { 2 };
        one.unwrap_or(both).into_iter().take(count)
    }

    /// The destinations granted.
    pub fn grants(&self) -> impl Iterator<Item = Destination> {
        self.ports()
            .map(|port| Destination::new(self.host.clone(), port))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => self.host.fmt(f),
        }
    }
}

/// What to write in place of an entry: rules, so that none of them is refused in its turn.
fn write_instead(rules: &[Rule]) -> String {
    let spelled: Vec<String> = rules.iter().map(|rule| format!("`{rule}`")).collect();
    if spelled.is_empty() {
        String::new()
    } else {
        format!("; write {}", spelled.join(" or "))
    }
}

/// What is wrong with a URL: that it is one, or that nothing opens the way to its host.
fn url(entry: &str, scheme: &str, rest: &str) -> RuleError {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let default = match scheme {
        "http" | "ws" => Some(format!("{authority}:80")),
        "https" | "wss" => Some(format!("{authority}:443")),
        _ => None,
    };
    let mut instead = None;
    for spelling in default.into_iter().chain([authority.to_owned()]) {
        match Rule::parse(&spelling) {
            Err(RuleError::Localhost(_)) => return RuleError::Localhost(entry.to_owned()),
            Err(RuleError::NeverAddress { class, .. }) => {
                return RuleError::NeverAddress {
                    entry: entry.to_owned(),
                    class,
                };
            }
            parsed => {
                let rule = parsed.ok().filter(|rule| rule.port.is_some());
                instead = instead.or(rule);
            }
        }
    }
    RuleError::Url {
        entry: entry.to_owned(),
        instead,
    }
}

/// What is wrong with an IPv6 address without brackets, alone or before a port.
fn without_brackets(entry: &str) -> Option<RuleError> {
    let address = |text: &str| text.parse::<Ipv6Addr>().map(|ip| Host::Ip(ip.into())).ok();
    let before_port = entry.rsplit_once(':').and_then(|(before, digits)| {
        let port = Port::parse(digits).ok()?;
        Some((address(before)?, port))
    });
    let whole = address(entry).map(|host| (host, Port::HTTPS));
    let mut readings = Vec::new();
    let mut refused = None;
    for (host, port) in before_port.into_iter().chain(whole) {
        match Rule::granting(host, Some(port), entry) {
            Ok(rule) => readings.push(rule),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    if readings.is_empty() {
        refused
    } else {
        Some(RuleError::Brackets {
            entry: entry.to_owned(),
            readings,
        })
    }
}

/// Maps a name in another script as IDNA does, but takes only labels that stay in that script:
/// full-width letters or digits would quietly become a different ASCII name or an address.
fn to_a_labels(text: &str, port: Option<Port>, entry: &str) -> Result<Rule, RuleError> {
    let invalid = || RuleError::Host(entry.to_owned());
    let mapped = idna::domain_to_ascii_strict(text).map_err(|_| invalid())?;
    let name = HostName::parse(&mapped).map_err(|_| invalid())?;
    let labels = text.strip_suffix('.').unwrap_or(text).split('.');
    let stays = labels.zip(name.as_str().split('.')).all(|(given, label)| {
        if given.is_ascii() {
            given.eq_ignore_ascii_case(label)
        } else {
            label.starts_with("xn--")
        }
    });
    let same_count = text.matches('.').count() == mapped.matches('.').count();
    let rule = Rule::granting(Host::Name(name), port, entry)?;
    if stays && same_count {
        Ok(rule)
    } else {
        Err(RuleError::Spelling {
            entry: entry.to_owned(),
            instead: rule,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What an error says to write, each in back quotes.
    fn remedies(error: &RuleError) -> Vec<String> {
        let said = error.to_string();
        let Some((_, remedies)) = said.split_once("; write ") else {
            return Vec::new();
        };
        let quoted = remedies.split('`').skip(1).step_by(2);
        quoted.map(str::to_owned).collect()
    }

    /// Pieces of which entries are made, well and badly.
    const PIECES: &[&str] = &[
        "http://",
        "https://",
        "ws://",
        "ftp://",
        "://",
        "u@",
        "u:p@",
        "x",
        "api.example.com",
        "localhost",
        "\u{ff4c}ocalhost",
        "\u{ff41}pi.example.com",
        "b\u{fc}cher.de",
        "127.0.0.1",
        "10.0.0.1",
        "[",
        "]",
        "::1",
        "[::1]",
        "[2606:4700::1111]",
        "2606:4700::1111",
        "1:2:3:4:5:6:7:8",
        "::ffff:93.184.216.34",
        "[::ffff:93.184.216.34]",
        "::ffff:127.0.0.1",
        "fe80::1",
        ".",
        ":",
        "::",
        ":80",
        ":443",
        ":0",
        ":99999",
        "/",
        "/v1",
        "?q",
        "#f",
        "\\",
        "*",
        " ",
    ];

    proptest! {
        #[test]
        fn what_an_error_says_to_write_is_not_refused_in_its_turn(
            pieces in prop::collection::vec(prop::sample::select(PIECES), 0..5),
        ) {
            let entry = pieces.concat();
            if let Err(error) = Rule::parse(&entry) {
                for remedy in remedies(&error) {
                    let rule = Rule::parse(&remedy);
                    prop_assert!(rule.is_ok(), "{error}: {rule:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_meant_is_advised_where_that_is_clear() {
        for (entry, meant) in [
            ("http://x", &["x:80"][..]),
            ("https://x/v1?q#f", &["x:443"]),
            ("wss://x:8443/", &["x:8443"]),
            ("http://[2606:4700::1111]/", &["[2606:4700::1111]:80"]),
            (
                "https://[2606:4700::1111]:8443",
                &["[2606:4700::1111]:8443"],
            ),
            ("postgres://x:5432/db", &["x:5432"]),
            // Which port, which host: there is doubt.
            ("ftp://x", &[]),
            ("http://u@x/", &[]),
            ("http://u:p@x:80/", &[]),
            ("http://x\\@y/", &[]),
            ("http://", &[]),
            ("http:///x", &[]),
            ("://", &[]),
            ("https://x:99999", &[]),
            ("2606:4700::1111", &["[2606:4700::1111]:443"]),
            (
                "2606:4700::1111:443",
                &["[2606:4700::1111]:443", "[2606:4700::1111:443]:443"],
            ),
            ("1:2:3:4:5:6:7:8:443", &["[1:2:3:4:5:6:7:8]:443"]),
            ("::ffff:93.184.216.34", &["93.184.216.34:443"]),
            ("::ffff:93.184.216.34:80", &["93.184.216.34:80"]),
            ("[::ffff:93.184.216.34]", &["93.184.216.34"]),
            ("\u{ff41}pi.example.com:8080", &["api.example.com:8080"]),
        ] {
            let error = Rule::parse(entry).expect_err(entry);
            assert_eq!(remedies(&error), meant, "{error}");
        }
    }

    #[test]
    fn what_is_never_opened_is_not_advised_in_another_spelling() {
        for entry in [
            "http://localhost/",
            "http://localhost:8080/",
            "https://127.0.0.1",
            "http://[::1]:80/x",
            "http://169.254.169.254/latest",
            "http://[::ffff:127.0.0.1]/",
            "::1",
            "::1:443",
            "fe80::1:443",
            "::ffff:127.0.0.1",
            "\u{ff4c}ocalhost",
        ] {
            let error = Rule::parse(entry).expect_err(entry);
            let is_never = matches!(
                error,
                RuleError::Localhost(_) | RuleError::NeverAddress { .. }
            );
            assert!(is_never && error.to_string().contains(entry), "{error}");
        }
    }
}
