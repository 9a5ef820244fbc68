//! What a proxy is started with: its policy and its limits.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::head::HeadLimits;
use crate::policy::Policy;

/// Everything that is bounded, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From a head's first byte to its last; also from `accept` to the first byte.
    pub head_read: Duration,
    /// From the end of a reply to the next head's first byte.
    pub keep_alive: Duration,
    /// How large a head may be: a request's, and a response's.
    pub head: HeadLimits,
    /// For one name, both families together.
    pub dns: Duration,
    /// For one connection, all addresses together.
    pub connect: Duration,
    /// From one connection attempt to the next (RFC 8305 §5).
    pub attempt_delay: Duration,
    /// From the last byte that moved to the head of a response.
    pub response: Duration,
    /// Without a byte either way, in a tunnel or in the content of a message; `None` is for ever.
    pub idle: Option<Duration>,
    /// Without a byte, in a tunnel whose one direction has ended.
    pub half_closed: Duration,
    /// Clients at a time.
    pub connections: usize,
    /// From being told to drain to cutting what is still open.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_read: Duration::from_secs(15),
            keep_alive: Duration::from_secs(75),
            head: HeadLimits {
                bytes: 64 * 1024,
                fields: 100,
            },
            dns: Duration::from_secs(5),
            connect: Duration::from_secs(10),
            attempt_delay: Duration::from_millis(250),
            response: Duration::from_mins(10),
            idle: Some(Duration::from_mins(15)),
            half_closed: Duration::from_mins(1),
            connections: 1024,
            grace: Duration::from_secs(5),
        }
    }
}

/// What a proxy is started with. No environment variable adds to it.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// What may be reached.
    pub policy: Policy,
    /// What is bounded.
    pub limits: Limits,
    /// The `server` field of every audit line.
    pub name: Option<String>,
    /// Whether the end of what was let through gets a line too.
    pub log_close: bool,
    /// The wall clock of the audit lines.
    pub clock: fn() -> SystemTime,
    /// Told what is no attempt: warnings and state, in words. Called where connections are served, so
    /// it must not wait.
    pub notice: fn(fmt::Arguments<'_>),
}

impl ProxyConfig {
    /// A policy with the default limits, no label, no close lines, and notices dropped.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            limits: Limits::default(),
            name: None,
            log_close: false,
            clock: SystemTime::now,
            notice: |_| {},
        }
    }
}
