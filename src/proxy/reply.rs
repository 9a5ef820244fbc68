//! What a client is answered: a refusal, a bare 200, or the origin's response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::task::AbortHandle;

use super::attempt::{Counts, Passage};
use super::seat::Seat;
use crate::audit::Ended;
use crate::destination::Destination;
use crate::refusal::Refusal;

/// RFC 9209 §2.
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Whether the client may send another request on the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    KeepAlive,
    Close,
}

/// The answer to a request that is refused.
pub(super) fn refusal(
    seat: Seat,
    refusal: Refusal,
    destination: Option<&Destination>,
    after: After,
) -> Response<ReplyBody> {
    let body = Bytes::from(refusal.body(destination) + "\n");
    let mut response = fixed(seat, refusal.answer().status, body);
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(status) = HeaderValue::try_from(refusal.proxy_status()) {
        fields.insert(PROXY_STATUS, status);
    }
    if after == After::Close {
        fields.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The whole answer to a client that was never admitted, as it goes over the wire.
pub(super) fn raw_refusal(refusal: Refusal) -> String {
    let status = refusal.answer().status;
    let proxy_status = refusal.proxy_status();
    let body = refusal.body(None) + "\n";
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nProxy-Status: {proxy_status}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// An answer of ours with no content: the 200 of a tunnel, and what OPTIONS gets from a proxy.
pub(super) fn empty(seat: Seat) -> Response<ReplyBody> {
    fixed(seat, StatusCode::OK, Bytes::new())
}

fn fixed(seat: Seat, status: StatusCode, body: Bytes) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody {
        content: Content::Fixed(body),
        seat,
    });
    *response.status_mut() = status;
    response
}

/// The content of an answer. When hyper lets go of it, the reply is over.
#[derive(Debug)]
pub(super) struct ReplyBody {
    content: Content,
    seat: Seat,
}

#[derive(Debug)]
enum Content {
    Fixed(Bytes),
    Origin(OriginContent),
}

/// The origin's content, and what has to go when it ends.
#[derive(Debug)]
pub(super) struct OriginContent {
    pub(super) body: Incoming,
    pub(super) passage: Option<Passage>,
    pub(super) counts: Arc<Counts>,
    pub(super) _connection: AbortOnDrop,
}

/// A task that ends with this value.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ReplyBody {
    pub(super) fn from_origin(seat: Seat, content: OriginContent) -> Self {
        Self {
            content: Content::Origin(content),
            seat,
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let origin = match &mut this.content {
            Content::Fixed(body) if body.is_empty() => return Poll::Ready(None),
            Content::Fixed(body) => {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(body)))));
            }
            Content::Origin(origin) => origin,
        };
        match ready!(Pin::new(&mut origin.body).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    origin.counts.add_from_origin(data.len());
                    this.seat.touch();
                    Poll::Ready(Some(Ok(Frame::data(data))))
                }
                // Trailers may be dropped (RFC 9110 §6.5.1), and nothing follows them.
                Err(_trailers) => {
                    origin.close(Ended::Complete);
                    Poll::Ready(None)
                }
            },
            Some(Err(error)) => {
                this.seat.reply_broke();
                origin.close(Ended::OriginGone);
                Poll::Ready(Some(Err(error)))
            }
            None => {
                origin.close(Ended::Complete);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Fixed(body) => body.is_empty(),
            Content::Origin(origin) => origin.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Fixed(body) => {
                SizeHint::with_exact(u64::try_from(body.len()).unwrap_or(u64::MAX))
            }
            Content::Origin(origin) => origin.body.size_hint(),
        }
    }
}

impl OriginContent {
    fn close(&mut self, ended: Ended) {
        if let Some(passage) = self.passage.take() {
            passage.close(ended);
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if let Content::Origin(origin) = &mut self.content
            && origin.body.is_end_stream()
        {
            // hyper does not ask again for an end it knows of.
            origin.close(Ended::Complete);
        }
        self.seat.reply_ended();
    }
}
