//! Where a request body ends in the bytes of a connection.
//!
//! hyper decodes bodies; this only counts along, so that what follows a body is read as a head by
//! [`RequestHead::parse`](crate::head::RequestHead::parse) before hyper sees it.

use crate::head::{Framing, MAX_LENGTH};

/// Counts along a request body.
#[derive(Clone, Debug)]
pub struct BodyEnd {
    state: State,
}

/// What the next byte belongs to. Every line of the framing ends in CRLF, and in nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Content of a known length, this many bytes still.
    Length(u64),
    /// The hexadecimal size of a chunk; `None` before its first digit.
    Size(Option<u64>),
    /// The rest of a chunk's first line.
    Extension(u64),
    /// The LF of a chunk's first line.
    SizeEnd(u64),
    /// The content of a chunk, this many bytes still.
    Chunk(u64),
    /// The CR behind a chunk.
    ChunkCr,
    /// The LF behind a chunk.
    ChunkLf,
    /// A trailer line; `true` once there is something in it.
    Trailer(bool),
    /// The LF of a trailer line.
    TrailerEnd(bool),
    /// The body is over.
    Ended,
    /// Not a chunked body: nothing after it is a head.
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

    /// Whether the bytes so far are no chunked body; what follows them has no meaning.
    pub fn is_lost(&self) -> bool {
        self.state == State::Lost
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
                        State::ChunkCr
                    } else {
                        State::Chunk(left)
                    };
                    taken += step;
                }
                State::Size(_)
                | State::Extension(_)
                | State::SizeEnd(_)
                | State::ChunkCr
                | State::ChunkLf
                | State::Trailer(_)
                | State::TrailerEnd(_) => {
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
    /// The state after one byte of the framing.
    fn next(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Size(size), _) if hex(byte).is_some() => {
                let longer = size.unwrap_or(0).checked_mul(16);
                let size = longer
                    .zip(hex(byte))
                    .and_then(|(size, digit)| size.checked_add(digit));
                size.map_or(Self::Lost, |size| Self::Size(Some(size)))
            }
            (Self::Size(Some(size)) | Self::Extension(size), b'\r') if size <= MAX_LENGTH => {
                Self::SizeEnd(size)
            }
            (Self::Size(Some(size)), b';' | b' ' | b'\t') => Self::Extension(size),
            (Self::Extension(_), b'\r' | b'\n') | (Self::Trailer(_), b'\n') => Self::Lost,
            (Self::Extension(_), _) => self,
            (Self::SizeEnd(0) | Self::TrailerEnd(true), b'\n') => Self::Trailer(false),
            (Self::SizeEnd(size), b'\n') => Self::Chunk(size),
            (Self::ChunkCr, b'\r') => Self::ChunkLf,
            (Self::ChunkLf, b'\n') => Self::Size(None),
            (Self::Trailer(has_content), b'\r') => Self::TrailerEnd(has_content),
            (Self::Trailer(_), _) => Self::Trailer(true),
            (Self::TrailerEnd(false), b'\n') => Self::Ended,
            (
                Self::Size(_)
                | Self::SizeEnd(_)
                | Self::ChunkCr
                | Self::ChunkLf
                | Self::TrailerEnd(_)
                | Self::Length(_)
                | Self::Chunk(_)
                | Self::Ended
                | Self::Lost,
                _,
            ) => Self::Lost,
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
            (Framing::Chunked, "8000000000000000\r\nabc", None),
            (Framing::Chunked, "3 \r\nabc\r\n0\r\n\r\n", Some(14)),
            (Framing::Chunked, "3\nabc\r\n0\r\n\r\n", None),
            (Framing::Chunked, "3;x\nabc\r\n0\r\n\r\n", None),
            (Framing::Chunked, "3\rXabc\r\n0\r\n\r\n", None),
            (Framing::Chunked, "3\r\nabcd\r\n0\r\n\r\n", None),
            (Framing::Chunked, "3\r\nabc\n0\r\n\r\n", None),
            (Framing::Chunked, "0\r\nA: b\n\r\n", None),
            (Framing::Chunked, "0\r\nA: b\n\n", None),
            (Framing::Chunked, "0\r\n\n", None),
            (Framing::Chunked, "0\r\nA: b\r\n\r\nX", Some(11)),
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
