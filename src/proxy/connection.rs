//! One client connection from its first byte to its last.

use std::future::poll_fn;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};

use super::attempt::Attempt;
use super::exchange::exchange;
use super::screen::Screen;
use super::seat::Seat;
use super::tunnel::relay;
use super::{Client, Context, Stop};
use crate::audit::{Cut, Reason};
use crate::head::RefusedHead;
use crate::refusal::Malformed;

/// How long a closing connection is read on, so that the client can read its answer first: closing
/// with unread bytes would reset it, and a reset can overtake the answer. An upload whose response
/// came early gets to its end this way, within reason.
const LINGER: Duration = Duration::from_secs(30);
/// How long it may be silent meanwhile.
const LINGER_SILENCE: Duration = Duration::from_secs(1);
/// How much is read at a time meanwhile.
const LINGER_BUFFER: usize = 16 * 1024;
/// Room for hyper beside the largest head: it gets heads whole, and has a minimum of its own.
const HYPER_SLACK: usize = 16 * 1024;

/// Serves the requests of one client, one at a time, and the tunnel the last may become.
pub(super) async fn serve<C: Client>(client: C, context: Context) {
    let seat = Seat::default();
    let limits = context.shared.config.limits;
    let screen = Screen::new(client, seat.clone(), limits);
    let service = service_fn(|request| Box::pin(exchange(context.clone(), seat.clone(), request)));
    let mut connection = http1::Builder::new()
        .max_headers(limits.head.fields)
        .max_buf_size(limits.head.bytes.saturating_add(HYPER_SLACK))
        .preserve_header_case(true)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(screen), service);

    let (mut drain, mut stop) = (context.stop.clone(), context.stop.clone());
    let mut is_draining = false;
    let is_over = loop {
        tokio::select! {
            ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break ended.is_ok(),
            () = Stop::reached(&mut drain, Stop::Drain), if !is_draining => {
                is_draining = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
            () = Stop::reached(&mut stop, Stop::Now), if is_draining => break false,
            () = stalled(&seat, limits.idle) => {
                // Only the first reason counts, and this is the only place that gives one.
                let _ = context.cut.set(Cut::Idle);
                break false;
            }
        }
    };
    // Whatever was under way ends here, and its lines are written.
    let screen = connection.into_parts().io.into_inner();
    let unfinished = screen.unfinished_head().filter(|_| is_draining);
    record_unfinished(&context, &seat, unfinished, is_draining).await;
    let (mut client, early) = screen.into_parts();
    match seat.take_tunnel() {
        Some(tunnel) if is_over => relay(client, early, tunnel, &limits, stop).await,
        Some(_) | None if is_over && !seat.is_broken() => tokio::select! {
            () = close(&mut client) => {}
            () = Stop::reached(&mut stop, Stop::Now) => {}
        },
        Some(_) | None => client.reset(),
    }
}

/// Leaves the line of a head that no exchange took: one that had begun to arrive when the proxy was
/// told to stop, or one that hyper would not have although we would.
async fn record_unfinished(
    context: &Context,
    seat: &Seat,
    begun: Option<RefusedHead>,
    is_stopping: bool,
) {
    let shutdown = Reason::Cut(Cut::Shutdown);
    let (method, host, reason) = match (seat.take_head(), begun) {
        (None, None) => return,
        (Some(Err(refused)), _) => (
            refused.method,
            refused.host,
            Reason::Refused(refused.reason.into()),
        ),
        (Some(Ok(head)), _) => {
            let host = head.destination.host().bare();
            let not_taken = Reason::Refused(Malformed::Syntax.into());
            let reason = if is_stopping { shutdown } else { not_taken };
            (Some(head.method.to_string()), Some(host), reason)
        }
        (None, Some(begun)) => (begun.method, begun.host, shutdown),
    };
    leave_line(context, method, host, reason).await;
}

async fn leave_line(
    context: &Context,
    method: Option<String>,
    host: Option<String>,
    reason: Reason,
) {
    if let Ok(mut attempt) = Attempt::open(context).await {
        attempt.note_fragments(method, host);
        // A log that is gone is why the proxy stops, and is told where that is decided.
        let _ = attempt.refused(reason, false, None).await;
    }
}

/// Resolves when content that is on its way has not moved for too long.
async fn stalled(seat: &Seat, limit: Option<Duration>) {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    loop {
        match seat.watched_since() {
            Some(since) if since.elapsed() >= limit => return,
            Some(since) => sleep_until(since + limit).await,
            None => sleep_until(Instant::now() + limit).await,
        }
    }
}

/// Closes in a way that lets the client read what it was answered.
pub(super) async fn close<C: Client>(client: &mut C) {
    let discard = async {
        client.shutdown().await?;
        let mut ignored = vec![0; LINGER_BUFFER];
        while timeout(LINGER_SILENCE, client.read(&mut ignored)).await?? > 0 {}
        std::io::Result::Ok(())
    };
    // Whether the client ends, breaks off or takes too long, the connection is over.
    drop(timeout(LINGER, discard).await);
}
