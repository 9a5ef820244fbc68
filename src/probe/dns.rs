//! As much of DNS as a question and a look at its answer need (RFC 1035 §4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Outcome;

/// The port of DNS.
pub(super) const PORT: u16 = 53;
/// The types of records.
const A: u16 = 1;
const AAAA: u16 = 28;
/// The class of all of them: the internet.
const IN: u16 = 1;
/// The identifier of our questions: each has a socket of its own, so there is nothing to tell apart.
const ID: u16 = 0x7374;
/// Recursion desired.
const FLAGS: u16 = 0x0100;
/// The bit that makes a message an answer.
const IS_ANSWER: u16 = 0x8000;
/// The longest label.
const LONGEST_LABEL: usize = 63;

/// A question for the IPv4 addresses of a name; `None` where it is no name.
pub(super) fn question(name: &str) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    for word in [ID, FLAGS, 1, 0, 0, 0] {
        message.extend(word.to_be_bytes());
    }
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok()?;
        if label.is_empty() || label.len() > LONGEST_LABEL {
            return None;
        }
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.push(0);
    for word in [A, IN] {
        message.extend(word.to_be_bytes());
    }
    Some(message)
}

/// The answer in a message; `None` where it is not one to our question.
pub(super) fn answer(message: &[u8]) -> Option<Outcome> {
    let mut rest = Reader(message);
    let (id, flags) = (rest.word()?, rest.word()?);
    if id != ID || flags & IS_ANSWER == 0 {
        return None;
    }
    let (questions, answers) = (rest.word()?, rest.word()?);
    rest.take(4)?;
    // What is cut short is still an answer.
    let addresses = records(&mut rest, questions, answers);
    Some(Outcome::Resolved {
        code: flags.to_be_bytes().last()? & 0x0f,
        addresses,
    })
}

fn records(rest: &mut Reader<'_>, questions: u16, answers: u16) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for _ in 0..questions {
        if rest.skip_name().and_then(|()| rest.take(4)).is_none() {
            return addresses;
        }
    }
    for _ in 0..answers {
        let Some((kind, data)) = rest.record() else {
            return addresses;
        };
        let address = match kind {
            A => <[u8; 4]>::try_from(data).map(|data| IpAddr::from(Ipv4Addr::from(data))),
            AAAA => <[u8; 16]>::try_from(data).map(|data| IpAddr::from(Ipv6Addr::from(data))),
            _ => continue,
        };
        addresses.extend(address);
    }
    addresses
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// A name: labels, then an empty one or a pointer (§4.1.4).
    fn skip_name(&mut self) -> Option<()> {
        loop {
            match self.take(1)? {
                [0] => return Some(()),
                [length] if *length >= 0xc0 => return self.take(1).map(drop),
                [length] => self.take(usize::from(*length))?,
                _ => return None,
            };
        }
    }

    fn record(&mut self) -> Option<(u16, &'a [u8])> {
        self.skip_name()?;
        let kind = self.word()?;
        // The class and the time to live.
        self.take(6)?;
        let length = self.word()?;
        Some((kind, self.take(usize::from(length))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(code: u8, answers: u8, records: &[u8]) -> Vec<u8> {
        let mut message = question("a.test").expect("a name");
        message[2..4].copy_from_slice(&[0x81, 0x80 | code]);
        message[7] = answers;
        message.extend(records);
        message
    }

    #[test]
    fn an_answer_is_its_code_and_its_addresses() {
        let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7];
        let alias = [1, b'b', 0, 0, 5, 0, 1, 0, 0, 0, 60, 0, 2, 0xc0, 12];
        let both = [&alias[..], &record[..]].concat();
        let found = |code, addresses| Some(Outcome::Resolved { code, addresses });
        let address = IpAddr::from([192, 0, 2, 7]);
        assert_eq!(answer(&message(0, 2, &both)), found(0, vec![address]));
        assert_eq!(answer(&message(3, 0, &[])), found(3, vec![]));
        assert_eq!(
            answer(&message(0, 9, &record[..9])),
            found(0, vec![]),
            "cut short"
        );
    }

    #[test]
    fn what_is_no_answer_to_us_is_none() {
        let mut other = message(0, 0, &[]);
        other[0] ^= 1;
        for bytes in [
            other,
            question("a.test").expect("a name"),
            vec![],
            vec![0x73, 0x74, 0x80],
        ] {
            assert_eq!(answer(&bytes), None);
        }
        assert_eq!(question("a..b"), None);
        assert_eq!(question(&"a".repeat(64)), None);
    }
}
