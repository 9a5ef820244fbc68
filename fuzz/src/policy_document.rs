//! Policy documents: what is read prints back to itself, and a rule more or less moves the grants
//! the way it should.
//!
//! An input is an entry on the first line, and a document after it.

use std::net::IpAddr;

use ipnet::IpNet;
use strait::destination::{Destination, Port};
use strait::document;
use strait::policy::Policy;
use strait::rule::Rule;

/// Entries beyond these say nothing new, and cost a policy each.
const MOST_ENTRIES: usize = 16;

/// Reads, prints, widens and narrows the policy of an input.
pub fn check(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let (extra, document) = text.split_once('\n').unwrap_or(("", text));
    if let Ok(rule) = Rule::parse(extra) {
        assert_eq!(Rule::parse(&rule.to_string()), Ok(rule));
    }
    let Ok(policy) = Policy::from_document(document) else {
        return;
    };
    let printed = document::print(&policy);
    let again = Policy::from_document(&printed).expect("what was printed is a document");
    assert_eq!(again, policy, "{printed}");

    if policy.rules().len() + policy.networks().len() <= MOST_ENTRIES {
        check_rules(&policy, extra);
        check_networks(&policy, extra);
    }
}

fn check_rules(policy: &Policy, extra: &str) {
    let rules = policy.rules();
    let networks = || policy.networks().iter().copied();
    let extra = Rule::parse(extra)
        .ok()
        .filter(|extra| !rules.contains(extra));
    let questions = questions(rules.iter().chain(&extra));

    if let Some(extra) = extra {
        let more = rules.iter().cloned().chain([extra.clone()]);
        let wider = Policy::new(more, networks()).expect("one rule more");
        for question in &questions {
            let is_new = extra.grants().any(|grant| grant == *question);
            assert_eq!(
                grants(&wider, question),
                grants(policy, question) || is_new,
                "{question} with {extra}"
            );
        }
    }
    for left_out in rules {
        let fewer = rules.iter().filter(|rule| *rule != left_out).cloned();
        let narrower = Policy::new(fewer, networks()).expect("one rule less");
        for question in &questions {
            assert!(
                grants(policy, question) || !grants(&narrower, question),
                "{question} without {left_out}"
            );
        }
    }
}

/// Every host of the rules, with its ports and with ports near them.
fn questions<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<Destination> {
    let of_rule = |rule: &Rule| {
        let host = rule.host().clone();
        let own = rule.ports().map(Port::number).collect::<Vec<_>>();
        let near = own.into_iter().flat_map(|port| [port, port ^ 1]);
        near.chain([80, 443, 8080])
            .filter_map(move |port| Some(Destination::new(host.clone(), port_of(port)?)))
            .collect::<Vec<_>>()
    };
    rules.flat_map(of_rule).collect()
}

fn port_of(number: u16) -> Option<Port> {
    Port::parse(&number.to_string()).ok()
}

fn grants(policy: &Policy, question: &Destination) -> bool {
    policy.permit(question.clone()).is_ok()
}

/// A network more never closes an address, and opens none outside itself.
fn check_networks(policy: &Policy, extra: &str) {
    let Ok(extra) = document::parse_network(extra) else {
        return;
    };
    let networks = || policy.networks().iter().copied();
    let all: Vec<IpNet> = networks().chain([extra]).collect();
    let name = Rule::parse("name.test").expect("a rule");
    let (Ok(before), Ok(after)) = (
        Policy::new([name.clone()], networks()),
        Policy::new([name], all.iter().copied()),
    ) else {
        return;
    };
    let edges = all
        .iter()
        .flat_map(|network| [network.network(), network.broadcast()]);
    for address in edges.chain([IpAddr::from([1, 1, 1, 1]), IpAddr::from([10, 0, 0, 1])]) {
        let (was, is) = (reaches(&before, address), reaches(&after, address));
        assert!(
            is == was || (is && extra.contains(&address)),
            "{address} with {extra}"
        );
    }
}

/// Whether a policy that lists `name.test` lets it lead to `address`.
fn reaches(policy: &Policy, address: IpAddr) -> bool {
    let destination = Destination::from_authority_form("name.test:443").expect("a destination");
    let permit = policy.permit(destination).expect("listed");
    permit.check(&[address], &[]).is_ok()
}
