//! Where a body ends: the same however the bytes come in pieces, and where a decoder that sees the
//! whole body finds it.
//!
//! An input is `chunked` or a length, then sizes of pieces, on the first line, and the bytes of the
//! connection after it.

use strait::body::BodyEnd;
use strait::head::Framing;

/// Counts along the input's body, in its pieces and at once; then along a body made of its bytes.
pub fn check(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (line, bytes) = input.split_at(end.map_or(input.len(), |end| end + 1));
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let framing = match words.next() {
        Some("chunked") => Framing::Chunked,
        Some(length) => Framing::Length(length.parse().unwrap_or(0)),
        None => return,
    };
    let sizes: Vec<usize> = words.filter_map(|word| word.parse().ok()).collect();

    let at_once = count(framing, bytes, &[]);
    for pieces in [&sizes[..], &[1], &[2, 3]] {
        assert_eq!(count(framing, bytes, pieces), at_once, "{pieces:?}");
    }
    check_end(framing, bytes, at_once);
    if framing == Framing::Chunked {
        check_encoded(bytes, &sizes);
    }
}

/// Bytes taken, and whether the end was reached.
fn count(framing: Framing, mut bytes: &[u8], sizes: &[usize]) -> (usize, bool) {
    let mut end = BodyEnd::of(framing);
    let mut taken = 0;
    let mut sizes = sizes.iter().map(|size| *size.max(&1)).cycle();
    while !bytes.is_empty() && !end.is_reached() {
        let (piece, rest) = bytes.split_at(sizes.next().unwrap_or(usize::MAX).min(bytes.len()));
        let step = end.advance(piece);
        assert!(step == piece.len() || end.is_reached());
        taken += step;
        bytes = rest;
    }
    assert_eq!(
        end.is_reached().then(|| end.advance(b"GET")),
        end.is_reached().then_some(0)
    );
    (taken, end.is_reached())
}

fn check_end(framing: Framing, bytes: &[u8], (taken, is_reached): (usize, bool)) {
    match framing {
        Framing::Length(length) => {
            let most = usize::try_from(length).unwrap_or(usize::MAX);
            assert_eq!(taken, most.min(bytes.len()));
            assert_eq!(is_reached, taken == most);
        }
        Framing::Chunked => match decode(bytes) {
            Decoded::Ended(end) => assert_eq!((taken, is_reached), (end, true)),
            Decoded::Incomplete => assert_eq!((taken, is_reached), (bytes.len(), false)),
            // What the next reader may still take for the body must not be read as a head.
            Decoded::Ambiguous => assert!(!is_reached),
            // hyper refuses it, and the connection ends there.
            Decoded::Malformed => {}
        },
    }
}

/// A well-formed body of the input's own bytes ends where it was made to end.
fn check_encoded(content: &[u8], sizes: &[usize]) {
    let mut encoded = Vec::new();
    let mut rest = content;
    for size in sizes.iter().copied().chain([usize::MAX]) {
        let (chunk, after) = rest.split_at(size.min(rest.len()));
        if !chunk.is_empty() {
            encoded.extend(format!("{:X};x=\"{size}\"\r\n", chunk.len()).bytes());
            encoded.extend(chunk);
            encoded.extend(b"\r\n");
        }
        rest = after;
    }
    encoded.extend(b"000\r\nA: b\r\n\r\n");
    let end = encoded.len();
    encoded.extend(content);
    assert_eq!(count(Framing::Chunked, &encoded, sizes), (end, true));
}

enum Decoded {
    Ended(usize),
    Incomplete,
    /// A line holds what is the end of a line to some readers.
    Ambiguous,
    Malformed,
}

/// Reads a chunked body by the letter of RFC 9112 §7.1.
fn decode(bytes: &[u8]) -> Decoded {
    let mut at = 0;
    loop {
        let line = line(&bytes[at..]);
        if line.is_ambiguous() {
            return Decoded::Ambiguous;
        }
        let digits = line.text.split(|byte| *byte == b';').next();
        let Some(size) = digits.and_then(size) else {
            return match line {
                Line { text: b"", end: 0 } => Decoded::Incomplete,
                _ => Decoded::Malformed,
            };
        };
        if line.end < 2 {
            return Decoded::Incomplete;
        }
        at += line.text.len() + line.end;
        if size == 0 {
            break;
        }
        let behind = bytes[at..].get(size..).unwrap_or_default();
        match behind {
            [b'\r', b'\n', ..] => at += size + 2,
            [] | [b'\r'] => return Decoded::Incomplete,
            _ => return Decoded::Malformed,
        }
    }
    loop {
        let line = line(&bytes[at..]);
        if line.is_ambiguous() {
            return Decoded::Ambiguous;
        }
        if line.end < 2 {
            return Decoded::Incomplete;
        }
        at += line.text.len() + line.end;
        if line.text.is_empty() {
            return Decoded::Ended(at);
        }
    }
}

/// A line, and how much of its CRLF there is.
struct Line<'a> {
    text: &'a [u8],
    end: usize,
}

impl Line<'_> {
    fn is_ambiguous(&self) -> bool {
        self.text.contains(&b'\r') || self.text.contains(&b'\n')
    }
}

/// The bytes before the first CRLF, or all there are.
fn line(bytes: &[u8]) -> Line<'_> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n");
    match (end, bytes) {
        (Some(end), _) => Line {
            text: &bytes[..end],
            end: 2,
        },
        (None, [text @ .., b'\r']) => Line { text, end: 1 },
        (None, text) => Line { text, end: 0 },
    }
}

/// Hexadecimal digits and nothing else; a size no memory could hold is not looked at here.
fn size(digits: &[u8]) -> Option<usize> {
    let digits = str::from_utf8(digits).ok()?;
    let is_size =
        (1..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_size.then(|| usize::from_str_radix(digits, 16).ok())?
}
