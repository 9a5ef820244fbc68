//! What the sidecar says of each attempt: into the audit file line by line, and to the user where
//! there is something to do about it.
//!
//! The sidecar speaks with a program nobody has reviewed, so its lines are judged again: what is not
//! one of ours is written down as such, too many are counted, and no text in them is shown as it came.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::redact::Visible;
use super::spec::ServerName;
use crate::address::{self, Reach};
use crate::audit::{Cut, Reason};
use crate::destination::Port;
use crate::refusal::{Denied, Refusal};
use crate::rule::Rule;

/// The longest line the proxy writes: a host of 255 characters, each escaped with 12 bytes, and the
/// rest. A reader need not keep more of one: it is unreadable either way.
pub const MAX_LINE: usize = 4096;
/// How much of a line that is none of ours is kept.
const MAX_UNREADABLE: usize = 1024;
/// The most lines that go into the file in a [`WINDOW`]: a server that asks in a loop would fill the
/// disk with them.
const MAX_LINES: u32 = 1000;
/// See [`MAX_LINES`].
const WINDOW: Duration = Duration::from_mins(1);
/// The most hosts that are remembered, each of those refused and of those that failed.
const MAX_HOSTS: usize = 256;
/// The most hosts the summary names.
const MAX_SHOWN: usize = 20;
/// The most characters of a host that are shown: a name has no more (RFC 1035 §2.3.4).
const MAX_HOST: usize = 253;
/// The most characters of a code that are shown.
const MAX_CODE: usize = 40;

/// The lines of one launch, and what is to be said of them.
#[derive(Debug)]
pub struct Report {
    server: ServerName,
    is_configured: bool,
    flood: Flood,
    refused: BTreeMap<Refused, Tally>,
    /// Attempts that were refused and are in no tally.
    not_remembered: u64,
    failed: BTreeSet<String>,
    has_unreadable: bool,
}

/// What comes of a line, or of the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Lines for the audit file, without their line feeds: printable ASCII.
    pub keep: Vec<String>,
    /// What to write to standard error: one or several whole lines, without the last line feed.
    pub say: Option<String>,
}

impl Report {
    /// A report of a launch of `server`. One that is configured has a file where entries can be added;
    /// for another, they are options.
    pub fn new(server: &ServerName, is_configured: bool) -> Self {
        Self {
            server: server.clone(),
            is_configured,
            flood: Flood::default(),
            refused: BTreeMap::new(),
            not_remembered: 0,
            failed: BTreeSet::new(),
            has_unreadable: false,
        }
    }

    /// Takes a line of the proxy's, with or without its line feed, at a moment by both clocks.
    pub fn line(&mut self, line: &[u8], now: Instant, time: SystemTime) -> Outcome {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let (kept, say) = match Line::parse(line, &self.server) {
            Some((text, line)) => (text.to_owned(), self.judge(&line)),
            None => (self.unreadable(line, time), self.say_unreadable()),
        };
        let mut keep = Vec::new();
        if let Some(count) = self.flood.turn(now) {
            keep.push(self.left_out(count, time));
        }
        if self.flood.admits() {
            keep.push(kept);
        }
        Outcome { keep, say }
    }

    /// Sums up. `entries` are the allowlist's as they are written now.
    pub fn finish(&mut self, entries: &[String], time: SystemTime) -> Outcome {
        let left_out = self.flood.end();
        Outcome {
            keep: left_out
                .map(|count| self.left_out(count, time))
                .into_iter()
                .collect(),
            say: self.summary(entries),
        }
    }

    fn judge(&mut self, line: &Line) -> Option<String> {
        let (Some(allowed), Some(reason)) = (line.allowed, line.reason.as_deref()) else {
            return None;
        };
        let has_ended_early = [Cut::ClientGone, Cut::Idle, Cut::Shutdown]
            .iter()
            .any(|cut| Reason::Cut(*cut).code() == reason);
        if has_ended_early || allowed && reason == Reason::Listed.code() {
            return None;
        }
        if allowed {
            self.failure(line, reason)
        } else {
            self.refusal(line, reason)
        }
    }

    fn refusal(&mut self, line: &Line, reason: &str) -> Option<String> {
        let refused = Refused {
            what: line.what(),
            code: visible(reason, MAX_CODE),
        };
        if let Some(tally) = self.refused.get_mut(&refused) {
            tally.attempts = tally.attempts.saturating_add(1);
            return None;
        }
        if self.refused.len() >= MAX_HOSTS {
            self.not_remembered = self.not_remembered.saturating_add(1);
            return (self.not_remembered == 1).then(|| {
                format!("more than {MAX_HOSTS} hosts were refused; the others are counted")
            });
        }
        let entry = (reason == code(Denied::NotListed))
            .then(|| line.entry())
            .flatten();
        let say = format!("refused {}{}", refused.what, {
            self.advice(line, reason, entry.as_ref())
        });
        self.refused.insert(refused, Tally { attempts: 1, entry });
        Some(say)
    }

    /// The reason, and the remedy where there is one, to stand after what was refused.
    fn advice(&self, line: &Line, reason: &str, entry: Option<&Rule>) -> String {
        if let Some(entry) = entry {
            let remedy = self.remedy("network", "--allow", &entry.to_string());
            return format!(", which is not listed; to allow it, {remedy}");
        }
        if reason == code(Denied::NotListed) {
            return ", which is never opened".to_owned();
        }
        let denied = [Denied::OwnAddress, Denied::Loop, Denied::MethodRefused];
        if let Some(denied) = denied.into_iter().find(|denied| code(*denied) == reason) {
            return format!(": {denied}");
        }
        let mut classes = address::table().iter().map(|row| row.class);
        let Some(class) = classes.find(|class| class.code() == reason) else {
            return format!(": {}", words(reason));
        };
        let leads = format!(", which leads to {}", class.describe());
        match (class.reach(), line.address) {
            (Reach::Never, _) => format!("{leads}; that is never opened"),
            (Reach::Restricted | Reach::Public, None) => leads,
            (Reach::Restricted | Reach::Public, Some(address)) => {
                let network = IpNet::from(address.ip()).to_string();
                let remedy = self.remedy("allow_net", "--allow-net", &network);
                format!("{leads} ({}); to allow that, {remedy}", address.ip())
            }
        }
    }

    /// What to add where.
    fn remedy(&self, key: &str, option: &str, entry: &str) -> String {
        if self.is_configured {
            format!("add \"{entry}\" to `{key}` of server `{}`", self.server)
        } else {
            format!("add {option} {entry}")
        }
    }

    fn failure(&mut self, line: &Line, reason: &str) -> Option<String> {
        let host = line.host.as_deref().unwrap_or_default();
        if self.failed.len() >= MAX_HOSTS || !self.failed.insert(visible(host, MAX_HOST)) {
            return None;
        }
        let (what, why) = (line.what(), words(reason));
        Some(if host.is_empty() {
            format!("{what} failed: {why}")
        } else {
            format!("{what} is allowed, but failed: {why}")
        })
    }

    fn summary(&self, entries: &[String]) -> Option<String> {
        if self.refused.is_empty() {
            return None;
        }
        let mut refused: Vec<(&Refused, &Tally)> = self.refused.iter().collect();
        refused.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.attempts));
        let (shown, others) = refused
            .split_at_checked(MAX_SHOWN)
            .unwrap_or((&refused, &[]));

        let mut lines = vec![format!("refused, for server `{}`:", self.server)];
        lines.extend(shown.iter().map(|(refused, tally)| {
            let (what, why) = (&refused.what, words(&refused.code));
            format!("  {} x {what} ({why})", tally.attempts)
        }));
        match (others.len(), self.not_remembered) {
            (0, _) => {}
            (others, 0) => lines.push(format!("  and {others} more")),
            (others, attempts) => lines.push(format!(
                "  and {others} more, and {attempts} attempts at others still"
            )),
        }
        let mut wanted: Vec<String> = Vec::new();
        for rule in shown.iter().filter_map(|(_, tally)| tally.entry.as_ref()) {
            let entry = rule.to_string();
            if !wanted.contains(&entry) && !entries.contains(&entry) {
                wanted.push(entry);
            }
        }
        if !wanted.is_empty() {
            lines.push("to allow what is not listed, if the server should reach it:".into());
            lines.push(format!("  {}", self.all_remedies(entries, &wanted)));
        }
        Some(lines.join("\n"))
    }

    fn all_remedies(&self, entries: &[String], wanted: &[String]) -> String {
        if !self.is_configured {
            let options: Vec<String> = wanted.iter().map(|it| format!("--allow {it}")).collect();
            return options.join(" ");
        }
        let quoted: Vec<String> = entries
            .iter()
            .chain(wanted)
            .map(|entry| format!("\"{}\"", visible(entry, MAX_HOST + 8)))
            .collect();
        format!("network = [{}]", quoted.join(", "))
    }

    /// A line that is none of ours, in one of ours: cut, and escaped so that it can be read back.
    fn unreadable(&self, line: &[u8], time: SystemTime) -> String {
        let kept = line.get(..MAX_UNREADABLE);
        let mark = if kept.is_some_and(|kept| kept.len() < line.len()) {
            "..."
        } else {
            ""
        };
        let text = format!("{}{mark}", kept.unwrap_or(line).escape_ascii());
        self.own("unreadable", time, Some(&text), None)
    }

    fn say_unreadable(&mut self) -> Option<String> {
        (!mem::replace(&mut self.has_unreadable, true)).then(|| {
            "the proxy wrote a line that is no audit line; it is kept as \"unreadable\"".to_owned()
        })
    }

    fn left_out(&self, count: u64, time: SystemTime) -> String {
        self.own("left_out", time, None, Some(count))
    }

    fn own(&self, event: &str, time: SystemTime, line: Option<&str>, count: Option<u64>) -> String {
        let own = OwnLine {
            time: humantime::format_rfc3339_millis(time).to_string(),
            event,
            server: self.server.as_str(),
            line,
            count,
        };
        // Strings and a number: serde_json has nothing to fail on.
        serde_json::to_string(&own).unwrap_or_default()
    }
}

/// One kind of refusal of one destination.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Refused {
    what: String,
    code: String,
}

#[derive(Debug)]
struct Tally {
    attempts: u64,
    /// What would allow it.
    entry: Option<Rule>,
}

/// A line of the proxy's, as far as it matters here; see [`crate::audit`].
#[derive(Debug, Deserialize)]
struct Line {
    event: String,
    server: String,
    host: Option<String>,
    port: Option<u16>,
    allowed: Option<bool>,
    reason: Option<String>,
    address: Option<SocketAddr>,
}

impl Line {
    /// Parses a line that the proxy of `server` could have written; the text is the line itself.
    fn parse<'l>(line: &'l [u8], server: &ServerName) -> Option<(&'l str, Self)> {
        let is_printable = line.iter().all(|byte| (b' '..=b'~').contains(byte));
        if !is_printable || line.len() > MAX_LINE || line.first() != Some(&b'{') {
            return None;
        }
        let text = str::from_utf8(line).ok()?;
        let line: Self = serde_json::from_str(text).ok()?;
        let is_whole = match line.event.as_str() {
            "egress" => line.allowed.is_some() && line.reason.is_some(),
            "close" => line.allowed.is_none(),
            _ => false,
        };
        // Launches of other servers may write to the same file.
        (is_whole && line.server == server.as_str()).then_some((text, line))
    }

    /// The destination, in words of ours.
    fn what(&self) -> String {
        let host = self.host.as_deref().unwrap_or_default();
        match (host, self.port) {
            ("", _) => "a request".to_owned(),
            (host, None) => visible(host, MAX_HOST),
            (host, Some(port)) => format!("{}:{port}", visible(&in_brackets(host), MAX_HOST)),
        }
    }

    /// The entry that would allow it, where there can be one.
    fn entry(&self) -> Option<Rule> {
        let host = in_brackets(self.host.as_deref()?);
        let port = self.port?;
        let is_default = [Port::HTTP, Port::HTTPS]
            .iter()
            .any(|default| default.number() == port);
        let entry = if is_default {
            host
        } else {
            format!("{host}:{port}")
        };
        Rule::parse(&entry).ok()
    }
}

fn in_brackets(host: &str) -> String {
    if host.parse::<Ipv6Addr>().is_ok() {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

fn visible(text: &str, most: usize) -> String {
    Visible { text, most }.to_string()
}

/// A code as a person would say it.
fn words(code: &str) -> String {
    visible(code, MAX_CODE).replace('_', " ")
}

fn code(denied: Denied) -> &'static str {
    Refusal::from(denied).code()
}

/// A line of launch's own.
#[derive(Serialize)]
struct OwnLine<'a> {
    time: String,
    event: &'a str,
    server: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

/// Counts lines in windows, one after the other; a window begins with a line.
#[derive(Debug, Default)]
struct Flood {
    began: Option<Instant>,
    admitted: u32,
    left_out: u64,
}

impl Flood {
    /// Begins another window where one has ended; what was left out of that one.
    fn turn(&mut self, now: Instant) -> Option<u64> {
        let is_in = |began| now.saturating_duration_since(began) < WINDOW;
        if self.began.is_some_and(is_in) {
            return None;
        }
        self.began = Some(now);
        self.admitted = 0;
        self.end()
    }

    fn admits(&mut self) -> bool {
        if self.admitted < MAX_LINES {
            self.admitted += 1;
            return true;
        }
        self.left_out = self.left_out.saturating_add(1);
        false
    }

    fn end(&mut self) -> Option<u64> {
        Some(mem::take(&mut self.left_out)).filter(|count| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;
    use crate::address::Class;
    use crate::audit::{Close, Ended, Record};
    use crate::refusal::{Failed, Malformed};

    const TIME: SystemTime = UNIX_EPOCH;

    fn report(is_configured: bool) -> Report {
        let server = ServerName::parse("notion").expect("a name");
        Report::new(&server, is_configured)
    }

    fn record(host: &str, port: u16, refusal: impl Into<Refusal>) -> Record<'_> {
        let refusal = refusal.into();
        Record {
            time: TIME,
            server: Some("notion"),
            id: 1,
            method: Some("CONNECT"),
            host: Some(host),
            port: Some(port),
            allowed: matches!(refusal, Refusal::Failed(_)),
            reason: Reason::Refused(refusal),
            address: None,
            elapsed: Duration::ZERO,
        }
    }

    /// What is said of a record; its line is kept as it is.
    fn said(report: &mut Report, record: &Record<'_>) -> Option<String> {
        let line = record.to_line();
        let outcome = report.line(line.as_bytes(), Instant::now(), TIME);
        assert_eq!(outcome.keep, [line.trim_end()]);
        outcome.say
    }

    #[test]
    fn a_refusal_is_said_once_with_what_to_add() {
        for (is_configured, host, port, expected) in [
            (
                true,
                "api.foo.example",
                443,
                "api.foo.example:443, which is not listed; to allow it, add \"api.foo.example\" to \
                 `network` of server `notion`",
            ),
            (
                false,
                "api.foo.example",
                80,
                "api.foo.example:80, which is not listed; to allow it, add --allow api.foo.example",
            ),
            (
                false,
                "api.foo.example",
                8443,
                "api.foo.example:8443, which is not listed; to allow it, add --allow \
                 api.foo.example:8443",
            ),
            (
                false,
                "2606:4700::1",
                443,
                "[2606:4700::1]:443, which is not listed; to allow it, add --allow [2606:4700::1]",
            ),
            (
                false,
                "2606:4700::1",
                99,
                "[2606:4700::1]:99, which is not listed; to allow it, add --allow [2606:4700::1]:99",
            ),
            (
                false,
                "localhost",
                443,
                "localhost:443, which is never opened",
            ),
            (
                true,
                "127.0.0.1",
                443,
                "127.0.0.1:443, which is never opened",
            ),
        ] {
            let mut report = report(is_configured);
            let record = record(host, port, Denied::NotListed);
            let say = said(&mut report, &record).expect("said");
            assert_eq!(say, format!("refused {expected}"));
            assert_eq!(said(&mut report, &record), None, "once");
        }
    }

    #[test]
    fn every_reason_has_its_words() {
        let it = &mut report(true);
        let mut say = |record: Record<'_>| said(it, &record);
        let address = Some(SocketAddr::from(([10, 0, 0, 5], 5432)));
        let private = record("db.example", 5432, Denied::Address(Class::Private));
        insta::assert_snapshot!(
            [
                say(Record { address, ..private.clone() }),
                say(Record { port: Some(1), ..private }),
                say(record("a.example", 443, Denied::Address(Class::LinkLocal))),
                say(record("10.231.0.2", 3128, Denied::OwnAddress)),
                say(record("a.example", 80, Denied::Loop)),
                say(record("a.example", 80, Denied::MethodRefused)),
                say(record("a.example", 443, Malformed::AbsoluteHttps)),
                say(Record { port: None, ..record("a\u{1b}[2J\u{202e}", 1, Malformed::Host) }),
                say(Record { host: None, port: None, ..record("", 1, Malformed::Syntax) }),
                say(record("b.example", 443, Failed::DnsNameNotFound)),
                say(record("b.example", 80, Failed::ConnectTimeout)),
                say(Record { host: None, port: None, ..record("", 1, Failed::Full) }),
                say(Record { reason: Reason::Listed, allowed: true, ..record("b.example", 443, Failed::Dns) }),
                say(Record { reason: Reason::Cut(Cut::ClientGone), ..record("b.example", 443, Failed::Dns) }),
                say(Record { reason: Reason::Cut(Cut::Shutdown), ..record("c.example", 443, Denied::NotListed) }),
            ]
            .map(|say| say.unwrap_or_else(|| "-".to_owned()))
            .join("\n"),
            @r#"
        refused db.example:5432, which leads to a private address (10.0.0.5); to allow that, add "10.0.0.5/32" to `allow_net` of server `notion`
        refused db.example:1, which leads to a private address
        refused a.example:443, which leads to a link-local address; that is never opened
        refused 10.231.0.2:3128: this destination is the proxy itself
        refused a.example:80: the request has passed through this proxy before
        refused a.example:80: TRACE is not forwarded
        refused a.example:443: absolute https
        refused a\u{1b}[2J\u{202e}: bad host
        refused a request: bad request
        b.example:443 is allowed, but failed: dns name not found
        -
        a request failed: full
        -
        -
        -
        "#);
    }

    #[test]
    fn every_class_is_in_the_table_that_is_searched() {
        let codes: BTreeSet<&str> = address::table()
            .iter()
            .map(|row| row.class.code())
            .collect();
        for class in [
            Class::Loopback,
            Class::Private,
            Class::Translated,
            Class::Transition,
        ] {
            assert!(codes.contains(class.code()), "{class:?}");
        }
    }

    #[test]
    fn the_summary_counts_and_says_what_would_allow_it() {
        let entries = ["api.notion.com".to_owned(), "c.example".to_owned()];
        let run = |is_configured| {
            let mut report = report(is_configured);
            for (host, port, count) in [
                ("a.example", 443, 1),
                ("b.example", 8443, 3),
                ("a.example", 80, 2),
                ("127.0.0.1", 80, 1),
            ] {
                for _ in 0..count {
                    said(&mut report, &record(host, port, Denied::NotListed));
                }
            }
            said(
                &mut report,
                &record("d.example", 443, Denied::Address(Class::Private)),
            );
            said(&mut report, &record("e.example", 443, Failed::Dns));
            report.finish(&entries, TIME)
        };
        let configured = run(true);
        assert!(configured.keep.is_empty());
        insta::assert_snapshot!(configured.say.expect("said"), @r#"
        refused, for server `notion`:
          3 x b.example:8443 (not listed)
          2 x a.example:80 (not listed)
          1 x 127.0.0.1:80 (not listed)
          1 x a.example:443 (not listed)
          1 x d.example:443 (private address)
        to allow what is not listed, if the server should reach it:
          network = ["api.notion.com", "c.example", "b.example:8443", "a.example"]
        "#);
        let say = run(false).say.expect("said");
        assert_eq!(
            say.lines().last(),
            Some("  --allow b.example:8443 --allow a.example")
        );
        assert_eq!(report(true).finish(&entries, TIME), Outcome::default());
    }

    #[test]
    fn hosts_beyond_those_remembered_are_counted_together() {
        let mut report = report(true);
        let mut says = 0;
        for number in 0..1000 {
            let host = format!("h{number}.example");
            let line = record(&host, 443, Denied::NotListed).to_line();
            let outcome = report.line(line.as_bytes(), Instant::now(), TIME);
            says += usize::from(outcome.say.is_some());
            let line = record(&host, 443, Failed::Dns).to_line();
            report.line(line.as_bytes(), Instant::now(), TIME);
        }
        assert_eq!(says, MAX_HOSTS + 1);
        assert_eq!(
            (report.refused.len(), report.failed.len()),
            (MAX_HOSTS, MAX_HOSTS)
        );
        let ending = report.finish(&[], TIME);
        let say = ending.say.expect("said");
        assert_eq!(say.lines().count(), 1 + MAX_SHOWN + 1 + 2);
        assert!(
            say.contains("and 236 more, and 744 attempts at others still"),
            "{say}"
        );
    }

    #[test]
    fn a_line_that_is_none_of_ours_is_kept_as_such() {
        let good = record("a.example", 443, Denied::NotListed).to_line();
        let of_another = good.replace("notion", "other");
        let long = "x".repeat(5000);
        for line in [
            "",
            "text",
            "{}",
            "[\"egress\",\"notion\"]",
            "{\"event\":\"egress\",\"server\":\"notion\"}",
            "{\"event\":\"left_out\",\"server\":\"notion\",\"count\":1}",
            "{\"event\":\"close\",\"server\":\"notion\",\"x\":\"\u{9b}\"}",
            &of_another,
            good.trim_end().strip_suffix('}').expect("a brace"),
            &long,
        ] {
            let mut report = report(true);
            let outcome = report.line(line.as_bytes(), Instant::now(), TIME);
            let kept = outcome.keep.first().expect("kept");
            let json: serde_json::Value = serde_json::from_str(kept).expect("JSON");
            assert_eq!(json["event"], "unreadable", "{line}");
            assert_eq!(json["server"], "notion");
            assert!(kept.len() < 2 * MAX_UNREADABLE + 128);
            assert!(outcome.say.expect("said").contains("no audit line"));
            let again = report.line(line.as_bytes(), Instant::now(), TIME);
            assert_eq!(again.say, None, "once");
        }
        let outcome = report(true).line(b"a\xff\x1b\"\\", Instant::now(), TIME);
        assert_eq!(
            outcome.keep,
            [
                r#"{"time":"1970-01-01T00:00:00.000Z","event":"unreadable","server":"notion","line":"a\\xff\\x1b\\\"\\\\"}"#
            ]
        );
    }

    #[test]
    fn a_close_line_is_kept_and_nothing_is_said() {
        let close = Close {
            time: TIME,
            server: Some("notion"),
            id: 1,
            to_origin: 1,
            from_origin: 2,
            ended: Ended::Complete,
            elapsed: Duration::ZERO,
        };
        let line = close.to_line();
        let outcome = report(true).line(line.as_bytes(), Instant::now(), TIME);
        assert_eq!(outcome.keep, [line.trim_end()]);
        assert_eq!(outcome.say, None);
    }

    #[test]
    fn a_flood_is_counted() {
        let mut report = report(true);
        let start = Instant::now();
        let line = record("a.example", 443, Denied::NotListed).to_line();
        let mut kept = 0;
        for _ in 0..1500 {
            kept += report.line(line.as_bytes(), start, TIME).keep.len();
        }
        assert_eq!(kept, 1000);
        let next = report.line(line.as_bytes(), start + WINDOW, TIME);
        let left_out = r#"{"time":"1970-01-01T00:00:00.000Z","event":"left_out","server":"notion","count":500}"#;
        assert_eq!(next.keep, [left_out, line.trim_end()]);
        for _ in 0..1004 {
            report.line(line.as_bytes(), start + WINDOW, TIME);
        }
        let ending = report.finish(&[], TIME);
        assert_eq!(ending.keep, [left_out.replace("500", "5")]);
        assert!(ending.say.expect("said").contains("2505 x a.example:443"));
    }

    proptest! {
        #[test]
        fn whatever_the_proxy_writes_every_line_is_kept_or_counted_and_printable(
            lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20),
        ) {
            let mut report = report(true);
            for line in &lines {
                let outcome = report.line(line, Instant::now(), TIME);
                prop_assert_eq!(outcome.keep.len(), 1);
                for kept in outcome.keep {
                    prop_assert!(kept.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
                    prop_assert!(serde_json::from_str::<serde_json::Value>(&kept).is_ok());
                }
            }
        }

        #[test]
        fn whatever_a_host_is_called_what_is_said_is_visible_and_an_entry_is_one(
            host in "\\PC{0,20}|[\u{0}-\u{a0}\u{202e}]{0,300}|[a-z.]{1,12}",
            port in any::<u16>(),
            code in "not_listed|private_address|bad_host|[\u{0}-\u{ff}]{0,60}",
        ) {
            let mut report = report(false);
            let line = serde_json::json!({
                "event": "egress", "server": "notion", "host": host, "port": port,
                "allowed": false, "reason": code,
            });
            // As the proxy's own encoder would have it.
            let line: String = line
                .to_string()
                .encode_utf16()
                .map(|unit| match u8::try_from(unit) {
                    Ok(byte @ b' '..=b'~') => char::from(byte).to_string(),
                    Ok(_) | Err(_) => format!("\\u{unit:04x}"),
                })
                .collect();
            report.line(line.as_bytes(), Instant::now(), TIME);
            let say = report.finish(&[], TIME).say.unwrap_or_default();
            for line in say.lines() {
                prop_assert!(line.starts_with(""), "{say:?}");
                let shown = Visible { text: line, most: usize::MAX }.to_string();
                prop_assert_eq!(&shown, line);
            }
            let mut words = say.split(' ');
            if words.any(|word| word == "--allow") {
                prop_assert!(Rule::parse(words.next().unwrap_or_default()).is_ok(), "{say:?}");
            }
        }
    }
}
