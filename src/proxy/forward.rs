//! One plain-HTTP exchange with an origin, streamed both ways.
//!
//! Every request has a connection of its own, opened for it: so no connection is shared between
//! clients, and none is used under a decision that was made for another address.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::Limits;
use super::attempt::{Counts, Passage};
use super::reply::{AbortOnDrop, OriginContent, ReplyBody};
use super::screen::Seat;
use crate::audit::Ended;
use crate::forwarding;
use crate::refusal::Failed;

/// Sends a request, rewritten already, and returns the origin's response to pass on.
pub(super) async fn forward(
    origin: TcpStream,
    mut request: Request<Incoming>,
    passage: Passage,
    seat: Seat,
    limits: &Limits,
) -> Result<Response<ReplyBody>, Failed> {
    // The connection ends with this exchange; an origin that knows does not hold it open.
    request
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    let counts = passage.counts();
    let request = request.map(|body| Upload {
        body,
        counts: Arc::clone(&counts),
        seat: seat.clone(),
    });
    let connection;
    let outcome = match handshake(origin, limits).await {
        Ok((mut sender, task)) => {
            connection = task;
            let response = sender.send_request(request);
            let outcome = tokio::select! {
                outcome = response => outcome.map_err(|error| failure(&error)),
                () = silence(&seat, limits) => Err(Failed::ResponseTimeout),
            };
            outcome.and_then(|response| match response.status() {
                // Nobody asked for it: Upgrade is not passed on.
                StatusCode::SWITCHING_PROTOCOLS => Err(Failed::ResponseInvalid),
                _ => Ok(response),
            })
        }
        Err(error) => return Err(refuse(passage, failure(&error))),
    };
    let mut response = match outcome {
        Ok(response) => response,
        Err(failed) => return Err(refuse(passage, failed)),
    };
    let (status, version) = (response.status(), response.version());
    forwarding::rewrite_response(status, version, response.headers_mut());
    // Our own version goes to the client, whatever the origin speaks (RFC 9112 §2.3).
    *response.version_mut() = http::Version::HTTP_11;
    seat.watch();
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

/// Starts HTTP/1 on a connection; its task ends with the exchange.
async fn handshake(
    origin: TcpStream,
    limits: &Limits,
) -> hyper::Result<(http1::SendRequest<Upload>, AbortOnDrop)> {
    let (sender, connection) = http1::Builder::new()
        .max_headers(limits.head.fields)
        .max_buf_size(limits.head.bytes)
        .preserve_header_case(true)
        .title_case_headers(true)
        .handshake(TokioIo::new(origin))
        .await?;
    // What goes wrong on it comes out of the response or its body.
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok((sender, AbortOnDrop(task.abort_handle())))
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

fn refuse(passage: Passage, failed: Failed) -> Failed {
    passage.close(Ended::Refused(failed.into()));
    failed
}

fn failure(error: &hyper::Error) -> Failed {
    if error.is_parse() || error.is_parse_too_large() {
        Failed::ResponseInvalid
    } else {
        Failed::ResponseIncomplete
    }
}

/// The client's content on its way to the origin, counted.
#[derive(Debug)]
struct Upload {
    body: Incoming,
    counts: Arc<Counts>,
    seat: Seat,
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
