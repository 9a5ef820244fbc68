//! The policy document: a policy as JSON, for files and for the program that starts this one.
//!
//! Strict like the entries in it: an unknown key, a repeated key or a bad entry is an error that
//! names the key, the place and what to write instead.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use crate::address;
use crate::policy::{Policy, PolicyError};
use crate::rule::{Rule, RuleError};

/// Why a network was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{given}`: {reason}")]
pub struct NetworkError {
    given: String,
    reason: String,
}

/// Parses `ADDRESS/BITS`; an address with bits set behind its prefix is refused, as is one without.
pub fn parse_network(text: &str) -> Result<IpNet, NetworkError> {
    let error = |reason: String| NetworkError {
        given: text.to_owned(),
        reason,
    };
    // The remedy must not be refused in its turn.
    let error_writing = |reason: &str, instead: IpNet| {
        error(address::never(&instead).map_or_else(
            || format!("{reason}; write `{instead}`"),
            |class| {
                let class = class.describe();
                format!("it leads to nothing but {class}, which is never opened; remove it")
            },
        ))
    };
    if let Ok(address) = text.parse::<IpAddr>() {
        let reason = "a network has a prefix length";
        return Err(error_writing(reason, address.into()));
    }
    let network: IpNet = text.parse().map_err(|_| {
        error("not a network; write ADDRESS/BITS, for example `10.1.0.0/16`".to_owned())
    })?;
    if network.trunc() != network {
        let reason = "the address has bits behind its prefix";
        return Err(error_writing(reason, network.trunc()));
    }
    Ok(network)
}

/// The JSON form of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default, deserialize_with = "allow")]
    allow: Vec<String>,
    #[serde(default, deserialize_with = "allow_net")]
    allow_net: Vec<String>,
}

fn allow<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    list("allow", value)
}

fn allow_net<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    list("allow_net", value)
}

/// A list of strings, whose error names its key.
fn list<'de, D: Deserializer<'de>>(key: &str, value: D) -> Result<Vec<String>, D::Error> {
    Vec::deserialize(value).map_err(|error| D::Error::custom(format!("`{key}`: {error}")))
}

/// Why a policy document was refused.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// A byte order mark, as some editors put one (RFC 8259 §8.1: there must be none).
    #[error("it begins with a byte order mark (BOM); save it as UTF-8 without one")]
    ByteOrderMark,
    /// Not a JSON object.
    #[error(
        "not a policy document: it is a JSON object, such as {{\"allow\": [\"api.example.com\"]}}"
    )]
    NoObject,
    /// Not JSON, or not of this shape; the text names the key and the line.
    #[error("not a policy document: {0}")]
    Json(serde_json::Error),
    /// A bad entry.
    #[error("allow[{index}]: {reason}")]
    Rule {
        /// Its place in `allow`, from 0.
        index: usize,
        /// What is wrong with it.
        reason: RuleError,
    },
    /// A bad network.
    #[error("allow_net[{index}]: {reason}")]
    Network {
        /// Its place in `allow_net`, from 0.
        index: usize,
        /// What is wrong with it.
        reason: NetworkError,
    },
}

/// Reads a policy document: `{"allow": ["HOST", "HOST:PORT"], "allow_net": ["ADDRESS/BITS"]}`.
/// Both keys may be absent; any other key is an error.
pub fn parse(text: &str) -> Result<(Vec<Rule>, Vec<IpNet>), DocumentError> {
    if text.starts_with('\u{feff}') {
        return Err(DocumentError::ByteOrderMark);
    }
    // serde would fill the struct from an array as well.
    if !text.trim_start().starts_with('{') {
        return Err(DocumentError::NoObject);
    }
    let document: Document = serde_json::from_str(text).map_err(DocumentError::Json)?;
    let rules = document.allow.iter().enumerate().map(|(index, entry)| {
        Rule::parse(entry).map_err(|reason| DocumentError::Rule { index, reason })
    });
    let networks = document
        .allow_net
        .iter()
        .enumerate()
        .map(|(index, network)| {
            parse_network(network).map_err(|reason| DocumentError::Network { index, reason })
        });
    Ok((
        rules.collect::<Result<_, _>>()?,
        networks.collect::<Result<_, _>>()?,
    ))
}

/// Writes a policy as a document that [`parse`] reads back to an equal one.
pub fn print(policy: &Policy) -> String {
    let document = Document {
        allow: policy.rules().iter().map(ToString::to_string).collect(),
        allow_net: policy.networks().iter().map(ToString::to_string).collect(),
    };
    // Strings in arrays: serde_json has nothing to fail on.
    serde_json::to_string(&document).unwrap_or_default()
}

/// Why rules and networks from any source make no policy.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// The document.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Rules that do not go together.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl Policy {
    /// Reads and compiles a policy document.
    pub fn from_document(text: &str) -> Result<Self, ConfigurationError> {
        let (rules, networks) = parse(text)?;
        Ok(Self::new(rules, networks)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_policy_reads_back_the_same() {
        let text = r#"{"allow":["b\u00fccher.de","API.example.com.","www.example.com:80","[2606:4700:0::1]:443","10.1.2.3"],"allow_net":["198.51.100.0/24","2001:db8::/32"]}"#;
        let policy = Policy::from_document(text).expect("valid");
        let printed = print(&policy);
        assert_eq!(
            printed,
            r#"{"allow":["xn--bcher-kva.de","api.example.com","www.example.com:80","[2606:4700::1]:443","10.1.2.3"],"allow_net":["198.51.100.0/24","2001:db8::/32"]}"#
        );
        assert_eq!(Policy::from_document(&printed).expect("valid"), policy);
    }

    #[test]
    fn a_network_that_an_error_says_to_write_can_be_opened() {
        for (given, instead) in [
            ("10.0.0.0", Some("10.0.0.0/32")),
            ("10.0.0.1/8", Some("10.0.0.0/8")),
            ("fd12::1", Some("fd12::1/128")),
            ("fd12::1/32", Some("fd12::/32")),
            ("127.0.0.1", None),
            ("127.0.0.1/8", None),
            ("::1", None),
            ("fe80::1/10", None),
            ("169.254.169.254/16", None),
        ] {
            let said = parse_network(given).expect_err(given).to_string();
            match instead {
                Some(instead) => {
                    assert!(said.ends_with(&format!("; write `{instead}`")), "{said}");
                    let network = parse_network(instead).expect("a network");
                    Policy::new([], [network]).expect("it can be opened");
                }
                None => assert!(said.contains("which is never opened; remove it"), "{said}"),
            }
        }
    }

    #[test]
    fn an_empty_document_allows_nothing() {
        for text in ["{}", r#"{"allow":[]}"#, r#"{"allow_net":["10.0.0.0/8"]}"#] {
            assert!(
                Policy::from_document(text)
                    .expect("valid")
                    .rules()
                    .is_empty(),
                "M12"
            );
        }
    }
}
