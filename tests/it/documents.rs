//! What the documents say is there, is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of a text between back quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// `module::test` for every test of a source file.
fn tests_of(path: &str, module: &str) -> Vec<String> {
    let source = read(path);
    let names = source
        .split("fn ")
        .skip(1)
        .filter_map(|rest| rest.split(['(', '<']).next());
    names.map(|name| format!("{module}::{name}")).collect()
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut known = BTreeSet::new();
    for module in [
        "audit",
        "decisions",
        "documents",
        "forwarding",
        "limits",
        "program",
        "tunnel",
    ] {
        known.insert(module.to_owned());
        known.extend(tests_of(&format!("tests/it/{module}.rs"), module));
    }
    known.extend(tests_of("src/forwarding.rs", "forwarding::tests"));
    known.extend(tests_of("src/proxy/tunnel.rs", "tunnel::tests"));
    let mut checked = 0;
    for document in ["src/lib.rs", "SECURITY.md", "README.md", "CONTRIBUTING.md"] {
        for name in quoted(&read(document).replace("//!", "")) {
            let name = name.split_whitespace().collect::<String>();
            let is_test = name.split("::").count() > 1
                && name.split("::").all(|part| {
                    part.bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
                })
                && name
                    .rsplit("::")
                    .next()
                    .is_some_and(|last| last.matches('_').count() > 2);
            if is_test {
                assert!(
                    known.contains(&name),
                    "{document} names `{name}`, which is no test"
                );
                checked += 1;
            }
        }
    }
    assert!(
        checked > 20,
        "only {checked} names were found: the search is broken"
    );
}

#[test]
fn every_row_that_a_document_names_is_tested() {
    let rows = read("tests/cases/decisions.json");
    let sources = ["tunnel", "forwarding", "limits", "audit", "program"]
        .map(|module| read(&format!("tests/it/{module}.rs")));
    let sources = sources.concat()
        + &read("src/policy.rs")
        + &read("src/forwarding.rs")
        + &read("src/head.rs");
    let security = read("SECURITY.md");
    let past = security
        .split("## Past failures")
        .nth(1)
        .expect("the section");
    let mut checked = 0;
    for word in past.split(|c: char| !c.is_ascii_alphanumeric()) {
        let (letter, number) = word.split_at(word.len().min(1));
        if "ABCDEGHIM".contains(letter) && !letter.is_empty() && number.parse::<u8>().is_ok() {
            let in_table = rows.contains(&format!("\"name\": \"{word}:"));
            let in_source = sources
                .split(|c: char| !c.is_ascii_alphanumeric())
                .any(|other| other == word);
            assert!(in_table || in_source, "row {word} has no test");
            checked += 1;
        }
    }
    assert!(
        checked > 10,
        "only {checked} rows were found: the search is broken"
    );
}

#[test]
fn every_flag_that_a_document_names_exists() {
    let mut help = String::new();
    for subcommand in ["proxy", "check", "completions"] {
        let output = Command::new(env!("CARGO_BIN_EXE_strait"))
            .args([subcommand, "--help"])
            .output();
        help += &String::from_utf8(output.expect("it starts").stdout).expect("text");
    }
    let mut checked = 0;
    for document in ["README.md", "SECURITY.md"] {
        let text = read(document);
        let strait = text
            .lines()
            .filter(|line| !line.contains("podman") && !line.contains("cargo"));
        for line in strait {
            for word in line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
                if word.starts_with("--") && word.trim_start_matches('-').len() > 1 {
                    assert!(
                        help.contains(word),
                        "{document} names `{word}`, which is no flag"
                    );
                    checked += 1;
                }
            }
        }
    }
    assert!(
        checked > 10,
        "only {checked} flags were found: the search is broken"
    );
}
