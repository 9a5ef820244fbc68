//! The decision table, `tests/cases/decisions.json`: what is sent, what the resolver answers, and
//! what must come of it, the audit line byte for byte. Twice: through the core alone, and through a
//! real listener with a recording dialer.
//!
//! A request is written with one character per byte. A run of something is written `[unit, count]`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use strait::audit::{Reason, Record};
use strait::destination::Host;
use strait::document;
use strait::forwarding;
use strait::head::{Form, RefusedHead, RequestHead};
use strait::policy::Policy;
use strait::proxy::Limits;
use strait::refusal::{Failed, Malformed, Refusal};
use strait::rule::Rule;

use crate::harness::{Dial, Origin, Setup, fixed_clock};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    policy: PolicyText,
    answers: HashMap<String, Answer>,
    cases: Vec<Case>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    allow: Vec<String>,
    #[serde(default)]
    allow_net: Vec<String>,
}

/// Addresses, or the code of a failure.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Answer {
    Addresses(Vec<IpAddr>),
    Failure(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Pieces(Vec<Piece>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Piece {
    Once(String),
    Repeated(String, usize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    policy: Option<PolicyText>,
    answers: Option<HashMap<String, Answer>>,
    send: Text,
    status: u16,
    proxy_status: Option<String>,
    audit: String,
}

impl Case {
    /// The request, one byte per character.
    fn bytes(&self) -> Vec<u8> {
        let text = match &self.send {
            Text::Plain(text) => text.clone(),
            Text::Pieces(pieces) => {
                let piece = |piece: &Piece| match piece {
                    Piece::Once(text) => text.clone(),
                    Piece::Repeated(unit, count) => unit.repeat(*count),
                };
                pieces.iter().map(piece).collect()
            }
        };
        let byte = |character| u8::try_from(u32::from(character)).expect("one byte per character");
        text.chars().map(byte).collect()
    }
}

fn table() -> Table {
    let text = include_str!("../cases/decisions.json");
    serde_json::from_str(text).expect("the table is well-formed")
}

fn failure(code: &str) -> Failed {
    match code {
        "dns_failed" => Failed::Dns,
        "dns_name_not_found" => Failed::DnsNameNotFound,
        "dns_no_records" => Failed::DnsNoRecords,
        "dns_timeout" => Failed::DnsTimeout,
        other => panic!("{other} is no failure of a resolver"),
    }
}

/// The pipeline without I/O: what was decided, and the record of it.
fn decide(case: &Case, policy: &Policy, answers: &HashMap<String, Answer>) -> (Reason, String) {
    let mut record = Record {
        time: fixed_clock(),
        server: None,
        id: 1,
        method: None,
        host: None,
        port: None,
        allowed: false,
        reason: Reason::Listed,
        address: None,
        elapsed: Duration::ZERO,
    };
    let mut bytes = case.bytes();
    let line_breaks = bytes
        .iter()
        .take_while(|byte| b"\r\n".contains(byte))
        .count();
    bytes.drain(..line_breaks);
    let head = RequestHead::parse(&bytes, Limits::default().head)
        // The client stops there.
        .and_then(|head| head.ok_or_else(|| RefusedHead::new(Malformed::HeadIncomplete, &bytes)));
    let head = match head {
        Ok(head) => head,
        Err(refused) => {
            record.reason = Reason::Refused(refused.reason.into());
            record.method = refused.method.as_deref();
            record.host = refused.host.as_deref();
            return (record.reason, record.to_line());
        }
    };
    let host = head.destination.host().bare();
    record.method = Some(head.method.as_str());
    record.host = Some(&host);
    record.port = Some(head.destination.port().number());

    let outcome = (|| {
        let permit = policy.permit(head.destination.clone())?;
        if let Form::Forward { .. } = head.form {
            forwarding::check(&head.method, &fields(&bytes))?;
        }
        let answers = match permit.destination().host() {
            Host::Ip(_) => Vec::new(),
            Host::Name(name) => match answers.get(name.as_str()) {
                Some(Answer::Addresses(addresses)) => addresses.clone(),
                Some(Answer::Failure(code)) => return Err(Refusal::from(failure(code))),
                None => return Err(Failed::DnsNameNotFound.into()),
            },
        };
        permit.check(&answers, &[]).map_err(|failure| {
            record.address = failure.address;
            failure.refusal
        })
    })();
    match outcome {
        Ok(dialable) => {
            record.allowed = true;
            record.address = Some(dialable.addresses()[0].get());
        }
        Err(refusal) => {
            record.allowed = matches!(refusal, Refusal::Failed(_));
            record.reason = Reason::Refused(refusal);
        }
    }
    (record.reason, record.to_line())
}

/// The fields of a head that has been parsed already.
fn fields(head: &[u8]) -> http::HeaderMap {
    let head = String::from_utf8_lossy(head);
    let lines = head
        .split("\r\n")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let field = |line: &str| {
        let (name, value) = line.split_once(':').expect("a field");
        (
            name.parse().expect("a name"),
            value.trim().parse().expect("a value"),
        )
    };
    lines
        .map(field)
        .collect::<Vec<(http::HeaderName, http::HeaderValue)>>()
        .into_iter()
        .collect()
}

#[test]
fn the_core_decides_every_case_as_the_table_says() {
    let table = table();
    let mut wrong = Vec::new();
    for case in &table.cases {
        let policy = case.policy.as_ref().unwrap_or(&table.policy);
        let rules = policy
            .allow
            .iter()
            .map(|rule| Rule::parse(rule).expect("a rule"));
        let networks = policy.allow_net.iter();
        let networks = networks.map(|network| document::parse_network(network).expect("a network"));
        let policy = Policy::new(rules, networks).expect("a policy");
        let (reason, line) = decide(
            case,
            &policy,
            case.answers.as_ref().unwrap_or(&table.answers),
        );
        let proxy_status = match reason {
            Reason::Refused(refusal) => Some(refusal.proxy_status()),
            Reason::Listed | Reason::Cut(_) => None,
        };
        if line.trim_end() != case.audit || proxy_status != case.proxy_status {
            wrong.push(format!(
                "{}\n  want {}\n  got  {line}",
                case.name, case.audit
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        table.cases.len(),
        wrong.join("\n")
    );
}

#[tokio::test]
async fn a_real_proxy_answers_and_records_every_case_as_the_table_says() {
    let table = table();
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let mut wrong = Vec::new();
    for case in &table.cases {
        let policy = case.policy.as_ref().unwrap_or(&table.policy);
        let rules: Vec<&str> = policy.allow.iter().map(String::as_str).collect();
        let mut setup = Setup::allowing(&rules).dialling(Dial::To(origin.address));
        for network in &policy.allow_net {
            setup = setup.opening(network);
        }
        for (name, answer) in case.answers.as_ref().unwrap_or(&table.answers) {
            setup = match answer {
                Answer::Failure(code) => setup.failing(name, failure(code)),
                Answer::Addresses(addresses) => {
                    let addresses: Vec<String> =
                        addresses.iter().map(ToString::to_string).collect();
                    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
                    setup.answering(name, &addresses)
                }
            };
        }
        let proxy = setup.start().await;
        let mut client = proxy.client_sending(case.bytes()).await;
        let response = client.response().await;
        let proxy_status = response.field("proxy-status").map(str::to_owned);
        let (dialled, resolved) = (proxy.dialled(), proxy.resolved());
        drop(client);
        let lines = proxy.stop().await;

        let mut complain = |what: String| wrong.push(format!("{}: {what}", case.name));
        if lines != [case.audit.as_str()] {
            complain(format!("audit\n  want {}\n  got  {lines:?}", case.audit));
        }
        if response.status != case.status || proxy_status != case.proxy_status {
            complain(format!("answered {} {proxy_status:?}", response.status));
        }
        let is_refused = case.proxy_status.is_some();
        if is_refused != dialled.is_empty() {
            complain(format!("dialled {dialled:?}"));
        }
        // Before the address check nothing is resolved for a refusal, and one name for the rest.
        let permitted =
            case.audit.contains("\"allowed\":true") || case.audit.contains("_address\"");
        if resolved.len() > 1 || (!permitted && !resolved.is_empty()) {
            complain(format!("resolved {resolved:?}"));
        }
        if is_refused
            && !response
                .body
                .contains(&format!("\"error\":\"{}\"", code_of(case)))
        {
            complain(format!("body {}", response.body));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        table.cases.len(),
        wrong.join("\n")
    );
}

/// The refusal code that a case's `Proxy-Status` carries.
fn code_of(case: &Case) -> &str {
    let status = case.proxy_status.as_deref().unwrap_or_default();
    let (_, details) = status
        .split_once("details=\"")
        .expect("every refusal has its code");
    details.trim_end_matches('"')
}
