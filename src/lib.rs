//! strait: an untrusted program reaches exactly the hosts it was given, and nothing else; every
//! attempt leaves a line.
//!
//! This crate is the core of that, and what is built on it: a filtering forward proxy that is meant to
//! be the only way out of a program nobody has reviewed (CONNECT tunnels and plain-HTTP forwarding,
//! to an exact `host:port` allowlist, with one JSON line per attempt), and a launcher that puts such a
//! program, an MCP server in a container, on a network where there is no other way.
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
//! # The life of a launch
//!
//! ```text
//! spec        launch/spec.rs, config.rs   a bad value is refused before anything exists
//! survey      launch/survey.rs            the runtime, the images, our own program: asked at once
//! plan        launch/plan.rs              every command line, and what takes its effect back; pure
//! reaper      launch/reaper.rs            a process that cleans up should this one be killed
//! networks    launch/exec.rs              then the containers, at once; the proxy listens
//! supervise   launch/supervise.rs         standard streams joined; who ends first, and what follows
//! clean up    launch/clean_up.rs          collects every failure; a sweep finds what is left
//! ```
//!
//! `launch.rs` is that list as a function; `launch/doctor.rs` makes the same sandbox around `probe.rs`, which
//! looks from inside. `launch` and `proxy` do not know each other: they meet as two
//! processes, by a command line and by the audit's lines.
//!
//! # What it defends
//!
//! Numbered, and each with the tests that show it, in `tests/it/`:
//!
//! 1. Nothing is dialled that is not listed, and nothing is resolved before it is permitted:
//!    `decisions::a_real_proxy_answers_and_records_every_case_as_the_table_says`.
//! 2. What is dialled is what was checked, and all of a name's addresses were: the same, with
//!    `limits::a_name_is_resolved_once_for_each_attempt` and the property tests of [`policy`].
//! 3. One parse: what is matched, resolved, dialled and sent as Host is one canonical destination:
//!    `decisions::the_core_decides_every_case_as_the_table_says`,
//!    `forwarding::the_origin_sees_its_own_name_and_no_field_of_our_hop`.
//! 4. Exactly one line per attempt, whatever happens to it:
//!    `audit::a_client_that_goes_away_leaves_its_line`,
//!    `audit::a_shutdown_leaves_a_line_for_what_it_cuts`,
//!    `audit::a_fault_in_one_connection_leaves_its_line_and_the_others_alone`.
//! 5. No traffic without a record: `audit::nothing_passes_while_the_log_is_blocked`,
//!    `audit::a_broken_log_stops_the_proxy`.
//! 6. A refused or broken message never becomes another request, nor looks complete:
//!    `tunnel::a_refused_connect_is_closed_with_its_early_bytes_unread_as_a_request`,
//!    `forwarding::a_truncated_response_never_ends_cleanly`,
//!    `forwarding::a_truncated_request_body_is_never_completed_for_the_origin`.
//! 7. Everything is bounded and everything ends: `limits::a_slow_head_is_a_408_and_one_line`,
//!    `limits::one_client_too_many_is_a_503_and_room_is_made_again`,
//!    `program::the_end_of_standard_input_ends_it_at_once`.
//!
//! 8. A launched server has no other way out, and nothing of it is left:
//!    `plan::tests::any_plan_keeps_its_promises`, `launch::a_launch_that_is_killed_leaves_nothing`,
//!    `launch::whatever_step_fails_it_is_named_and_nothing_is_left`.
//!
//! What it does not defend against stands in `SECURITY.md`.
//!
//! # Features
//!
//! Without features this is the core alone, without a runtime in its dependencies. `proxy` adds
//! [`proxy::Proxy`], `launch` adds [`launch::Launch`], and `cli` what the program needs; all three are the
//! default.

pub mod address;
pub mod audit;
pub mod body;
pub mod destination;
pub mod document;
pub mod forwarding;
pub mod head;
#[cfg(feature = "launch")]
pub mod launch;
#[cfg(feature = "proxy")]
pub mod lifeline;
pub mod policy;
#[cfg(feature = "launch")]
pub mod probe;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod refusal;
pub mod rule;
#[cfg(any(feature = "cli", feature = "launch"))]
pub mod stdio;
