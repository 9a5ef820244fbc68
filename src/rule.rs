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
    #[error("`{entry}`: an entry is HOST or HOST:PORT, not a URL; write `{instead}`")]
    Url {
        /// The entry as given.
        entry: String,
        /// The host and port in it.
        instead: String,
    },
    /// `user@host`.
    #[error("`{0}`: an entry has no user name; write the host alone")]
    Userinfo(String),
    /// An IPv6 address without brackets.
    #[error("`{entry}`: an IPv6 address stands in brackets; write `[{address}]:443`")]
    Brackets {
        /// The entry as given.
        entry: String,
        /// The address in it.
        address: Ipv6Addr,
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
        instead: String,
    },
    /// A name that changes when it is normalised to another name.
    #[error("`{entry}`: the name has another spelling in DNS; write `{instead}` if you mean that")]
    Spelling {
        /// The entry as given.
        entry: String,
        /// What IDNA makes of it.
        instead: String,
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
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let port = match scheme {
                _ if authority.ends_with(|last: char| last.is_ascii_digit())
                    && authority.contains(':') =>
                {
                    ""
                }
                "http" | "ws" => ":80",
                _ => ":443",
            };
            let instead = format!("{authority}{port}");
            return Err(RuleError::Url {
                entry: given(),
                instead,
            });
        }
        if entry.contains('@') {
            return Err(RuleError::Userinfo(given()));
        }
        if let Ok(address) = entry.parse::<Ipv6Addr>() {
            // The remedy must not be refused in its turn.
            parse_host(&format!("[{address}]"), entry)?;
            return Err(RuleError::Brackets {
                entry: given(),
                address,
            });
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
        Ok(Self {
            host: parse_host(host, entry)?,
            port,
        })
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

fn parse_host(text: &str, entry: &str) -> Result<Host, RuleError> {
    let given = || entry.to_owned();
    let host = if text.is_ascii() {
        Host::parse(text).map_err(|_| RuleError::Host(given()))?
    } else {
        Host::Name(to_a_labels(text, entry)?)
    };
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
            let instead = entry.replace(text, &address.to_canonical().to_string());
            Err(RuleError::Mapped {
                entry: given(),
                instead,
            })
        }
        Host::Name(_) | Host::Ip(_) => Ok(host),
    }
}

/// Maps a name in another script as IDNA does, but takes only labels that stay in that script:
/// full-width letters or digits would quietly become a different ASCII name or an address.
fn to_a_labels(text: &str, entry: &str) -> Result<HostName, RuleError> {
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
    if stays && same_count {
        Ok(name)
    } else {
        Err(RuleError::Spelling {
            entry: entry.to_owned(),
            instead: name.to_string(),
        })
    }
}
