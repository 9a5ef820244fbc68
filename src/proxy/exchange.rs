//! One request through the pipeline.

use std::net::{IpAddr, SocketAddr};

use http::{Request, Response};
use hyper::body::{Body, Incoming};

use super::Context;
use super::attempt::Attempt;
use super::dial::{Connection, dial};
use super::forward::forward;
use super::journal::JournalBroken;
use super::reply::{self, After, ReplyBody};
use super::resolve::lookup;
use super::screen::Seat;
use super::tunnel::Tunnel;
use crate::audit::{Ended, Reason};
use crate::forwarding::{self, NextHop};
use crate::head::{Form, RequestHead};
use crate::policy::Permit;
use crate::refusal::{Denied, Malformed, Refusal};

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

    let head = match seat.take_head() {
        Some(Ok(head)) => head,
        Some(Err(refused)) => {
            attempt.note_fragments(refused.method, refused.host);
            return refuse(
                attempt,
                seat,
                Refusal::from(refused.reason).into(),
                None,
                After::Close,
            )
            .await;
        }
        // hyper found a head where the screen saw none: the two read the body before it differently.
        None => {
            let refusal = Refusal::from(Malformed::Framing).into();
            return refuse(attempt, seat, refusal, None, After::Close).await;
        }
    };
    attempt.note_request(head.method.as_str(), &head.destination);
    let after = match head.form {
        Form::Forward { .. } if request.body().is_end_stream() => After::KeepAlive,
        // A refused tunnel's bytes, or a body nobody reads, must not be taken for the next request.
        Form::Forward { .. } | Form::Tunnel => After::Close,
    };

    let permit = match authorise(&context, &head, &request) {
        Ok(permit) => permit,
        Err(denied) => {
            let refusal = Refusal::from(denied).into();
            return refuse(attempt, seat, refusal, Some(&head), after).await;
        }
    };
    attempt.note_allowed();

    let request = match &head.form {
        Form::Tunnel => None,
        Form::Forward { target } => {
            let Some(request) = prepare(&head, target, request) else {
                attempt.passed(None).await?.close(Ended::Complete);
                return Ok(reply::empty(seat));
            };
            Some(request)
        }
    };
    let connection = match connect(&context, permit).await {
        Ok(connection) => connection,
        Err(no) => return refuse(attempt, seat, no, Some(&head), after).await,
    };
    let passage = attempt.passed(Some(connection.address)).await?;

    let Some(request) = request else {
        let reply = reply::empty(seat.clone());
        seat.hand_over(Tunnel {
            origin: connection.stream,
            passage,
        });
        return Ok(reply);
    };
    let limits = &context.shared.limits;
    match forward(connection.stream, request, passage, seat.clone(), limits).await {
        Ok(response) => Ok(response),
        Err(refusal) => Ok(reply::refusal(
            seat,
            refusal,
            Some(&head.destination),
            after,
        )),
    }
}

/// A refusal, and the address it is about.
#[derive(Clone, Copy, Debug)]
struct No {
    refusal: Refusal,
    address: Option<SocketAddr>,
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            address: None,
        }
    }
}

/// Records a refusal, then answers with it.
async fn refuse(
    attempt: Attempt,
    seat: Seat,
    no: No,
    head: Option<&RequestHead>,
    after: After,
) -> Result<Response<ReplyBody>, JournalBroken> {
    // Once permitted, only a policy reason takes the permission back.
    let allowed = matches!(no.refusal, Refusal::Failed(_));
    attempt
        .refused(Reason::Refused(no.refusal), allowed, no.address)
        .await?;
    let destination = head.map(|head| &head.destination);
    Ok(reply::refusal(seat, no.refusal, destination, after))
}

fn authorise<'a>(
    context: &'a Context,
    head: &RequestHead,
    request: &Request<Incoming>,
) -> Result<Permit<'a>, Denied> {
    let permit = context.shared.policy.permit(head.destination.clone())?;
    if head.form != Form::Tunnel {
        forwarding::check(&head.method, request.headers())?;
    }
    Ok(permit)
}

/// Rewrites a request for its origin, before anything is resolved or dialled for it; `None` where
/// the request was meant for this proxy.
fn prepare(
    head: &RequestHead,
    target: &str,
    mut request: Request<Incoming>,
) -> Option<Request<Incoming>> {
    let fields = request.headers_mut();
    match forwarding::rewrite_request(&head.method, head.version, &head.destination, fields) {
        NextHop::Here => None,
        NextHop::Origin => {
            // The head's parser let through only what `Uri` takes.
            *request.uri_mut() = target.parse().unwrap_or_default();
            *request.version_mut() = http::Version::HTTP_11;
            Some(request)
        }
    }
}

/// Resolves, checks and dials.
async fn connect(context: &Context, permit: Permit<'_>) -> Result<Connection, No> {
    let shared = &context.shared;
    let limits = &shared.limits;
    let answers: Vec<IpAddr> = match permit.name() {
        Some(name) => lookup(&*shared.resolver, name, limits.dns)
            .await
            .map_err(Refusal::from)?,
        None => Vec::new(),
    };
    let own = context.own_addresses(permit.destination(), &answers);
    let dialable = permit.check(&answers, &own).map_err(|failure| No {
        refusal: failure.refusal,
        address: failure.address,
    })?;
    dial(
        &*shared.connector,
        &dialable,
        limits.connect,
        limits.attempt_delay,
    )
    .await
    .map_err(|failure| No {
        refusal: failure.failed.into(),
        address: Some(failure.address),
    })
}
