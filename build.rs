//! Hands the commit to `strait --version`.

use std::process::Command;

#[expect(
    clippy::disallowed_methods,
    reason = "a build may be told its commit; the program may not"
)]
fn main() {
    println!("cargo:rerun-if-env-changed=STRAIT_COMMIT");
    // An image build has no repository and passes the commit in; a crate from a registry has neither.
    let commit = std::env::var("STRAIT_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    let commit = commit.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!(
        "cargo:rustc-env=STRAIT_COMMIT={}",
        commit.as_deref().unwrap_or("unknown commit")
    );
    for of in ["HEAD", "refs/heads", "packed-refs"] {
        if let Some(path) = git(&["rev-parse", "--git-path", of])
            && std::path::Path::new(&path).exists()
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "runs when strait is built, not in it"
)]
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
