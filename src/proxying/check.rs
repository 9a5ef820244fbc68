//! `strait check`: a decision, explained.

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;

use strait::address::Reach;
use strait::destination::Destination;
use strait::policy::{Permit, Policy};
use strait::proxy::{Limits, Resolve, lookup};
use strait::refusal::{Denied, Refusal};
use strait::rule::{Rule, RuleError};

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

/// Says what is listed for the host, if only its port is not, and what would add the destination:
/// nothing does where the flag would be refused.
fn not_listed(policy: &Policy, destination: &Destination) -> String {
    let same_host = policy
        .rules()
        .iter()
        .filter(|rule| rule.host() == destination.host());
    let ports: Vec<String> = same_host
        .flat_map(Rule::ports)
        .map(|port| port.to_string())
        .collect();
    let state = if ports.is_empty() {
        "not on the list".to_owned()
    } else {
        format!("listed for port {} only", ports.join(", "))
    };
    match Rule::for_destination(destination) {
        Ok(rule) => format!("{state}; --allow {rule} would add it"),
        Err(RuleError::Localhost(_)) => {
            format!("{state}; it leads to loopback, which is never opened")
        }
        Err(RuleError::NeverAddress { class, .. }) => {
            let class = class.describe();
            format!("{state}; it leads to {class}, which is never opened")
        }
        Err(RuleError::Mapped { instead, .. }) => {
            format!("{state}; it is an IPv4 address: ask for {instead}, and list that")
        }
        // What has been parsed to a destination has none of these faults.
        Err(
            RuleError::Empty
            | RuleError::Wildcard(_)
            | RuleError::Url { .. }
            | RuleError::Userinfo(_)
            | RuleError::Brackets { .. }
            | RuleError::Port(_)
            | RuleError::Host(_)
            | RuleError::Spelling { .. },
        ) => state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags that a message advises.
    fn advised(message: &str) -> impl Iterator<Item = &str> {
        message
            .split("--allow ")
            .skip(1)
            .filter_map(|rest| rest.split(' ').next())
    }

    #[test]
    fn what_is_advised_opens_the_way_and_what_opens_none_is_not_advised() {
        let policy = Policy::new([Rule::parse("www.example.com:80").expect("a rule")], []);
        let policy = policy.expect("a policy");
        for (asked, is_open) in [
            ("api.example.com:443", true),
            ("www.example.com:443", true),
            ("API.example.com.:8443", true),
            ("93.184.216.34:443", true),
            ("[2606:4700::1111]:443", true),
            ("10.0.0.5:5432", true),
            ("100.64.0.1:80", true),
            ("[fd12::1]:443", true),
            ("[64:ff9b::a00:5]:443", true),
            ("localhost:443", false),
            ("a.localhost:80", false),
            ("127.0.0.1:80", false),
            ("[::1]:443", false),
            ("169.254.169.254:80", false),
            ("100.100.100.200:80", false),
            ("0.0.0.0:80", false),
            ("224.0.0.1:80", false),
            ("[fe80::1]:80", false),
            ("[::ffff:127.0.0.1]:80", false),
            ("[::ffff:93.184.216.34]:443", false),
            ("[::ffff:10.0.0.5]:443", false),
            ("[64:ff9b::7f00:1]:443", false),
        ] {
            let destination = Destination::from_authority_form(asked).expect(asked);
            let message = not_listed(&policy, &destination);
            let rules: Vec<Rule> = advised(&message)
                .map(|entry| Rule::parse(entry).expect(&message))
                .collect();
            assert_eq!(rules.len(), usize::from(is_open), "{message}");
            let wider = Policy::new(rules, []).expect("a policy");
            let Ok(permit) = wider.permit(destination) else {
                assert!(!is_open, "{message}");
                continue;
            };
            let answers = ["93.184.216.34".parse().expect("an address")];
            assert!(permit.check(&answers, &[]).is_ok(), "{message}");
        }
    }

    #[test]
    fn what_is_never_opened_is_said_with_its_reason() {
        for (asked, said) in [
            ("localhost:443", "leads to loopback, which is never opened"),
            (
                "[::1]:443",
                "leads to the loopback network, which is never opened",
            ),
            (
                "169.254.169.254:80",
                "leads to a link-local address, which is never opened",
            ),
            ("[::ffff:93.184.216.34]:443", "ask for 93.184.216.34:443"),
        ] {
            let destination = Destination::from_authority_form(asked).expect(asked);
            let message = not_listed(&Policy::default(), &destination);
            assert!(message.contains(said), "{message}");
        }
    }
}
