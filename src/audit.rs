//! The audit line: one JSON object per attempt, fields in a fixed order, no I/O.
//!
//! A host or method is the client's bytes, so they pass the encoder and nothing else: control
//! characters, quotes and everything outside ASCII are escaped, and what is too long is cut with a
//! mark. Header fields, paths, bodies and credentials are never here.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::ser::{CharEscape, Formatter};

use crate::refusal::Refusal;

/// The most characters of a host that are kept: one longer than any DNS name is malformed anyway.
const MAX_HOST: usize = 255;
/// The most characters of a method that are kept.
const MAX_METHOD: usize = 32;
/// What stands at the end of a field that was cut.
const CUT: &str = "...";

/// One attempt and what came of it.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// When the attempt was decided.
    pub time: SystemTime,
    /// The `--name` label.
    pub server: Option<&'a str>,
    /// Counts attempts from 1.
    pub id: u64,
    /// The request's method, where one could be made out.
    pub method: Option<&'a str>,
    /// The canonical host; for a malformed target, what stood in its place.
    pub host: Option<&'a str>,
    /// The port, where one could be made out.
    pub port: Option<u16>,
    /// The policy's word; whether it could be done is in `reason`.
    pub allowed: bool,
    /// Why.
    pub reason: Reason,
    /// The address dialled, or the one that was refused or failed.
    pub address: Option<SocketAddr>,
    /// From the complete request head to this record.
    pub elapsed: Duration,
}

/// The `reason` of a [`Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A rule grants it, and it was done.
    Listed,
    /// It was refused, and the client was told.
    Refused(Refusal),
    /// It ended before it was decided, with no answer.
    Cut(Cut),
}

/// Why an attempt ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The client closed its connection.
    ClientGone,
    /// No byte crossed for too long.
    Idle,
    /// The proxy was told to stop.
    Shutdown,
    /// The proxy failed on it.
    Internal,
}

impl Reason {
    /// The stable word in the audit line.
    pub fn code(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Refused(refusal) => refusal.code(),
            Self::Cut(Cut::ClientGone) => "client_gone",
            Self::Cut(Cut::Idle) => "idle",
            Self::Cut(Cut::Shutdown) => "shutdown",
            Self::Cut(Cut::Internal) => "internal_error",
        }
    }
}

impl Record<'_> {
    /// The line, with its line feed.
    pub fn to_line(&self) -> String {
        to_line(self)
    }
}

impl Serialize for Record<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("time", &timestamp(self.time))?;
        line.serialize_entry("event", "egress")?;
        if let Some(server) = self.server {
            line.serialize_entry("server", server)?;
        }
        line.serialize_entry("id", &self.id)?;
        if let Some(method) = self.method {
            line.serialize_entry("method", &shorten(method, MAX_METHOD))?;
        }
        if let Some(host) = self.host {
            line.serialize_entry("host", &shorten(host, MAX_HOST))?;
        }
        if let Some(port) = self.port {
            line.serialize_entry("port", &port)?;
        }
        line.serialize_entry("allowed", &self.allowed)?;
        line.serialize_entry("reason", self.reason.code())?;
        if let Some(address) = self.address {
            line.serialize_entry("address", &address)?;
        }
        line.serialize_entry("ms", &milliseconds(self.elapsed))?;
        line.end()
    }
}

/// The end of an attempt that was let through, with `--log-close`.
#[derive(Clone, Debug)]
pub struct Close<'a> {
    /// When it ended.
    pub time: SystemTime,
    /// The `--name` label.
    pub server: Option<&'a str>,
    /// The `id` of the attempt's record.
    pub id: u64,
    /// Bytes of content that went to the origin.
    pub to_origin: u64,
    /// Bytes of content that came from the origin.
    pub from_origin: u64,
    /// Why it ended.
    pub ended: Ended,
    /// From the record to this.
    pub elapsed: Duration,
}

/// Why a tunnel or an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides had said everything.
    Complete,
    /// The client broke off.
    ClientGone,
    /// The origin broke off.
    OriginGone,
    /// No byte crossed for too long.
    Idle,
    /// The proxy was told to stop.
    Shutdown,
    /// The origin's answer could not be passed on; the client was told why.
    Refused(Refusal),
    /// The proxy failed on it.
    Internal,
}

impl Ended {
    /// The stable word in the close line.
    pub fn code(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientGone => "client_gone",
            Self::OriginGone => "origin_gone",
            Self::Idle => "idle",
            Self::Shutdown => "shutdown",
            Self::Refused(refusal) => refusal.code(),
            Self::Internal => "internal_error",
        }
    }
}

impl Close<'_> {
    /// The line, with its line feed.
    pub fn to_line(&self) -> String {
        to_line(self)
    }
}

impl Serialize for Close<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("time", &timestamp(self.time))?;
        line.serialize_entry("event", "close")?;
        if let Some(server) = self.server {
            line.serialize_entry("server", server)?;
        }
        line.serialize_entry("id", &self.id)?;
        line.serialize_entry("to_origin", &self.to_origin)?;
        line.serialize_entry("from_origin", &self.from_origin)?;
        line.serialize_entry("ended", self.ended.code())?;
        line.serialize_entry("ms", &milliseconds(self.elapsed))?;
        line.end()
    }
}

fn to_line(entry: &impl Serialize) -> String {
    let mut line = Vec::with_capacity(256);
    let mut serializer = serde_json::Serializer::with_formatter(&mut line, Ascii);
    // A Vec takes every write, and the maps above have string keys: nothing here can fail. Should
    // it ever, an empty object is still one line for one attempt.
    if entry.serialize(&mut serializer).is_err() {
        line = b"{}".to_vec();
    }
    line.push(b'\n');
    String::from_utf8(line).unwrap_or_else(|_| "{}\n".to_owned())
}

fn timestamp(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

fn milliseconds(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => Cow::Owned(format!("{}{CUT}", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}

/// Compact JSON with everything outside printable ASCII escaped: an audit line is read in
/// terminals, where DEL, C1 controls and bidirectional marks are not harmless.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        for character in fragment.chars() {
            if matches!(character, ' '..='~') {
                writer.write_all(&[u8::try_from(character).unwrap_or(b'?')])?;
            } else {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }

    fn write_char_escape<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        serde_json::ser::CompactFormatter.write_char_escape(writer, escape)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::refusal::{Denied, Failed, Malformed};

    fn record(host: &str) -> Record<'_> {
        Record {
            time: UNIX_EPOCH + Duration::from_millis(1_796_077_200_123),
            server: Some("notion"),
            id: 17,
            method: Some("CONNECT"),
            host: Some(host),
            port: Some(443),
            allowed: true,
            reason: Reason::Listed,
            address: Some(SocketAddr::from(([208, 103, 161, 1], 443))),
            elapsed: Duration::from_micros(12_900),
        }
    }

    #[test]
    fn a_line_has_the_fields_in_their_order() {
        insta::assert_snapshot!(record("api.notion.com").to_line(), @r#"{"time":"2026-11-30T22:20:00.123Z","event":"egress","server":"notion","id":17,"method":"CONNECT","host":"api.notion.com","port":443,"allowed":true,"reason":"listed","address":"208.103.161.1:443","ms":12}"#);
        let bare = Record {
            server: None,
            method: None,
            host: None,
            port: None,
            allowed: false,
            reason: Reason::Refused(Malformed::Syntax.into()),
            address: None,
            ..record("")
        };
        insta::assert_snapshot!(bare.to_line(), @r#"{"time":"2026-11-30T22:20:00.123Z","event":"egress","id":17,"allowed":false,"reason":"bad_request","ms":12}"#);
        let close = Close {
            time: UNIX_EPOCH,
            server: None,
            id: 3,
            to_origin: 1,
            from_origin: u64::MAX,
            ended: Ended::Refused(Failed::ResponseTimeout.into()),
            elapsed: Duration::ZERO,
        };
        insta::assert_snapshot!(close.to_line(), @r#"{"time":"1970-01-01T00:00:00.000Z","event":"close","id":3,"to_origin":1,"from_origin":18446744073709551615,"ended":"response_timeout","ms":0}"#);
    }

    #[test]
    fn whatever_a_host_holds_the_line_is_one_line_of_printable_json() {
        let long = "a".repeat(60 * 1024);
        for host in [
            "a\"b\\c",
            "a\x1b[31m",
            "a\u{2028}b",
            "a\r\nb",
            "a\0b",
            "a\u{7f}\u{9b}b",
            "\u{202e}a",
            "\u{1f980}",
            "\u{fffd}",
            &long,
        ] {
            let line = record(host).to_line();
            assert!(
                line.ends_with("}\n") && line.matches('\n').count() == 1,
                "M1: {line}"
            );
            assert!(
                line.trim_end()
                    .bytes()
                    .all(|byte| (b' '..=b'~').contains(&byte)),
                "M1: {line}"
            );
            let parsed: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            let shown = parsed["host"].as_str().expect("a string");
            if host.len() > MAX_HOST {
                assert_eq!(shown, format!("{}...", "a".repeat(MAX_HOST)), "M2");
            } else {
                assert_eq!(shown, host);
            }
        }
    }

    #[test]
    fn reasons_have_stable_words() {
        let denied = Reason::Refused(Refusal::Denied(Denied::NotListed));
        assert_eq!(denied.code(), "not_listed");
        assert_eq!(Reason::Cut(Cut::ClientGone).code(), "client_gone");
        assert_eq!(Reason::Cut(Cut::Shutdown).code(), "shutdown");
        assert_eq!(Reason::Cut(Cut::Internal).code(), "internal_error");
    }
}
