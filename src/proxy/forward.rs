//! One plain-HTTP exchange with an origin, streamed both ways.
//!
//! Every request has a connection of its own, opened for it: so no connection is shared between
//! clients, and none is used under a decision that was made for another address.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::Limits;
use super::attempt::{Counts, Passage};
use super::reply::{AbortOnDrop, OriginContent, ReplyBody};
use super::seat::Seat;
use crate::audit::Ended;
use crate::forwarding;
use crate::refusal::{Failed, Malformed, Refusal};

/// Sends a request, rewritten already, and returns the origin's response to pass on.
pub(super) async fn forward(
    origin: TcpStream,
    mut request: Request<Incoming>,
    passage: Passage,
    seat: Seat,
    limits: &Limits,
) -> Result<Response<ReplyBody>, Refusal> {
    // The connection ends with this exchange; an origin that knows does not hold it open.
    request
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    let counts = passage.counts();
    let request = request.map(|body| Upload::new(body, Arc::clone(&counts), seat.clone()));
    let (mut response, connection) = match ask(origin, request, &seat, limits).await {
        Ok(answered) => answered,
        Err(Broken { refusal, ended }) => {
            passage.close(ended);
            return Err(refusal);
        }
    };
    let (status, version) = (response.status(), response.version());
    forwarding::rewrite_response(status, version, response.headers_mut());
    // Our own version goes to the client, whatever the origin speaks (RFC 9112 §2.3).
    *response.version_mut() = http::Version::HTTP_11;
    seat.content_starts();
    Ok(response.map(|body| {
        let content = OriginContent {
            body,
            passage: Some(passage),
            counts,
            _connection: connection,
        };
        ReplyBody::from_origin(seat, content)
    }))
}

/// Sends a request on a connection of its own and waits for the head of the response. The
/// connection lasts as long as what comes back with it.
async fn ask(
    origin: TcpStream,
    request: Request<Upload>,
    seat: &Seat,
    limits: &Limits,
) -> Result<(Response<Incoming>, AbortOnDrop), Broken> {
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(limits.head.fields)
        .max_buf_size(limits.head.bytes)
        .preserve_header_case(true)
        .title_case_headers(true)
        .handshake(TokioIo::new(Deaf::hearing(origin)))
        .await
        .map_err(|error| Broken::of(&error))?;
    // What goes wrong on it comes out of the response or its body.
    let connection = tokio::spawn(async move { drop(connection.await) });
    let connection = AbortOnDrop(connection.abort_handle());
    let response = tokio::select! {
        response = sender.send_request(request) => response.map_err(|error| Broken::of(&error))?,
        () = silence(seat, limits) => return Err(Broken::by_origin(Failed::ResponseTimeout)),
    };
    // Nobody asked for another protocol: Upgrade is not passed on.
    let is_unasked = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_unasked || !forwarding::is_plainly_framed(response.headers()) {
        return Err(Broken::by_origin(Failed::ResponseInvalid));
    }
    Ok((response, connection))
}

/// Resolves when neither the client nor the origin has moved a byte for the time a response may
/// take: an upload may take as long as it needs.
async fn silence(seat: &Seat, limits: &Limits) {
    seat.touch();
    loop {
        let since = seat.active_since().unwrap_or_else(Instant::now);
        if since.elapsed() >= limits.response {
            return;
        }
        sleep_until(since + limits.response).await;
    }
}

/// An exchange that has no response to pass on: what the client is told, and how it ended.
struct Broken {
    refusal: Refusal,
    ended: Ended,
}

impl Broken {
    fn of(error: &hyper::Error) -> Self {
        if error.is_user() {
            Self::by_client(error)
        } else if error.is_parse() || error.is_parse_too_large() {
            Self::by_origin(Failed::ResponseInvalid)
        } else {
            Self::by_origin(Failed::ResponseIncomplete)
        }
    }

    fn by_origin(failed: Failed) -> Self {
        Self {
            refusal: failed.into(),
            ended: Ended::Refused(failed.into()),
        }
    }

    /// The request's own content broke: it ended early, or its chunks are none.
    fn by_client(error: &hyper::Error) -> Self {
        let content = error
            .source()
            .and_then(|source| source.downcast_ref::<hyper::Error>());
        let refusal = Refusal::from(Malformed::Framing);
        let is_malformed = content.is_some_and(|content| content.source().is_some_and(is_bad_data));
        let ended = if is_malformed {
            Ended::Refused(refusal)
        } else {
            Ended::ClientGone
        };
        Self { refusal, ended }
    }
}

/// Whether a body's error is about what came, and not about its having stopped.
fn is_bad_data(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::InvalidInput | ErrorKind::InvalidData
        )
    })
}

/// The client's content on its way to the origin, counted.
#[derive(Debug)]
struct Upload {
    body: Incoming,
    counts: Arc<Counts>,
    seat: Seat,
}

impl Upload {
    fn new(body: Incoming, counts: Arc<Counts>, seat: Seat) -> Self {
        seat.content_starts();
        Self { body, counts, seat }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.seat.content_ended();
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.counts.add_to_origin(data.len());
            this.seat.touch();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that can still be heard when it no longer listens.
///
/// An origin may answer and close before it has read a whole request; its reset then fails our next
/// write although the answer is there to be read. What cannot be written is dropped, and the reader
/// finds out whether there is an answer.
#[derive(Debug)]
struct Deaf {
    origin: TcpStream,
    is_deaf: bool,
}

impl Deaf {
    fn hearing(origin: TcpStream) -> Self {
        Self {
            origin,
            is_deaf: false,
        }
    }
}

impl AsyncRead for Deaf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.origin).poll_read(cx, out)
    }
}

impl AsyncWrite for Deaf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        if let Ok(count) = ready!(Pin::new(&mut self.origin).poll_write(cx, bytes)) {
            return Poll::Ready(Ok(count));
        }
        self.is_deaf = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.origin).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.origin).poll_shutdown(cx)
    }
}
