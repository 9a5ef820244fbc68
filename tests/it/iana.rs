//! The address table against IANA's special-purpose address registries (`tests/data`).
//!
//! The table is written by hand; this says where it has drifted. `scripts/check-iana` runs it, and
//! prints the lines that begin with `iana: `.

use std::collections::BTreeMap;
use std::mem;
use std::net::IpAddr;

use ipnet::IpNet;
use strait::address::{self, Class};

const IPV4: &str = include_str!("../data/iana-ipv4-special-registry.csv");
const IPV6: &str = include_str!("../data/iana-ipv6-special-registry.csv");

const COLUMNS: [&str; 10] = [
    "Address Block",
    "Name",
    "RFC",
    "Allocation Date",
    "Termination Date",
    "Source",
    "Destination",
    "Forwardable",
    "Globally Reachable",
    "Reserved-by-Protocol",
];

/// Blocks at whose ends we differ from "Globally Reachable", and why.
const DIFFERENT: &[(&str, &str)] = &[(
    "64:ff9b::/96",
    "NAT64 is as reachable as what it translates to, and its ends are 0.0.0.0 and 255.255.255.255",
)];

/// Rows of the table that are in neither registry, and where they come from.
const BEYOND: &[(&str, &str)] = &[
    ("0.0.0.0/0", "what is not special is public"),
    ("100.80.80.80/32", "a vendor's metadata service"),
    ("100.96.0.96/32", "a vendor's metadata service"),
    ("100.100.100.200/32", "a vendor's metadata service"),
    ("168.63.129.16/32", "a vendor's host service"),
    ("192.0.0.192/32", "a vendor's metadata service"),
    ("224.0.0.0/4", "the multicast registry"),
    ("::/0", "the IPv6 address space registry"),
    ("::/96", "deprecated, and never in the registry"),
    ("::ffff:0:0:0/96", "obsolete, and never in the registry"),
    ("2000::/3", "the IPv6 address space registry"),
    ("fd00:42::42/128", "a vendor's metadata service"),
    ("fd00:c1::a9fe:a9fe/128", "a vendor's metadata service"),
    ("fd00:100::100:200/128", "a vendor's metadata service"),
    ("fd00:ec2::/32", "a vendor's host services"),
    ("fd00:a9fe:a9fe::1/128", "a vendor's metadata service"),
    ("fd20:ce::254/128", "a vendor's metadata service"),
    ("fec0::/10", "the IPv6 address space registry"),
    ("ff00::/8", "the multicast registry"),
];

#[test]
fn a_block_is_public_exactly_where_the_registry_says_so() {
    let blocks = registry();
    let excepted = reasons(DIFFERENT);
    let mut differences = Vec::new();
    for (network, block) in &blocks {
        let ends = [network.network(), network.broadcast()];
        let differs = ends
            .into_iter()
            .any(|end| is_public(end) != block.reachable);
        match (differs, excepted.get(network)) {
            (false, None) | (true, Some(_)) => {}
            (true, None) => differences.push(format!(
                "{network} ({}): globally reachable is {}, but the table makes its ends {:?}",
                block.name,
                block.reachable,
                ends.map(address::classify),
            )),
            (false, Some(reason)) => differences.push(format!(
                "{network}: the table and the registry agree; remove the exception ({reason})"
            )),
        }
    }
    for (network, reason) in &excepted {
        if !blocks.contains_key(network) {
            differences.push(format!(
                "{network}: not a block of the registry; remove the exception ({reason})"
            ));
        }
    }
    report(&differences);
}

#[test]
fn the_table_has_the_registries_blocks_and_a_reason_for_any_other() {
    let blocks = registry();
    let beyond = reasons(BEYOND);
    let rows: BTreeMap<IpNet, &str> = address::table()
        .iter()
        .map(|row| (row.network, row.source))
        .collect();
    let mut differences = Vec::new();
    for (network, block) in &blocks {
        match rows.get(network) {
            None => differences.push(format!(
                "{network} ({}): in the registry, not in the table",
                block.name
            )),
            Some(source) if !block.documents.contains(&document(source)) => {
                differences.push(format!(
                    "{network}: the table cites {source}, the registry {}",
                    block.documents
                ));
            }
            Some(_) => {}
        }
    }
    for (network, source) in &rows {
        match (blocks.contains_key(network), beyond.get(network)) {
            (true, None) | (false, Some(_)) => {}
            (false, None) => differences.push(format!(
                "{network} ({source}): in the table, not in the registry"
            )),
            (true, Some(reason)) => differences.push(format!(
                "{network}: the registry has it now; remove the exception ({reason})"
            )),
        }
    }
    for (network, reason) in &beyond {
        if !rows.contains_key(network) {
            differences.push(format!(
                "{network}: not in the table; remove the exception ({reason})"
            ));
        }
    }
    report(&differences);
}

/// One address block of a registry.
struct Block {
    name: String,
    /// As the registry writes them: `[RFC8190] [RFC919], Section 7`.
    documents: String,
    reachable: bool,
}

fn registry() -> BTreeMap<IpNet, Block> {
    let mut blocks = BTreeMap::new();
    for (text, is_ipv4) in [(IPV4, true), (IPV6, false)] {
        let mut records = records(text).into_iter();
        let columns = records.next().unwrap_or_default();
        assert_eq!(columns, COLUMNS, "iana: the columns have changed");
        for record in records {
            let Ok([networks, name, documents, .., reachable, _]) =
                <[String; COLUMNS.len()]>::try_from(record)
            else {
                panic!("iana: a record has too few or too many fields");
            };
            for network in networks.split(',') {
                let network = parsed(without_footnote(network));
                let block = Block {
                    name: name.clone(),
                    documents: documents.split_whitespace().collect::<Vec<_>>().join(" "),
                    reachable: without_footnote(&reachable) == "True",
                };
                assert_eq!(
                    network.addr().is_ipv4(),
                    is_ipv4,
                    "iana: {network} is in the wrong file"
                );
                assert!(
                    blocks.insert(network, block).is_none(),
                    "iana: {network} is there twice"
                );
            }
        }
    }
    blocks
}

/// RFC 4180: fields in quotes may hold commas, line ends and doubled quotes.
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(mem::take(&mut field)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                record.push(mem::take(&mut field));
                records.push(mem::take(&mut record));
            }
            _ => field.push(character),
        }
    }
    if !record.is_empty() {
        record.push(field);
        records.push(record);
    }
    records
}

/// Footnotes: `192.0.0.0/24 [2]`, `False [1]`.
fn without_footnote(field: &str) -> &str {
    field.split('[').next().unwrap_or(field).trim()
}

/// `RFC 919 §7` as the registries write it: `[RFC919]`.
fn document(source: &str) -> String {
    let number = source.split(' ').nth(1).unwrap_or_default();
    format!("[RFC{number}]")
}

fn is_public(address: IpAddr) -> bool {
    address::classify(address) == Class::Public
}

fn reasons(list: &[(&str, &'static str)]) -> BTreeMap<IpNet, &'static str> {
    list.iter()
        .map(|(network, reason)| (parsed(network), *reason))
        .collect()
}

fn parsed(network: &str) -> IpNet {
    network
        .parse()
        .unwrap_or_else(|error| panic!("iana: {network}: {error}"))
}

fn report(differences: &[String]) {
    assert!(
        differences.is_empty(),
        "the table has drifted\niana: {}",
        differences.join("\niana: ")
    );
}
