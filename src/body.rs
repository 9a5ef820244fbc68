//! Where a request body ends in the bytes of a connection.
//!
//! hyper decodes bodies; this only counts along, so that what follows a body is read as a head by
//! [`RequestHead::parse`](crate::head::RequestHead::parse) before hyper sees it.

use crate::head::Framing;

/// Counts along a request body.
#[derive(Clone, Debug)]
pub struct BodyEnd {
    state: State,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Content of a known length, this many bytes still.
    Length(u64),
    /// The hexadecimal size of a chunk; `None` before its first digit.
    Size(Option<u64>),
    /// The rest of a chunk's first line.
    Extension(u64),
    /// The content of a chunk and the CRLF behind it, this many bytes still.
    Chunk(u64),
    /// A trailer line; `true` once it has a byte besides CR.
    Trailer(bool),
    /// The body is over.
    Ended,
    /// Not a chunked body: hyper will refuse it, and nothing after it is a head.
    Lost,
}

impl BodyEnd {
    /// Starts before the first byte of a body.
    pub fn of(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Ended,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size(None),
        };
        Self { state }
    }

    /// Whether the whole body has been counted.
    pub fn is_reached(&self) -> bool {
        self.state == State::Ended
    }

    /// Takes the body's part of `bytes` and says how many bytes that is.
    pub fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            match self.state {
                State::Ended => break,
                State::Lost => taken = bytes.len(),
                State::Length(left) => {
                    let (step, left) = step(left, rest.len());
                    self.state = if left == 0 {
                        State::Ended
                    } else {
                        State::Length(left)
                    };
                    taken += step;
                }
                State::Chunk(left) => {
                    let (step, left) = step(left, rest.len());
                    self.state = if left == 0 {
                        State::Size(None)
                    } else {
                        State::Chunk(left)
                    };
                    taken += step;
                }
                State::Size(_) | State::Extension(_) | State::Trailer(_) => {
                    self.state = rest
                        .first()
                        .map_or(State::Lost, |byte| self.state.next(*byte));
                    taken += 1;
                }
            }
        }
        taken
    }
}

impl State {
    /// The state after one byte of a line.
    fn next(self, byte: u8) -> Self {
        match self {
            Self::Size(size) => match (hex(byte), size) {
                (Some(digit), size) => {
                    let longer = size.unwrap_or(0).checked_mul(16);
                    let size = longer.and_then(|size| size.checked_add(digit));
                    size.map_or(Self::Lost, |size| Self::Size(Some(size)))
                }
                (None, Some(size)) => Self::Extension(size).next(byte),
                (None, None) => Self::Lost,
            },
            Self::Extension(0) | Self::Trailer(true) if byte == b'\n' => Self::Trailer(false),
            // The chunk and its CRLF.
            Self::Extension(size) if byte == b'\n' => {
                size.checked_add(2).map_or(Self::Lost, Self::Chunk)
            }
            Self::Trailer(false) if byte == b'\n' => Self::Ended,
            Self::Trailer(has_content) => Self::Trailer(has_content || byte != b'\r'),
            Self::Extension(_) | Self::Length(_) | Self::Chunk(_) | Self::Ended | Self::Lost => {
                self
            }
        }
    }
}

/// How much of `left` can be taken from `available` bytes, and what is left then.
fn step(left: u64, available: usize) -> (usize, u64) {
    let step = usize::try_from(left).unwrap_or(usize::MAX).min(available);
    (
        step,
        left.saturating_sub(u64::try_from(step).unwrap_or(u64::MAX)),
    )
}

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of the body at the start of `bytes`, fed in pieces of `size` bytes.
    fn body(framing: Framing, bytes: &[u8], size: usize) -> Option<usize> {
        let mut end = BodyEnd::of(framing);
        let mut taken = 0;
        for piece in bytes.chunks(size) {
            taken += end.advance(piece);
            if end.is_reached() {
                return Some(taken);
            }
        }
        end.is_reached().then_some(taken)
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        for (framing, bytes, length) in [
            (Framing::Length(0), "GET", Some(0)),
            (Framing::Length(3), "abcGET", Some(3)),
            (Framing::Length(9), "abc", None),
            (Framing::Chunked, "0\r\n\r\nGET", Some(5)),
            (Framing::Chunked, "3\r\nabc\r\n0\r\n\r\nGET", Some(13)),
            (
                Framing::Chunked,
                "1A;x=\"y\"\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nA: b\r\n\r\nG",
                Some(49),
            ),
            (
                Framing::Chunked,
                "00000003\r\n0\r\n\r\n0\r\n\r\nGET",
                Some(20),
            ),
            (Framing::Chunked, "3\r\nab", None),
            (Framing::Chunked, "\r\n0\r\n\r\n", None),
            (Framing::Chunked, "x\r\n\r\n0\r\n\r\n", None),
            (Framing::Chunked, "fffffffffffffffff\r\n", None),
            (Framing::Chunked, "ffffffffffffffff\r\nabc", None),
        ] {
            for size in [1, 2, 3, 7, 1000] {
                assert_eq!(
                    body(framing, bytes.as_bytes(), size),
                    length,
                    "{bytes:?} by {size}"
                );
            }
        }
    }
}
