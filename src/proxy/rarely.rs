//! What a client can bring about as often as it likes, and is worth saying, but not as often.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// How long one thing is not said again.
const QUIET: Duration = Duration::from_mins(1);

/// When one thing was said, and how often it has been left out since.
#[derive(Debug, Default)]
pub(super) struct Rarely {
    said: Option<Instant>,
    left_out: u64,
}

/// How often it was left out before it is said now; empty when it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " (and {count} times since this was last said)"),
        }
    }
}

impl Rarely {
    /// It has happened: something to add to its notice when it is to be said.
    pub(super) fn happened(&mut self, now: Instant) -> Option<LeftOut> {
        let is_said = self
            .said
            .is_some_and(|said| now.saturating_duration_since(said) < QUIET);
        if is_said {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.said = Some(now);
        Some(LeftOut(std::mem::take(&mut self.left_out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_once_and_then_once_a_minute_with_what_was_left_out() {
        let mut rarely = Rarely::default();
        let start = Instant::now();
        let mut said = Vec::new();
        // Ten a second, for two minutes and a second.
        for tenth in 0..1210 {
            let now = start + Duration::from_millis(100) * tenth;
            if let Some(left_out) = rarely.happened(now) {
                said.push((tenth, left_out.to_string()));
            }
        }
        let count = " (and 599 times since this was last said)";
        let expected = [(0, ""), (600, count), (1200, count)];
        assert_eq!(said, expected.map(|(at, text)| (at, text.to_owned())));
    }
}
