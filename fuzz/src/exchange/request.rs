//! A request as its origin receives it.

use strait::body::BodyEnd;
use strait::head::Framing;

/// Read with as little thought as an origin can get away with.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) start: String,
    fields: Vec<(String, String)>,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads it as far as it has come; `None` without a whole head.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
        let (head, body) = bytes.split_at(end);
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let fields = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Some(Self {
            start,
            fields: fields.collect(),
            body: &body[4..],
        })
    }

    /// The values of a field, one for each of its lines.
    pub(super) fn values(&self, name: &str) -> Vec<&str> {
        let of_name = self.fields.iter().filter(|(field, _)| field == name);
        of_name.map(|(_, value)| value.as_str()).collect()
    }

    /// How its body is framed, if in one way.
    fn framing(&self) -> Option<Framing> {
        let lengths = self.values("content-length");
        let codings = self.values("transfer-encoding");
        match (&lengths[..], &codings[..]) {
            ([], []) => Some(Framing::Length(0)),
            ([length], []) => length.parse().ok().map(Framing::Length),
            ([], ["chunked"]) => Some(Framing::Chunked),
            _ => None,
        }
    }

    /// Whether the body has come to its end, and how much has come behind it.
    pub(super) fn end(&self) -> Option<(bool, usize)> {
        let mut end = BodyEnd::of(self.framing()?);
        let taken = end.advance(self.body);
        Some((end.is_reached(), self.body.len() - taken))
    }
}
