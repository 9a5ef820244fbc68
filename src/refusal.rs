//! Every way to say no.
//!
//! A refusal is grouped by whose fault it is: the client's ([`Malformed`]), the policy's
//! ([`Denied`]), or nobody's here ([`Failed`]). Its code is stable and appears in three places only:
//! this file, the audit line and `Proxy-Status`. What a client is told comes from one table,
//! [`Refusal::answer`]; it repeats nothing the client sent but the canonical destination.

use http::StatusCode;
use serde::Serialize;
use thiserror::Error;

use crate::address::Class;
use crate::destination::Destination;
use crate::rule::Rule;

/// The name of this proxy in `Proxy-Status` (RFC 9209 §2) and `Via` (RFC 9110 §7.6.3).
pub const PSEUDONYM: &str = "strait";

/// A request that gets no answer from its origin, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Refusal {
    /// The client sent something that is no request this proxy takes.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The policy says no.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The policy said yes, and it could not be done.
    #[error(transparent)]
    Failed(#[from] Failed),
}

/// Requests that are wrong whatever the policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Malformed {
    /// Not an HTTP/1 request head (RFC 9112 §2.1); lines must end in CRLF.
    #[error(
        "this is not an HTTP/1.1 request; the proxy takes CONNECT and http:// requests in the clear"
    )]
    Syntax,
    /// Another version of HTTP.
    #[error("the proxy speaks HTTP/1.0 and HTTP/1.1 only")]
    Version,
    /// `connect`: methods are case-sensitive (RFC 9110 §9.1), and this one would not tunnel.
    #[error("method names are case-sensitive; write CONNECT")]
    Method,
    /// Origin-form, asterisk-form or authority-form where a proxy needs another (RFC 9112 §3.2).
    #[error("a proxy needs the whole destination: CONNECT host:port, or METHOD http://host/path")]
    TargetForm,
    /// Bytes in the request target that belong in none, or a fragment.
    #[error("the request target holds characters that are not allowed there")]
    Target,
    /// A host that is neither a DNS name nor an address in its usual form.
    #[error("the host is not a DNS name, a dotted quad or a bracketed IPv6 address")]
    Host,
    /// No port where one is needed, or one that is not a number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535 without sign or leading zero")]
    Port,
    /// `user@host` (RFC 9110 §4.2.4).
    #[error("a user name in the request target is not allowed; send credentials in a header field")]
    Userinfo,
    /// A scheme other than `http`.
    #[error("only http:// can be forwarded; use CONNECT for anything else")]
    Scheme,
    /// `GET https://…` to a proxy: it asks the proxy to speak TLS in the client's place.
    #[error(
        "https:// must come by CONNECT, so that TLS runs between client and origin; this client \
         sent it in absolute-form (axios before 1.18 does): update it"
    )]
    AbsoluteHttps,
    /// Host missing, repeated, or not a host (RFC 9112 §3.2).
    #[error("an HTTP/1.1 request needs exactly one valid Host field")]
    HostField,
    /// Content-Length and Transfer-Encoding that disagree, repeat or are not understood
    /// (RFC 9112 §6).
    #[error(
        "the length of the request body is not clear; send one Content-Length, or chunked alone"
    )]
    Framing,
    /// A request line longer than the limit on heads.
    #[error("the request target is too long")]
    TargetTooLong,
    /// A head larger than the limit, or with more fields.
    #[error("the request head is too large")]
    HeadTooLarge,
    /// The head did not arrive in time.
    #[error("the request head did not arrive in time")]
    HeadTimeout,
    /// The client stopped in the middle of the head.
    #[error("the request head ended early")]
    HeadIncomplete,
}

/// Requests that the policy does not permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Denied {
    /// No rule grants this destination.
    #[error("this destination is not on the allowlist")]
    NotListed,
    /// The name resolves to an address that may not be reached (or the literal is one).
    #[error("this destination leads to {}", .0.describe())]
    Address(Class),
    /// The destination is this proxy.
    #[error("this destination is the proxy itself")]
    OwnAddress,
    /// Our own name is in `Via` already (RFC 9110 §7.6.3).
    #[error("the request has passed through this proxy before")]
    Loop,
    /// TRACE would echo the request's credentials (RFC 9110 §9.3.8).
    #[error("TRACE is not forwarded")]
    MethodRefused,
}

/// Permitted requests that could not be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Failed {
    /// The resolver reported an error, or could not be reached.
    #[error("the name could not be resolved")]
    Dns,
    /// The name does not exist.
    #[error("the name does not exist")]
    DnsNameNotFound,
    /// The name exists but has no address.
    #[error("the name has no address")]
    DnsNoRecords,
    /// The resolver did not answer in time.
    #[error("the resolver did not answer in time")]
    DnsTimeout,
    /// Every address refused the connection.
    #[error("the origin refused the connection")]
    ConnectRefused,
    /// There is no route to any of the addresses.
    #[error("the origin cannot be reached from here")]
    ConnectUnreachable,
    /// The connection failed in another way.
    #[error("the connection to the origin failed")]
    Connect,
    /// No address answered in time.
    #[error("the origin did not accept the connection in time")]
    ConnectTimeout,
    /// The origin accepted, then said nothing for too long.
    #[error("the origin did not answer in time")]
    ResponseTimeout,
    /// The origin closed the connection before its response head was complete.
    #[error("the origin closed the connection without a response")]
    ResponseIncomplete,
    /// The origin's response is no HTTP/1 response, or one nobody asked for.
    #[error("the origin's response is not valid HTTP/1.1")]
    ResponseInvalid,
    /// As many connections are open as the limit allows.
    #[error("the proxy has no connection to spare; try again later")]
    Full,
}

/// What a client is told: a row of the table in [`Refusal::answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status of the response.
    pub status: StatusCode,
    /// The error type of RFC 9209 §2.3 that comes nearest.
    pub proxy_error: &'static str,
    /// Our own code: stable, `snake_case`.
    pub code: &'static str,
}

impl Refusal {
    /// The one table from refusal to the wire.
    pub fn answer(self) -> Answer {
        use StatusCode as S;
        let (status, proxy_error, code) = match self {
            Self::Malformed(malformed) => match malformed {
                Malformed::Syntax => (S::BAD_REQUEST, "http_request_error", "bad_request"),
                Malformed::Version => (
                    S::HTTP_VERSION_NOT_SUPPORTED,
                    "http_request_error",
                    "bad_version",
                ),
                Malformed::Method => (S::BAD_REQUEST, "http_request_error", "bad_method"),
                Malformed::TargetForm => (S::BAD_REQUEST, "http_request_error", "bad_target_form"),
                Malformed::Target => (S::BAD_REQUEST, "http_request_error", "bad_target"),
                Malformed::Host => (S::BAD_REQUEST, "http_request_error", "bad_host"),
                Malformed::Port => (S::BAD_REQUEST, "http_request_error", "bad_port"),
                Malformed::Userinfo => (S::BAD_REQUEST, "http_request_error", "userinfo"),
                Malformed::Scheme => (S::BAD_REQUEST, "http_request_error", "bad_scheme"),
                Malformed::AbsoluteHttps => {
                    (S::BAD_REQUEST, "http_request_error", "absolute_https")
                }
                Malformed::HostField => (S::BAD_REQUEST, "http_request_error", "bad_host_field"),
                Malformed::Framing => (S::BAD_REQUEST, "http_request_error", "bad_framing"),
                Malformed::TargetTooLong => {
                    (S::URI_TOO_LONG, "http_request_error", "target_too_long")
                }
                Malformed::HeadTooLarge => (
                    S::REQUEST_HEADER_FIELDS_TOO_LARGE,
                    "http_request_error",
                    "head_too_large",
                ),
                Malformed::HeadTimeout => {
                    (S::REQUEST_TIMEOUT, "http_request_error", "head_timeout")
                }
                Malformed::HeadIncomplete => {
                    (S::BAD_REQUEST, "http_request_error", "head_incomplete")
                }
            },
            Self::Denied(denied) => match denied {
                Denied::NotListed => (S::FORBIDDEN, "http_request_denied", "not_listed"),
                Denied::Address(class) => (S::FORBIDDEN, "destination_ip_prohibited", class.code()),
                Denied::OwnAddress => (S::FORBIDDEN, "destination_ip_prohibited", "own_address"),
                Denied::Loop => (S::LOOP_DETECTED, "proxy_loop_detected", "loop"),
                Denied::MethodRefused => (S::FORBIDDEN, "http_request_denied", "method_refused"),
            },
            Self::Failed(failed) => match failed {
                Failed::Dns => (S::BAD_GATEWAY, "dns_error", "dns_failed"),
                Failed::DnsNameNotFound => (S::BAD_GATEWAY, "dns_error", "dns_name_not_found"),
                Failed::DnsNoRecords => (S::BAD_GATEWAY, "dns_error", "dns_no_records"),
                Failed::DnsTimeout => (S::GATEWAY_TIMEOUT, "dns_timeout", "dns_timeout"),
                Failed::ConnectRefused => (S::BAD_GATEWAY, "connection_refused", "connect_refused"),
                Failed::ConnectUnreachable => (
                    S::BAD_GATEWAY,
                    "destination_ip_unroutable",
                    "connect_unreachable",
                ),
                Failed::Connect => (S::BAD_GATEWAY, "connection_terminated", "connect_failed"),
                Failed::ConnectTimeout => {
                    (S::GATEWAY_TIMEOUT, "connection_timeout", "connect_timeout")
                }
                Failed::ResponseTimeout => (
                    S::GATEWAY_TIMEOUT,
                    "http_response_timeout",
                    "response_timeout",
                ),
                Failed::ResponseIncomplete => (
                    S::BAD_GATEWAY,
                    "http_response_incomplete",
                    "response_incomplete",
                ),
                Failed::ResponseInvalid => {
                    (S::BAD_GATEWAY, "http_protocol_error", "response_invalid")
                }
                Failed::Full => (S::SERVICE_UNAVAILABLE, "connection_limit_reached", "full"),
            },
        };
        Answer {
            status,
            proxy_error,
            code,
        }
    }

    /// The stable code of this refusal.
    pub fn code(self) -> &'static str {
        self.answer().code
    }

    /// The `Proxy-Status` field's value (RFC 9209 §2).
    pub fn proxy_status(self) -> String {
        let Answer {
            proxy_error, code, ..
        } = self.answer();
        format!("{PSEUDONYM}; error={proxy_error}; details=\"{code}\"")
    }

    /// The JSON body: the code, and a sentence that says what to do.
    pub fn body(self, destination: Option<&Destination>) -> String {
        #[derive(Serialize)]
        struct Body {
            error: &'static str,
            message: String,
        }
        let body = Body {
            error: self.code(),
            message: self.message(destination),
        };
        // Two strings: serde_json has nothing to fail on.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// The reason in words, and the remedy where the policy is the reason.
    fn message(self, destination: Option<&Destination>) -> String {
        let Some(destination) = destination else {
            return self.to_string();
        };
        match self {
            Self::Denied(Denied::NotListed) => match Rule::for_destination(destination) {
                Ok(rule) => format!("{destination}: {self}; to allow it, add {rule} to the list"),
                Err(_) => format!("{destination}: {self}, and cannot be listed"),
            },
            Self::Malformed(_) | Self::Denied(_) | Self::Failed(_) => {
                format!("{destination}: {self}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn every_refusal() -> Vec<Refusal> {
        use {Denied as D, Failed as F, Malformed as M};
        let malformed = [
            M::Syntax,
            M::Version,
            M::Method,
            M::TargetForm,
            M::Target,
            M::Host,
            M::Port,
            M::Userinfo,
            M::Scheme,
            M::AbsoluteHttps,
            M::HostField,
            M::Framing,
            M::TargetTooLong,
            M::HeadTooLarge,
            M::HeadTimeout,
            M::HeadIncomplete,
        ];
        let denied = [
            D::NotListed,
            D::Address(Class::Loopback),
            D::Address(Class::Private),
            D::OwnAddress,
            D::Loop,
            D::MethodRefused,
        ];
        let failed = [
            F::Dns,
            F::DnsNameNotFound,
            F::DnsNoRecords,
            F::DnsTimeout,
            F::ConnectRefused,
            F::ConnectUnreachable,
            F::Connect,
            F::ConnectTimeout,
            F::ResponseTimeout,
            F::ResponseIncomplete,
            F::ResponseInvalid,
            F::Full,
        ];
        let malformed = malformed.into_iter().map(Refusal::from);
        let denied = denied.into_iter().map(Refusal::from);
        malformed
            .chain(denied)
            .chain(failed.into_iter().map(Refusal::from))
            .collect()
    }

    #[test]
    fn every_code_is_its_own_and_no_status_asks_for_credentials() {
        let mut codes = BTreeSet::new();
        for refusal in every_refusal() {
            let answer = refusal.answer();
            assert!(codes.insert(answer.code), "{} stands twice", answer.code);
            assert!(
                answer
                    .code
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            );
            assert!(answer.status.is_client_error() || answer.status.is_server_error());
            assert_ne!(answer.status, StatusCode::PROXY_AUTHENTICATION_REQUIRED);
        }
    }

    #[test]
    fn what_cannot_be_listed_is_not_advised() {
        for (asked, is_advised) in [
            ("api.example.com:443", true),
            ("10.0.0.1:443", true),
            ("localhost:443", false),
            ("169.254.169.254:80", false),
            ("[::1]:443", false),
            ("[::ffff:93.184.216.34]:443", false),
        ] {
            let destination = Destination::from_authority_form(asked).expect(asked);
            let body = Refusal::from(Denied::NotListed).body(Some(&destination));
            assert_eq!(
                body.contains(&format!("add {asked} to")),
                is_advised,
                "{body}"
            );
        }
    }

    #[test]
    fn what_the_client_is_told_stays_as_it_is() {
        let destination = Destination::from_authority_form("api.example.com:443").ok();
        let rows = every_refusal().into_iter().map(|refusal| {
            let named = matches!(refusal, Refusal::Denied(_) | Refusal::Failed(_));
            let body = refusal.body(destination.as_ref().filter(|_| named));
            format!(
                "{} {}\n    {body}\n",
                refusal.answer().status.as_u16(),
                refusal.proxy_status()
            )
        });
        let table: String = rows.collect();
        insta::assert_snapshot!("refusals", table);
    }
}
