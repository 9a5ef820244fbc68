//! The server's standard error, on its way to a person's terminal or log: without the secrets the
//! server was given, without what would steer a terminal, and not more of it than can be read.
//!
//! It stops accidents, not malice: a server that wants to give a secret away can spell it in another
//! way. Nothing here waits for a line to end; what is held back is only the beginning of a secret, of
//! a character, or of `\r\n`.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::mem;
use std::time::{Duration, Instant};

use super::plan::is_invisible;
use super::spec::EnvName;

/// The shortest value that is replaced. A shorter one (`no`, `1`, `dev`) is in half of all lines, and
/// these would say its value by what is missing from them.
const MIN_SECRET: usize = 4;
/// The most bytes that are passed on in any [`WINDOW`]: some ten thousand lines, more than a person
/// reads; many clients keep all of it, in memory or in a log file.
const CAP: usize = 1 << 20;
/// See [`CAP`].
const WINDOW: Duration = Duration::from_mins(1);
/// How exactly the bytes of a window are dated.
const STEP: Duration = Duration::from_secs(1);
/// How much of [`CAP`] is kept for what is said here: the mark of a broken line and a notice.
const RESERVE: usize = 256;
/// How much of [`CAP`] must be free before what was left out is ended: or else a steady flood would be
/// cut into pieces, each with its notice.
const RESUME: usize = CAP / 2;
/// The longest line: many clients read lines, and Python's asyncio, for one, fails on those over
/// 64 KiB.
const MAX_LINE: usize = 16 << 10;
/// What stands where a line was broken.
const BROKEN: &str = " [strait: a long line is broken here]";

/// Replaces, escapes and bounds a stream of bytes that come in pieces of any size.
///
/// It holds secrets, and has no `Debug`.
pub struct Redactor {
    secrets: Secrets,
    pending: Vec<u8>,
    has_return: bool,
    screen: Screen,
}

impl Redactor {
    /// A redactor of these values, each shown as its name in brackets; beside it the names of those
    /// that are too short to be replaced.
    ///
    /// A value is also replaced without the white space around it: programs trim what they read from
    /// a variable, and a line feed at its end is common.
    pub fn new(secrets: impl IntoIterator<Item = (EnvName, Vec<u8>)>) -> (Self, Vec<EnvName>) {
        let (secrets, short) = Secrets::new(secrets);
        let redactor = Self {
            secrets,
            pending: Vec::new(),
            has_return: false,
            screen: Screen::default(),
        };
        (redactor, short)
    }

    /// Takes what came at `now` and appends to `out` what may be shown.
    pub fn push(&mut self, bytes: &[u8], now: Instant, out: &mut Vec<u8>) {
        self.screen.page.now = Some(now);
        // Before the secrets are looked for: one of several lines has a plain line feed.
        for &byte in bytes {
            if mem::take(&mut self.has_return) && byte != b'\n' {
                self.pending.push(b'\r');
            }
            if byte == b'\r' {
                self.has_return = true;
            } else {
                self.pending.push(byte);
            }
        }
        self.replace(false, out);
    }

    /// Appends what was held back, and a notice of what was left out last.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if mem::take(&mut self.has_return) {
            self.pending.push(b'\r');
        }
        self.replace(true, out);
        self.screen.flush(out);
        self.screen.page.end(out);
    }

    /// From left to right, the longest at each place; stops where a secret may have begun.
    fn replace(&mut self, is_end: bool, out: &mut Vec<u8>) {
        let pending = mem::take(&mut self.pending);
        let mut plain = 0;
        let mut at = 0;
        while let Some(rest) = pending.get(at..).filter(|rest| !rest.is_empty()) {
            let found = match self.secrets.look(rest, is_end) {
                Look::Nothing => {
                    at += 1;
                    continue;
                }
                Look::Unknown => break,
                Look::Found(secret) => secret,
            };
            self.screen
                .show(pending.get(plain..at).unwrap_or_default(), out);
            self.screen.flush(out);
            self.screen.page.write(&found.shown, out);
            at += found.value.len();
            plain = at;
        }
        self.screen
            .show(pending.get(plain..at).unwrap_or_default(), out);
        self.pending
            .extend_from_slice(pending.get(at..).unwrap_or_default());
    }
}

/// The values, the longest first.
struct Secrets {
    all: Vec<Secret>,
    first_bytes: Vec<u8>,
}

struct Secret {
    value: Vec<u8>,
    shown: String,
}

/// What is at the beginning of some bytes.
enum Look<'s> {
    /// No secret.
    Nothing,
    /// Perhaps one: more bytes will tell.
    Unknown,
    /// This one.
    Found(&'s Secret),
}

impl Secrets {
    fn new(given: impl IntoIterator<Item = (EnvName, Vec<u8>)>) -> (Self, Vec<EnvName>) {
        let mut all: Vec<Secret> = Vec::new();
        let mut short = Vec::new();
        for (name, value) in given {
            let value = with_line_feeds(&value);
            let trimmed = value.trim_ascii();
            if (1..MIN_SECRET).contains(&trimmed.len()) {
                short.push(name.clone());
            }
            for form in [value.as_slice(), trimmed] {
                if form.len() >= MIN_SECRET && all.iter().all(|other| other.value != form) {
                    all.push(Secret {
                        value: form.to_vec(),
                        shown: format!("[{}]", name.as_str()),
                    });
                }
            }
        }
        all.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
        let mut first_bytes: Vec<u8> = all
            .iter()
            .filter_map(|secret| secret.value.first().copied())
            .collect();
        first_bytes.sort_unstable();
        first_bytes.dedup();
        (Self { all, first_bytes }, short)
    }

    fn look(&self, rest: &[u8], is_end: bool) -> Look<'_> {
        let may_begin = |first| self.first_bytes.contains(first);
        if !rest.first().is_some_and(may_begin) {
            return Look::Nothing;
        }
        for secret in &self.all {
            if rest.starts_with(&secret.value) {
                return Look::Found(secret);
            }
            // It is longer than all that come after it, so they must wait.
            if !is_end && secret.value.starts_with(rest) {
                return Look::Unknown;
            }
        }
        Look::Nothing
    }
}

fn with_line_feeds(value: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(value.len());
    for &byte in value {
        if byte == b'\n' && plain.last() == Some(&b'\r') {
            plain.pop();
        }
        plain.push(byte);
    }
    plain
}

/// Makes text of bytes, and what cannot be seen visible.
#[derive(Default)]
struct Screen {
    /// The beginning of a character: at most three bytes.
    partial: Vec<u8>,
    page: Page,
}

impl Screen {
    fn show(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut text = mem::take(&mut self.partial);
        text.extend_from_slice(bytes);
        let mut chunks = text.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            for letter in chunk.valid().chars() {
                self.letter(letter, out);
            }
            let is_incomplete =
                |bytes| std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && is_incomplete(chunk.invalid()) {
                self.partial.extend_from_slice(chunk.invalid());
            } else {
                self.bytes(chunk.invalid(), out);
            }
        }
    }

    /// The character that has begun will not be completed.
    fn flush(&mut self, out: &mut Vec<u8>) {
        let partial = mem::take(&mut self.partial);
        self.bytes(&partial, out);
    }

    fn letter(&mut self, letter: char, out: &mut Vec<u8>) {
        if matches!(letter, '\n' | '\t') || is_plain(letter) {
            self.page.write(letter.encode_utf8(&mut [0; 4]), out);
        } else {
            self.page.write(&letter.escape_unicode().to_string(), out);
        }
    }

    fn bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            self.page.write(&format!("\\x{byte:02x}"), out);
        }
    }
}

/// Breaks lines that are too long, and leaves out what is too much.
#[derive(Default)]
struct Page {
    now: Option<Instant>,
    meter: Meter,
    /// Bytes in the line that is being written.
    column: usize,
    left_out: u64,
}

impl Page {
    /// Writes a piece that is not to be broken, or leaves it out.
    fn write(&mut self, piece: &str, out: &mut Vec<u8>) {
        if self.left_out > 0 && self.free() >= RESUME {
            self.notice(out);
        }
        if self.left_out > 0 || self.free() < piece.len() {
            let bytes = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            self.left_out = self.left_out.saturating_add(bytes);
            return;
        }
        if piece != "\n" && self.column > 0 && self.column + piece.len() > MAX_LINE {
            self.put(BROKEN, out);
            self.put("\n", out);
        }
        self.put(piece, out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if self.left_out > 0 {
            self.notice(out);
        }
    }

    fn notice(&mut self, out: &mut Vec<u8>) {
        if self.column > 0 {
            self.put("\n", out);
        }
        let bytes = mem::take(&mut self.left_out);
        let notice = format!("[strait: {bytes} bytes of the server's standard error left out]");
        self.put(&notice, out);
        self.put("\n", out);
    }

    fn put(&mut self, piece: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(piece.as_bytes());
        self.column = if piece == "\n" {
            0
        } else {
            self.column + piece.len()
        };
        if let Some(now) = self.now {
            self.meter.spend(piece.len(), now);
        }
    }

    fn free(&mut self) -> usize {
        if let Some(now) = self.now {
            self.meter.forget(now);
        }
        (CAP - RESERVE).saturating_sub(self.meter.spent)
    }
}

/// How many bytes were written in the last [`WINDOW`]. No window holds more than is counted here,
/// because bytes are counted up to a [`STEP`] longer.
#[derive(Default)]
struct Meter {
    steps: VecDeque<(Instant, usize)>,
    spent: usize,
}

impl Meter {
    fn spend(&mut self, bytes: usize, now: Instant) {
        self.spent += bytes;
        match self.steps.back_mut() {
            Some((began, sum)) if now.saturating_duration_since(*began) < STEP => *sum += bytes,
            Some(_) | None => self.steps.push_back((now, bytes)),
        }
    }

    fn forget(&mut self, now: Instant) {
        while let Some((began, bytes)) = self.steps.front() {
            if now.saturating_duration_since(*began) < WINDOW + STEP {
                break;
            }
            self.spent -= bytes;
            self.steps.pop_front();
        }
    }
}

/// Text from elsewhere in a line of ours: cut, and with everything visible.
pub(super) struct Visible<'a> {
    /// The text.
    pub(super) text: &'a str,
    /// The most characters of it that are shown.
    pub(super) most: usize,
}

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut letters = self.text.chars();
        for letter in letters.by_ref().take(self.most) {
            if is_plain(letter) {
                f.write_char(letter)?;
            } else {
                write!(f, "{}", letter.escape_unicode())?;
            }
        }
        if letters.next().is_some() {
            f.write_str("...")?;
        }
        Ok(())
    }
}

fn is_plain(letter: char) -> bool {
    !letter.is_control() && !is_invisible(letter)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redactor(secrets: &[(&str, &[u8])]) -> (Redactor, Vec<EnvName>) {
        Redactor::new(secrets.iter().map(|(name, value)| {
            let name = EnvName::parse(name).expect("a name");
            (name, value.to_vec())
        }))
    }

    /// What comes of pieces that come at once.
    fn shown(secrets: &[(&str, &[u8])], pieces: &[&[u8]]) -> String {
        let (mut redactor, _) = redactor(secrets);
        let (now, mut out) = (Instant::now(), Vec::new());
        for piece in pieces {
            redactor.push(piece, now, &mut out);
        }
        redactor.finish(&mut out);
        String::from_utf8(out).expect("text")
    }

    /// A text in pieces that end at these places.
    fn cut<'a>(text: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
        let mut places: Vec<usize> = places.iter().map(|at| at % (text.len() + 1)).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let ends = places.windows(2);
        ends.map(|ends| &text[ends[0]..ends[1]]).collect()
    }

    #[test]
    fn secrets_are_shown_by_name_however_the_text_is_cut() {
        let secrets: &[(&str, &[u8])] = &[
            ("SHORT", b"abcd"),
            ("LONG", b"abcdefgh"),
            ("TWICE", b"xyxyxz"),
            ("LINES", b"one\r\ntwo\n"),
            ("SAME", b"abcd"),
            ("UTF8", "h\u{fc}tte".as_bytes()),
        ];
        for (text, expected) in [
            ("", ""),
            ("abcd", "[SHORT]"),
            ("abcdefg", "[SHORT]efg"),
            ("abcdefgh", "[LONG]"),
            ("ababcdabcdefghabcd", "ab[SHORT][LONG][SHORT]"),
            ("xyxyxyxz", "xy[TWICE]"),
            ("xyxyxy", "xyxyxy"),
            ("one\ntwo\n", "[LINES]"),
            ("> one\r\ntwo", "> [LINES]"),
            ("die h\u{fc}tte", "die [UTF8]"),
        ] {
            let text = text.as_bytes();
            for first in 0..=text.len() {
                for second in first..=text.len() {
                    let pieces = cut(text, &[first, second]);
                    assert_eq!(shown(secrets, &pieces), expected, "{pieces:?}");
                }
            }
        }
    }

    #[test]
    fn short_values_are_reported_and_left_alone() {
        let secrets: &[(&str, &[u8])] = &[
            ("A", b"abc"),
            ("B", b""),
            ("C", b"abcd"),
            ("D", b" x\r\n "),
            ("E", b"token\n"),
        ];
        let (_, short) = redactor(secrets);
        let short: Vec<&str> = short.iter().map(EnvName::as_str).collect();
        assert_eq!(short, ["A", "D"]);
        assert_eq!(shown(secrets, &[b"abc x"]), "abc x");
        assert_eq!(shown(secrets, &[b"a token."]), "a [E].");
        assert_eq!(shown(secrets, &[b"a token\n."]), "a [E].");
    }

    #[test]
    fn nothing_waits_that_needs_not_wait() {
        let (mut redactor, _) = redactor(&[("TOKEN", b"secret")]);
        let (now, mut out) = (Instant::now(), Vec::new());
        for (piece, so_far) in [
            ("password: ", "password: "),
            ("se", "password: "),
            ("a", "password: sea"),
            ("sec", "password: sea"),
            ("ret\r", "password: sea[TOKEN]"),
            ("\r", "password: sea[TOKEN]\\u{d}"),
            ("\n", "password: sea[TOKEN]\\u{d}\n"),
        ] {
            redactor.push(piece.as_bytes(), now, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), so_far, "after {piece:?}");
        }
    }

    #[test]
    fn what_steers_a_terminal_is_shown() {
        for (text, expected) in [
            ("a\tb\n".as_bytes(), "a\tb\n"),
            (b"a\r\nb\r", "a\nb\\u{d}"),
            (b"\x1b[2J\x07\x00", "\\u{1b}[2J\\u{7}\\u{0}"),
            (b"\x7f", "\\u{7f}"),
            (b"\xc2\x9b", "\\u{9b}"),
            (b"\x9b31m", "\\x9b31m"),
            (b"\xe2\x82", "\\xe2\\x82"),
            (b"\xe2\x82a", "\\xe2\\x82a"),
            (b"\xff\xc3\xbc", "\\xff\u{fc}"),
            (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
            (
                "\u{202e}a\u{200b}\u{feff}".as_bytes(),
                "\\u{202e}a\\u{200b}\\u{feff}",
            ),
            (
                "gr\u{fc}n \u{1f980} \u{2764}".as_bytes(),
                "gr\u{fc}n \u{1f980} \u{2764}",
            ),
        ] {
            for at in 0..=text.len() {
                assert_eq!(shown(&[], &cut(text, &[at])), expected, "{at}");
            }
        }
    }

    #[test]
    fn a_secret_in_the_middle_of_a_character_ends_it() {
        let secrets: &[(&str, &[u8])] = &[("T", b"\x82abc")];
        for at in 0..=5 {
            let pieces = cut(b"\xe2\x82abc", &[at]);
            assert_eq!(shown(secrets, &pieces), "\\xe2[T]", "{at}");
        }
    }

    #[test]
    fn a_long_line_is_broken() {
        let line = "a".repeat(MAX_LINE);
        assert_eq!(shown(&[], &[line.as_bytes(), b"\nb"]), format!("{line}\nb"));
        let both = format!("{line}{BROKEN}\nb");
        assert_eq!(shown(&[], &[line.as_bytes(), b"b"]), both);
        let escaped = shown(&[], &[&[0x1b; MAX_LINE]]);
        assert!(escaped.lines().all(|line| {
            line.trim_end_matches(BROKEN)
                .replace("\\u{1b}", "")
                .is_empty()
        }));
        assert_eq!(escaped.matches("\\u{1b}").count(), MAX_LINE);
    }

    #[test]
    fn too_much_is_left_out_and_counted() {
        let (mut redactor, _) = redactor(&[]);
        let start = Instant::now();
        let mut out = Vec::new();
        let line = format!("{}\n", "a".repeat(1023));
        for _ in 0..3072 {
            redactor.push(line.as_bytes(), start, &mut out);
        }
        let most = CAP - RESERVE;
        assert_eq!(out.len(), most);

        out.clear();
        redactor.push(b"too early\n", start + WINDOW, &mut out);
        assert_eq!(out, b"");
        redactor.push(b"again\n", start + WINDOW + STEP, &mut out);
        let left_out = 3 * CAP - most + "too early\n".len();
        let notice =
            |bytes| format!("[strait: {bytes} bytes of the server's standard error left out]\n");
        assert_eq!(
            String::from_utf8_lossy(&out),
            format!("\n{}again\n", notice(left_out))
        );

        let spent = out.len();
        out.clear();
        for _ in 0..1024 {
            redactor.push(line.as_bytes(), start + 2 * WINDOW, &mut out);
        }
        redactor.push(b"b", start + 2 * WINDOW, &mut out);
        assert_eq!(out.len(), most - spent);
        redactor.finish(&mut out);
        let text = String::from_utf8_lossy(&out);
        let end = format!("aaa\n{}", notice(CAP - most + spent + 1));
        assert!(text.ends_with(&end), "{:?}", text.lines().last());
        out.clear();
        redactor.finish(&mut out);
        assert_eq!(out, b"", "said once");
    }

    #[test]
    fn no_window_holds_more_than_the_cap() {
        let (mut redactor, _) = redactor(&[]);
        let start = Instant::now();
        let piece = vec![b'x'; 9000];
        let mut written: Vec<(u64, usize)> = Vec::new();
        let (mut out, mut notices) = (Vec::new(), 0);
        for tick in 0..2000 {
            let at = tick * 130;
            out.clear();
            redactor.push(&piece, start + Duration::from_millis(at), &mut out);
            written.push((at, out.len()));
            let text = String::from_utf8_lossy(&out);
            notices += text.matches("left out]").count();
        }
        for (from, _) in &written {
            let is_in = |at: u64| (*from..*from + 60_000).contains(&at);
            let in_window = written.iter().filter(|(at, _)| is_in(*at));
            let sum: usize = in_window.map(|(_, bytes)| bytes).sum();
            assert!(sum <= CAP, "{sum} from {from}");
        }
        assert!((3..10).contains(&notices), "{notices}");
        assert!(redactor.screen.page.meter.steps.len() <= 62);
    }

    #[test]
    fn text_from_elsewhere_is_visible_and_cut() {
        let show = |text, most| Visible { text, most }.to_string();
        assert_eq!(show("a\u{1b}\u{202e}\n", 9), "a\\u{1b}\\u{202e}\\u{a}");
        assert_eq!(show("abcd", 4), "abcd");
        assert_eq!(show("abcde", 4), "abcd...");
    }

    /// Values that overlap each other and the text, and survive the escape as they are.
    fn some_secrets() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[ab\n\u{fc}]{4,7}", 1..5)
    }

    proptest! {
        #[test]
        fn no_control_byte_passes(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
        ) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let shown = shown(&[("TOKEN", b"\x80\x01\x02\xc3")], &pieces);
            let is_good = |letter: char| {
                matches!(letter, '\n' | '\t') || !letter.is_control() && !is_invisible(letter)
            };
            prop_assert!(shown.chars().all(is_good), "{shown:?}");
        }

        #[test]
        fn no_secret_passes_and_the_cuts_do_not_matter(
            secrets in some_secrets(),
            text in "[ab\r\n\u{fc}]{0,60}",
            places in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let names = ["A", "B", "C", "D"];
            let given: Vec<(&str, &[u8])> = names
                .into_iter()
                .zip(secrets.iter().map(String::as_bytes))
                .collect();
            let whole = shown(&given, &[text.as_bytes()]);
            for secret in &secrets {
                prop_assert!(!whole.contains(secret.as_str()), "{secret:?} in {whole:?}");
            }
            prop_assert_eq!(whole, shown(&given, &cut(text.as_bytes(), &places)));
        }

        #[test]
        fn without_secrets_printable_text_passes_as_it_is(
            text in "[\\PC\t\n]{0,300}",
            places in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let text: String = text.chars().filter(|letter| !is_invisible(*letter)).collect();
            prop_assert_eq!(&shown(&[], &cut(text.as_bytes(), &places)), &text);
        }

        #[test]
        fn little_is_held_back(
            secrets in some_secrets(),
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 0..20),
        ) {
            let names = ["A", "B", "C", "D"].map(|name| EnvName::parse(name).expect("a name"));
            let longest = secrets.iter().map(String::len).max().unwrap_or(0);
            let values = secrets.into_iter().map(String::into_bytes);
            let (mut redactor, _) = Redactor::new(names.into_iter().zip(values));
            let now = Instant::now();
            for piece in pieces {
                redactor.push(&piece, now, &mut Vec::new());
                prop_assert!(redactor.pending.len() < longest);
                prop_assert!(redactor.screen.partial.len() < 4);
            }
        }
    }
}
