//! `strait check`: a decision, explained.

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;

use strait::address::Reach;
use strait::destination::Destination;
use strait::policy::{Permit, Policy};
use strait::proxy::{Limits, Resolve, lookup};
use strait::refusal::{Denied, Refusal};
use strait::rule::Rule;

/// What the policy says of one destination, in the words of the audit line.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    destination: String,
    pub(crate) allowed: bool,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<SocketAddr>,
    message: String,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.allowed { "allowed" } else { "refused" };
        write!(f, "{verdict}  {}  {}", self.destination, self.message)
    }
}

/// Explains one destination; with a resolver, also whether its addresses pass now.
///
/// A failure to resolve counts as refused here: nothing could be reached.
pub(crate) async fn explain(
    policy: &Policy,
    destination: &Destination,
    resolver: Option<&dyn Resolve>,
) -> Explanation {
    let permit = match policy.permit(destination.clone()) {
        Ok(permit) => permit,
        Err(denied) => {
            return refused(
                destination,
                denied.into(),
                None,
                not_listed(policy, destination),
            );
        }
    };
    let rule = permit.rule().clone();
    match (permit.name().cloned(), resolver) {
        (Some(name), Some(resolver)) => {
            match lookup(resolver, &name, Limits::default().dns).await {
                Ok(answers) => checked(destination, permit, &answers, &rule),
                Err(failed) => {
                    let message = format!("by rule {rule}, but {failed}");
                    refused(destination, failed.into(), Some(&rule), message)
                }
            }
        }
        (Some(_), None) => allowed(destination, &rule, Vec::new()),
        (None, _) => checked(destination, permit, &[], &rule),
    }
}

fn checked(
    destination: &Destination,
    permit: Permit<'_>,
    answers: &[std::net::IpAddr],
    rule: &Rule,
) -> Explanation {
    match permit.check(answers, &[]) {
        Ok(dialable) => {
            let addresses = dialable
                .addresses()
                .iter()
                .map(|checked| checked.get())
                .collect();
            allowed(destination, rule, addresses)
        }
        Err(failure) => {
            let address = failure
                .address
                .map(|address| format!(" ({})", address.ip()));
            let address = address.unwrap_or_default();
            let remedy = match failure.refusal {
                Refusal::Denied(Denied::Address(class)) if class.reach() == Reach::Restricted => {
                    "; --allow-net can open it"
                }
                Refusal::Denied(_) | Refusal::Malformed(_) | Refusal::Failed(_) => "",
            };
            let message = format!("by rule {rule}, but {}{address}{remedy}", failure.refusal);
            refused(destination, failure.refusal, Some(rule), message)
        }
    }
}

fn allowed(destination: &Destination, rule: &Rule, addresses: Vec<SocketAddr>) -> Explanation {
    let at: Vec<String> = addresses
        .iter()
        .map(|address| address.ip().to_string())
        .collect();
    let at = if at.is_empty() {
        String::new()
    } else {
        format!(", at {}", at.join(" "))
    };
    Explanation {
        destination: destination.to_string(),
        allowed: true,
        reason: "listed",
        rule: Some(rule.to_string()),
        addresses,
        message: format!("by rule {rule}{at}"),
    }
}

fn refused(
    destination: &Destination,
    refusal: Refusal,
    rule: Option<&Rule>,
    message: String,
) -> Explanation {
    Explanation {
        destination: destination.to_string(),
        allowed: false,
        reason: refusal.code(),
        rule: rule.map(ToString::to_string),
        addresses: Vec::new(),
        message,
    }
}

/// Says what is listed for the host, if only its port is not.
fn not_listed(policy: &Policy, destination: &Destination) -> String {
    let same_host = policy
        .rules()
        .iter()
        .filter(|rule| rule.host() == destination.host());
    let ports: Vec<String> = same_host
        .flat_map(Rule::ports)
        .map(|port| port.to_string())
        .collect();
    if ports.is_empty() {
        format!("not on the list; --allow {destination} would add it")
    } else {
        let ports = ports.join(", ");
        format!("listed for port {ports} only; --allow {destination} would add it")
    }
}
