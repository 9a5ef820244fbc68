//! What the documents say is there, is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use strait::audit::{Cut, Reason, Record};

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
        "launch",
        "program",
        "tunnel",
    ] {
        known.insert(module.to_owned());
        known.extend(tests_of(&format!("tests/it/{module}.rs"), module));
    }
    for file in [
        "clients",
        "dns",
        "forwarding",
        "lifecycle",
        "targets",
        "tunnels",
    ] {
        let source = read(&format!("tests/e2e/test_{file}.py"));
        let names = source
            .split("\ndef ")
            .skip(1)
            .filter_map(|rest| rest.split('(').next());
        known.extend(names.map(|name| format!("e2e/{name}")));
    }
    known.extend(tests_of("src/forwarding.rs", "forwarding::tests"));
    known.extend(tests_of("src/proxy/tunnel.rs", "tunnel::tests"));
    known.extend(tests_of("src/launch/plan/tests.rs", "plan::tests"));
    let mut checked = 0;
    for document in [
        "src/lib.rs",
        "SECURITY.md",
        "README.md",
        "CONTRIBUTING.md",
        "tests/cases/README.md",
    ] {
        for name in quoted(&read(document).replace("//!", "")) {
            let name = name.split_whitespace().collect::<String>();
            let is_word = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let is_test = name.replace("e2e/", "e2e::").split("::").count() > 1
                && name
                    .split("::")
                    .all(|part| is_word(&part.replace("e2e/", "")))
                && name.matches('_').count() > 2;
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
        checked > 40,
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
    for subcommand in [
        "proxy",
        "check",
        "completions",
        "launch",
        "doctor",
        "pull",
        "list",
        "sweep",
        "config",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_strait"))
            .args([subcommand, "--help"])
            .output();
        help += &String::from_utf8(output.expect("it starts").stdout).expect("text");
    }
    // Of the runtimes, not ours.
    help += "--internal --flag";
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

#[test]
fn the_configuration_of_the_readme_is_one() {
    let readme = read("README.md").replace("DIGEST", &"0123456789abcdef".repeat(4));
    let block = readme.split("```toml\n").nth(1).expect("a block");
    let text = block.split("```").next().expect("its end");
    let config = strait::launch::config::Config::parse(text).expect("it is read");
    let server = config.servers().next().expect("a server");
    assert_eq!(server.name().as_str(), "notion");
    assert_eq!(server.network().len(), 1);
    assert_eq!((server.secret().len(), server.env().len()), (1, 1));
    assert_eq!(server.mounts().len(), 2);
}

#[test]
fn the_audit_line_of_the_readme_is_one_this_program_writes() {
    let readme = read("README.md");
    let line = readme
        .lines()
        .find(|line| line.starts_with("{\"time\""))
        .expect("an audit line");
    let said: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let record = Record {
        time: humantime::parse_rfc3339(said["time"].as_str().expect("a time")).expect("a time"),
        server: said["server"].as_str(),
        id: said["id"].as_u64().expect("a number"),
        method: said["method"].as_str(),
        host: said["host"].as_str(),
        port: said["port"].as_u64().and_then(|port| port.try_into().ok()),
        allowed: said["allowed"].as_bool().expect("a verdict"),
        reason: Reason::Listed,
        address: said["address"]
            .as_str()
            .map(|text| text.parse().expect("an address")),
        elapsed: Duration::from_millis(said["ms"].as_u64().expect("a number")),
    };
    assert_eq!(record.to_line().trim_end(), line);
    // The codes it mentions are codes of the decision table or of a failure.
    let known = read("tests/cases/decisions.json")
        + &read("src/snapshots/strait__refusal__tests__refusals.snap");
    let audit = readme
        .split("## The audit line")
        .nth(1)
        .expect("the section");
    let audit = audit.split("## ").next().expect("the section");
    let mut checked = 0;
    for code in quoted(audit).filter(|code| code.contains('_') && !code.contains(['-', ' '])) {
        let is_cut = [Cut::ClientGone, Cut::Shutdown]
            .iter()
            .any(|cut| Reason::Cut(*cut).code() == code);
        assert!(
            known.contains(&format!("\\\"{code}\\\""))
                || known.contains(&format!("\"{code}\""))
                || is_cut,
            "{code}"
        );
        checked += 1;
    }
    assert!(
        checked >= 6,
        "only {checked} codes were found: the search is broken"
    );
}

#[test]
fn the_readme_s_check_prints_what_it_shows() {
    let readme = read("README.md");
    let (_, after) = readme.split_once("$ strait check ").expect("the example");
    let (command, after) = after.split_once('\n').expect("its output");
    let (shown, _) = after.split_once("```").expect("its end");
    let output = Command::new(env!("CARGO_BIN_EXE_strait"))
        .arg("check")
        .args(command.split(' '))
        .output()
        .expect("it starts");
    assert_eq!(String::from_utf8(output.stdout).expect("text"), shown);
    assert_eq!(output.status.code(), Some(1));
}
