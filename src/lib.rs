//! strait: an untrusted program reaches exactly the hosts it was given, and nothing else; every
//! attempt leaves a line.
//!
//! This crate is the core of that and the filtering forward proxy built on it. The proxy is meant to
//! be the only way out of a program nobody has reviewed: CONNECT tunnels and plain-HTTP forwarding,
//! to an exact `host:port` allowlist, with one JSON line per attempt.
//!
//! # Decide with values, act at the edge
//!
//! The core is synchronous and total: bytes and facts in, a decision out. The proxy does the I/O and
//! may act only on what the core handed it: each type on a request's path can be made only by the
//! step before it, so an address that was not checked cannot be dialled, because it does not compile
//! ([`policy`] shows it).
//!
//! # The life of a request
//!
//! ```text
//! accept            proxy.rs              a place among the connections, before anything is spent
//! read the head     proxy/screen.rs       head.rs parses it strictly: one request or a refusal
//! authorise         policy.rs             Policy::permit(Destination)  -> Permit
//! resolve           proxy/resolve.rs      a name, once, fully qualified -> addresses
//! check addresses   policy.rs             Permit::check(addresses)     -> Dialable
//! dial              proxy/dial.rs         exactly those                -> a connection
//! record            audit.rs, journal.rs  one line, and nothing moves before it is written
//! answer            proxy/exchange.rs     200, the origin's response, or the refusal
//! relay             proxy/tunnel.rs, forward.rs
//! ```
//!
//! `proxy/exchange.rs` is that list as a function; start there.
//!
//! # What it defends
//!
//! Numbered, and each with the test that shows it (`tests/it/` unless another place is named):
//!
//! 1. Nothing is dialled that is not listed, and nothing is resolved before it is permitted:
//!    `refusals::nothing_is_dialled_or_resolved_for_a_refusal`.
//! 2. What is dialled is what was checked, and all of a name's addresses were:
//!    `addresses::*`, the property tests of [`policy`], the fuzz target `decide`.
//! 3. One parse: what is matched, resolved, dialled and sent as Host is one canonical destination:
//!    the tests of [`head`], [`destination`] and [`forwarding`].
//! 4. Exactly one line per attempt, whatever happens to it: `audit::*`.
//! 5. No traffic without a record: `audit::nothing_passes_while_the_log_is_blocked`,
//!    `audit::a_broken_log_stops_the_proxy`.
//! 6. A refused or broken message never becomes another request, nor looks complete:
//!    `forwarding::*`, `smuggling::*`.
//! 7. Everything ends: `limits::*`, `lifecycle::*`.
//!
//! What it does not defend against stands in `SECURITY.md`.
//!
//! # Features
//!
//! Without features this is the core alone, without a runtime in its dependencies. `proxy` adds
//! [`proxy::Proxy`]; `cli`, the default, adds what the program needs.

pub mod address;
pub mod audit;
pub mod body;
pub mod destination;
pub mod document;
pub mod forwarding;
pub mod head;
#[cfg(feature = "proxy")]
pub mod lifeline;
pub mod policy;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod refusal;
pub mod rule;
