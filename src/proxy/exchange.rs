//! One request through the pipeline.

use std::net::SocketAddr;

use http::{Request, Response};
use hyper::body::{Body, Incoming};

use super::attempt::Attempt;
use super::dial::{Connection, dial};
use super::forward::forward;
use super::journal::JournalBroken;
use super::reply::{self, After, ReplyBody};
use super::resolve::lookup;
use super::seat::Seat;
use super::tunnel::Tunnel;
use super::{Context, ProxyConfig, Shared};
use crate::audit::{Ended, Reason};
use crate::destination::Destination;
use crate::forwarding::{self, NextHop};
use crate::head::{Form, RefusedHead, RequestHead};
use crate::policy::NotReached;
use crate::refusal::{Malformed, Refusal};

/// Takes one request from its head to its answer:
///
/// 1. **open** the attempt: from here on there will be exactly one line for it;
/// 2. take the **head** that was parsed strictly, or refuse with what was wrong with it;
/// 3. **authorise**: is the destination on the list?
/// 4. **resolve** the name, once, if it is a name;
/// 5. **check** every address;
/// 6. **dial** exactly those;
/// 7. **record** the outcome, and wait until the line is written;
/// 8. **answer**: leave a tunnel for the connection's task, or forward and pass the response on.
///
/// The only error is an audit log that is gone.
pub(super) async fn exchange(
    context: Context,
    seat: Seat,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, JournalBroken> {
    let mut attempt = Attempt::open(&context).await?;
    let reached = reach(&context, &mut attempt, seat.take_head(), &request).await;
    let Reached { head, connection } = match reached {
        Ok(reached) => reached,
        Err(no) => {
            // The policy's word: what it permitted stays permitted when it cannot be done.
            let allowed = matches!(no.refusal, Refusal::Failed(_));
            let reason = Reason::Refused(no.refusal);
            attempt.refused(reason, allowed, no.address).await?;
            let destination = no.destination.as_ref();
            return Ok(reply::refusal(seat, no.refusal, destination, no.after));
        }
    };
    let address = connection.as_ref().map(|connection| connection.address);
    let passage = attempt.passed(address).await?;
    let Some(Connection { stream, .. }) = connection else {
        // An OPTIONS request that was meant for this proxy.
        passage.close(Ended::Complete);
        return Ok(reply::empty(seat));
    };
    match &head.form {
        Form::Tunnel => {
            seat.hand_over(Tunnel {
                origin: stream,
                passage,
            });
            Ok(reply::empty(seat))
        }
        Form::Forward { target } => {
            let after = after_refusing(&head, &request);
            let request = rewrite(&head, target, request);
            let limits = &context.shared.config.limits;
            let response = forward(stream, request, passage, seat.clone(), limits).await;
            Ok(response.unwrap_or_else(|refusal| {
                reply::refusal(seat, refusal, Some(&head.destination), after)
            }))
        }
    }
}

/// A request whose origin is connected, or which needs none.
struct Reached {
    head: RequestHead,
    connection: Option<Connection>,
}

/// A refusal, what it is about, and what may follow it on the connection.
struct No {
    refusal: Refusal,
    address: Option<SocketAddr>,
    destination: Option<Destination>,
    after: After,
}

/// Steps 2 to 6: from a head to a connection, or to the first reason against it.
async fn reach(
    context: &Context,
    attempt: &mut Attempt,
    head: Option<Result<RequestHead, RefusedHead>>,
    request: &Request<Incoming>,
) -> Result<Reached, No> {
    let head = head.unwrap_or_else(|| {
        // hyper found a head where the screen saw none: they read the body before it differently.
        Err(RefusedHead::new(Malformed::Framing, &[]))
    });
    let head = head.map_err(|refused| {
        attempt.note_fragments(refused.method, refused.host);
        let refusal = refused.reason.into();
        No {
            refusal,
            address: None,
            destination: None,
            after: After::Close,
        }
    })?;
    attempt.note_request(head.method.as_str(), &head.destination);
    match connect(context, attempt, &head, request).await {
        Ok(connection) => Ok(Reached { head, connection }),
        Err(NotReached { refusal, address }) => {
            let after = after_refusing(&head, request);
            Err(No {
                refusal,
                address,
                destination: Some(head.destination),
                after,
            })
        }
    }
}

/// Authorises, resolves, checks and dials; no connection where the request was meant for this proxy.
async fn connect(
    context: &Context,
    attempt: &mut Attempt,
    head: &RequestHead,
    request: &Request<Incoming>,
) -> Result<Option<Connection>, NotReached> {
    let Shared {
        config,
        resolver,
        connector,
        dials_beside,
        ..
    } = &*context.shared;
    let ProxyConfig { policy, limits, .. } = config;

    let permit = policy.permit(head.destination.clone())?;
    if head.form != Form::Tunnel {
        forwarding::check(&head.method, request.headers())?;
    }
    attempt.note_allowed();
    if forwarding::next_hop(&head.method, request.headers()) == NextHop::Here {
        return Ok(None);
    }
    let answers = match permit.name() {
        Some(name) => lookup(&**resolver, name, limits.dns).await?,
        None => Vec::new(),
    };
    let own = context.own_addresses(permit.destination(), &answers);
    let dialable = permit.check(&answers, &own)?;
    let dialled = dial(
        &**connector,
        dials_beside,
        &dialable,
        limits.connect,
        limits.attempt_delay,
    )
    .await;
    dialled.map(Some).map_err(|failure| NotReached {
        refusal: failure.failed.into(),
        address: Some(failure.address),
    })
}

/// A refused tunnel's bytes, or a body nobody reads, must not be taken for the next request.
fn after_refusing(head: &RequestHead, request: &Request<Incoming>) -> After {
    if head.form != Form::Tunnel && request.body().is_end_stream() {
        After::KeepAlive
    } else {
        After::Close
    }
}

/// Makes the request that goes to the origin.
fn rewrite(head: &RequestHead, target: &str, mut request: Request<Incoming>) -> Request<Incoming> {
    forwarding::rewrite_request(head, request.headers_mut());
    // The head's parser let through only what `Uri` takes.
    *request.uri_mut() = target.parse().unwrap_or_default();
    *request.version_mut() = http::Version::HTTP_11;
    request
}
