//! `strait launch` on a runtime that plays its part: order, undo, errors, ends, exit codes.
//!
//! What only real runtimes can show is in `tests/launch/`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::PATIENCE;

const IMAGE: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const RUNTIME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-runtime/runtime");
/// How long an end may take: clients give two seconds, and the machine is busy with the other tests.
const END: Duration = Duration::from_millis(1500);

/// A folder with a runtime that plays its part.
struct Fake {
    folder: PathBuf,
    kind: &'static str,
}

impl Drop for Fake {
    fn drop(&mut self) {
        // A test that failed leaves it to be looked at.
        if !thread::panicking() {
            // The last of its processes may still be ending.
            let due = Instant::now() + PATIENCE;
            while fs::remove_dir_all(&self.folder).is_err() && Instant::now() < due {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Fake {
    fn podman() -> Self {
        Self::new("podman")
    }

    fn docker() -> Self {
        Self::new("docker")
    }

    fn new(kind: &'static str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("strait-fake-{}-{number}", std::process::id());
        let fake = Self {
            folder: std::env::temp_dir().join(name),
            kind,
        };
        for folder in ["answers", "fail", "hold", "started", "state", "home"] {
            fs::create_dir_all(fake.path(folder)).expect("a folder of ours");
        }
        fs::copy(RUNTIME, fake.path(kind)).expect("a copy");
        fake.write(
            "answers/version",
            match kind {
                "podman" => r#"{"Client":{"Version":"4.3.1","OsArch":"linux/ARCH"}}"#,
                _ => {
                    r#"{"ServerVersion":"20.10.24","OSType":"linux","Architecture":"ARCH",
                        "MemoryLimit":true,"PidsLimit":true,"SecurityOptions":[]}"#
                }
            }
            .replace("ARCH", architecture()),
        );
        fake.write("answers/image", image(IMAGE, "sha256:aa"));
        let empty = "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";
        fake.write("answers/empty", image(empty, empty));
        fake.write("program", static_program());
        fs::set_permissions(fake.path("program"), fs::Permissions::from_mode(0o755)).expect("ours");
        fake
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("a file of ours");
    }

    /// Makes a step fail; see `tests/fake-runtime/runtime`.
    fn fail(&self, step: &str, how: &str) {
        self.write(&format!("fail/{step}"), how);
    }

    /// Makes a step wait until it is released.
    fn hold(&self, step: &str) {
        self.write(&format!("hold/{step}"), "");
    }

    fn release(&self, step: &str) {
        fs::remove_file(self.path(&format!("hold/{step}"))).expect("it was held");
    }

    fn serve(&self, script: &str) {
        self.write("server", format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(self.path("server"), fs::Permissions::from_mode(0o755)).expect("ours");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strait"));
        let path = format!("{}:/usr/bin:/bin", self.folder.display());
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.path("home"))
            .env("TOKEN", "a-secret-value")
            .arg("launch")
            .arg(format!("--runtime={}", self.kind))
            .arg(format!("--image={IMAGE}"))
            .arg("--name=notion")
            .arg(format!("--proxy-binary={}", self.path("program").display()))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let child = self.command(arguments).spawn().expect("it starts");
        Running { child }
    }

    /// Launches with a client that sends `input` and ends; one that has nothing to send stays.
    fn launch(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut running = self.start(arguments);
        let mut stdin = running.child.stdin.take().expect("piped");
        let input = input.to_vec();
        let feeding = thread::spawn(move || {
            // A launch that fails does not read.
            let _ = stdin.write_all(&input);
            input.is_empty().then_some(stdin)
        });
        let output = running.output();
        drop(feeding.join().expect("no panic"));
        output
    }

    /// The calls so far, each as its words.
    fn calls(&self) -> Vec<Vec<String>> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        let words = |line: &str| line.split('\t').map(str::to_owned).collect();
        log.lines().map(words).collect()
    }

    /// The steps so far: the verb, and the end of the name.
    fn steps(&self) -> Vec<String> {
        let step = |words: Vec<String>| {
            let verb = match words[0].as_str() {
                "network" | "image" => words[1].clone(),
                verb => verb.to_owned(),
            };
            let name = words.iter().find_map(|word| word.strip_prefix("--name="));
            let name = name.unwrap_or_else(|| words.last().map_or("", String::as_str));
            format!("{verb}-{}", name.rsplit('-').next().unwrap_or_default())
        };
        self.calls().into_iter().map(step).collect()
    }

    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("state")).expect("it is there");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("readable").file_name();
        entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect()
    }

    fn assert_nothing_is_left(&self) {
        until("nothing is left", || self.left().is_empty());
    }
}

/// A launch under way; killed when a test ends before it does.
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn signal(&self, signal: rustix::process::Signal) {
        let process = i32::try_from(self.child.id()).expect("a process id");
        let process = rustix::process::Pid::from_raw(process).expect("not 0");
        rustix::process::kill_process(process, signal).expect("it runs");
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the launch ends", || {
            status = self.child.try_wait().expect("it can be asked");
            status.is_some()
        });
        status.expect("it ended")
    }

    fn output(mut self) -> Output {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let read = |stream: Option<Box<dyn Read + Send>>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                stream
                    .map(|mut stream| stream.read_to_end(&mut bytes))
                    .transpose()
                    .expect("readable");
                bytes
            })
        };
        let stdout = read(stdout.map(|stream| Box::new(stream) as _));
        let stderr = read(stderr.map(|stream| Box::new(stream) as _));
        let status = self.wait();
        Output {
            status,
            stdout: stdout.join().expect("no panic"),
            stderr: stderr.join().expect("no panic"),
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let due = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < due, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn exists(path: &Path) -> bool {
    path.exists()
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

fn image(id: &str, layer: &str) -> String {
    let architecture = architecture();
    format!(
        r#"[{{"Id":"{id}","Architecture":"{architecture}","Config":{{}},"RootFS":{{"Layers":["{layer}"]}}}}]"#
    )
}

/// An ELF file that asks for no interpreter and no library: static, as far as anybody who does not
/// run it can tell. 64 bits, little-endian, an executable of one loaded segment (System V ABI).
fn static_program() -> Vec<u8> {
    const HEADER: u16 = 64;
    const SEGMENT_HEADER: u16 = 56;
    let machine: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([2, 0]);
    file.extend(machine.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    let (entry, segments, sections) = (0, u64::from(HEADER), 0);
    for offset in [entry, segments, sections] {
        file.extend(u64::to_le_bytes(offset));
    }
    file.extend([0; 4]);
    for size in [HEADER, SEGMENT_HEADER, 1, 64, 0, 0] {
        file.extend(size.to_le_bytes());
    }
    // One segment, to be loaded.
    file.extend(1_u32.to_le_bytes());
    file.resize(usize::from(HEADER + SEGMENT_HEADER), 0);
    file
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const NETWORK: &[&str] = &["--allow=api.notion.com", "--audit=none"];
const NO_NETWORK: &[&str] = &["--audit=none"];

/// The place of a step among those that were taken.
fn at(steps: &[String], step: &str) -> usize {
    let place = steps.iter().position(|taken| taken == step);
    place.unwrap_or_else(|| panic!("no {step} in {steps:?}"))
}

#[test]
fn the_steps_are_taken_in_order_and_taken_back() {
    for fake in [Fake::podman(), Fake::docker()] {
        let output = fake.launch(NETWORK, b"x");
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let steps = fake.steps();
        let mut order = vec![
            "create-in",
            "create-proxy",
            "start-proxy",
            "start-server",
            "rm-server",
            "rm-in",
        ];
        if fake.kind == "docker" {
            order.insert(2, "connect-proxy");
        }
        let places: Vec<usize> = order.iter().map(|step| at(&steps, step)).collect();
        assert!(places.is_sorted(), "{steps:?}");
        assert!(
            at(&steps, "create-out") < at(&steps, "create-proxy"),
            "{steps:?}"
        );
        assert!(
            at(&steps, "create-server") < at(&steps, "start-server"),
            "{steps:?}"
        );
        assert_eq!(fake.left(), Vec::<String>::new());
    }
}

#[test]
fn without_a_network_there_is_nothing_but_the_server() {
    let fake = Fake::podman();
    let output = fake.launch(NO_NETWORK, b"hello\n");
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), &b"hello\n"[..]),
        "{}",
        said(&output)
    );
    let steps = fake.steps();
    assert!(
        !steps
            .iter()
            .any(|step| step.ends_with("-proxy") || step.ends_with("-in")),
        "{steps:?}"
    );
}

#[test]
fn bytes_pass_unchanged_and_nothing_else_does() {
    let fake = Fake::podman();
    // Every byte, and what a terminal or a runtime would act on; more than any pipe holds.
    let mut sent: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    sent.extend(b"\x10\x11\r\n\0\xff");
    let output = fake.launch(NETWORK, &sent);
    assert!(
        output.stdout == sent,
        "{} bytes of {}",
        output.stdout.len(),
        sent.len()
    );
    assert_eq!(said(&output), "");
}

#[test]
fn a_byte_waits_for_nothing() {
    let fake = Fake::podman();
    let mut running = fake.start(NETWORK);
    let mut stdin = running.child.stdin.take().expect("piped");
    let mut stdout = BufReader::new(running.child.stdout.take().expect("piped"));
    for turn in 0..100 {
        let sent = format!("{turn}\n");
        stdin.write_all(sent.as_bytes()).expect("it reads");
        let mut line = String::new();
        stdout.read_line(&mut line).expect("it answers");
        assert_eq!(line, sent);
    }
    drop(stdin);
    assert_eq!(running.wait().code(), Some(0));
    fake.assert_nothing_is_left();
}

#[test]
fn the_server_s_exit_code_is_ours() {
    for (script, code) in [("exit 7", 7), ("exit 0", 0), ("kill -9 $$", 137)] {
        let fake = Fake::podman();
        fake.serve(script);
        let output = fake.launch(NETWORK, b"");
        assert_eq!(
            output.status.code(),
            Some(code),
            "{script}: {}",
            said(&output)
        );
        assert_eq!(fake.left(), Vec::<String>::new());
    }
}

#[test]
fn a_server_that_cannot_be_started_has_the_code_of_run() {
    for (kind, code, words, expected) in [
        (
            "podman",
            125,
            "Error: unable to start container 9c: exec: \"/x\": stat /x: no such file or directory",
            127,
        ),
        (
            "podman",
            125,
            "Error: unable to start container 9c: exec: \"/x\": permission denied",
            126,
        ),
        (
            "docker",
            1,
            "Error response from daemon: exec: \"/x\": stat /x: no such file or directory",
            127,
        ),
    ] {
        let fake = Fake::new(kind);
        fake.fail("start-server", &format!("{code}\n{words}\n"));
        let output = fake.launch(NETWORK, b"");
        assert_eq!(output.status.code(), Some(expected), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
        assert_eq!(fake.left(), Vec::<String>::new());
    }
}

#[test]
fn a_server_that_ignores_the_end_of_its_input_is_stopped() {
    let fake = Fake::podman();
    fake.serve("trap '' TERM INT HUP; echo up; exec sleep 1000");
    let mut running = fake.start(NETWORK);
    let mut line = String::new();
    BufReader::new(running.child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("it writes");
    assert_eq!(line, "up\n");
    drop(running.child.stdin.take());
    let ended = Instant::now();
    running.wait();
    assert!(ended.elapsed() < END, "took {:?}", ended.elapsed());
    assert_eq!(fake.left(), Vec::<String>::new());
}

#[test]
fn a_client_that_reads_no_more_is_gone() {
    let fake = Fake::podman();
    fake.serve("while :; do echo line; done");
    let mut running = fake.start(NETWORK);
    let mut line = String::new();
    let mut stdout = BufReader::new(running.child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("it writes");
    drop(stdout);
    running.wait();
    assert_eq!(fake.left(), Vec::<String>::new());
}

#[test]
fn a_signal_ends_it_and_the_code_says_so() {
    use rustix::process::Signal;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let fake = Fake::podman();
        fake.serve("trap '' TERM INT HUP; echo up; exec sleep 1000");
        let mut running = fake.start(NETWORK);
        let mut line = String::new();
        let mut stdout = BufReader::new(running.child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("it writes");
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(code));
        assert_eq!(fake.left(), Vec::<String>::new());
    }
}

#[test]
fn a_signal_before_the_server_is_started_leaves_nothing() {
    let fake = Fake::podman();
    fake.hold("create-server");
    let mut running = fake.start(NETWORK);
    until("it makes the server", || {
        exists(&fake.path("started/create-server"))
    });
    running.signal(rustix::process::Signal::TERM);
    fake.release("create-server");
    assert_eq!(running.wait().code(), Some(143));
    assert!(
        !fake.steps().contains(&"start-server".to_owned()),
        "{:?}",
        fake.steps()
    );
    assert_eq!(fake.left(), Vec::<String>::new());
}

#[test]
fn what_a_dead_launch_left_is_removed_beside_the_running_server() {
    let fake = Fake::podman();
    let output = fake.launch(NO_NETWORK, b"x");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    // That launch is dead now; as if its network were still there.
    let calls = fake.calls();
    let words = calls.iter().flatten();
    let labels: BTreeMap<&str, &str> = words
        .filter_map(|word| word.strip_prefix("--label=")?.split_once('='))
        .collect();
    let name = format!("strait-notion-{}-in", labels["strait.run"]);
    let networks = serde_json::json!([{"name": name, "labels": labels}]);
    fake.write("answers/networks", networks.to_string());
    fake.write(&format!("state/{name}"), "");

    let mut running = fake.start(NO_NETWORK);
    let mut stdin = running.child.stdin.take().expect("piped");
    let mut stdout = BufReader::new(running.child.stdout.take().expect("piped"));
    stdin.write_all(b"1\n").expect("it reads");
    let mut line = String::new();
    stdout.read_line(&mut line).expect("it answers");
    assert_eq!(line, "1\n");
    until("the network is removed", || !fake.left().contains(&name));
    let mut stderr = BufReader::new(running.child.stderr.take().expect("piped"));
    let mut notice = String::new();
    stderr.read_line(&mut notice).expect("it says so");
    let expected = format!("removed network {name}, which a dead launch left");
    assert!(notice.contains(&expected), "{notice}");
    drop(stdin);
    assert_eq!(running.wait().code(), Some(0));
    fake.assert_nothing_is_left();
}

#[test]
fn whatever_step_fails_it_is_named_and_nothing_is_left() {
    for kind in ["podman", "docker"] {
        for (step, words) in [
            (
                "create-proxy",
                "cannot make the proxy's container: it said why",
            ),
            (
                "create-server",
                "cannot make the server's container: it said why",
            ),
            ("start-proxy", "the proxy did not start: it said why"),
            (
                "connect",
                "cannot put the proxy into the internal network: it said why",
            ),
            ("create-in", "cannot make a network: it said why"),
            ("create-out", "cannot make a network: it said why"),
        ] {
            if step == "connect" && kind == "podman" {
                continue;
            }
            let fake = Fake::new(kind);
            // A network is tried again elsewhere, a container is not.
            let is_network = matches!(step, "create-in" | "create-out");
            let how = if is_network { "\nalways" } else { "\n" };
            fake.fail(step, &format!("125\nfirst line\nit said why{how}"));
            let output = fake.launch(NETWORK, b"");
            let expected = if is_network {
                words.replace("it said why", "always")
            } else {
                words.to_owned()
            };
            assert_eq!(
                output.status.code(),
                Some(125),
                "{kind} {step}: {}",
                said(&output)
            );
            assert!(
                said(&output).contains(&expected),
                "{kind} {step}: {}",
                said(&output)
            );
            assert!(
                !fake.steps().contains(&"start-server".to_owned()),
                "{kind} {step}"
            );
            assert_eq!(fake.left(), Vec::<String>::new(), "{kind} {step}");
        }
    }
}

#[test]
fn a_network_that_is_taken_is_tried_elsewhere() {
    let fake = Fake::docker();
    fake.fail(
        "create-in",
        "1\nPool overlaps with other one on this address space\n",
    );
    let output = fake.launch(NETWORK, b"hello");
    assert_eq!(output.stdout, b"hello", "{}", said(&output));
    let calls = fake.calls();
    let subnets: Vec<&String> = calls
        .iter()
        .filter(|call| {
            call[0] == "network" && call.last().is_some_and(|name| name.ends_with("-in"))
        })
        .flatten()
        .filter(|word| word.starts_with("--subnet="))
        .collect();
    assert_eq!(subnets.len(), 2);
    assert_ne!(subnets[0], subnets[1]);
    assert_eq!(fake.left(), Vec::<String>::new());
}

#[test]
fn a_proxy_that_ends_takes_the_server_with_it() {
    let fake = Fake::podman();
    fake.serve("echo up; exec cat");
    let mut running = fake.start(NETWORK);
    let mut line = String::new();
    let mut stdout = BufReader::new(running.child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("it writes");
    let proxy = fake
        .left()
        .into_iter()
        .find(|name| name.ends_with("-proxy"))
        .expect("it is there");
    let process = fs::read_to_string(fake.path("state").join(proxy)).expect("it runs");
    let process = process.trim().parse().expect("a process id");
    let process = rustix::process::Pid::from_raw(process).expect("not 0");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("it runs");
    let output = running.output();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        said(&output).contains("the proxy has ended; the server is stopped"),
        "{}",
        said(&output)
    );
    assert_eq!(fake.left(), Vec::<String>::new());
}

#[test]
fn a_launch_that_is_killed_leaves_nothing() {
    // At each of these it is under way: the command goes on, and what it makes is removed all the same.
    for (kind, step) in [
        ("podman", "create-in"),
        ("podman", "create-out"),
        ("podman", "create-proxy"),
        ("podman", "create-server"),
        ("docker", "connect"),
        ("podman", "start-proxy"),
        ("podman", "start-server"),
        ("podman", "rm-server"),
        ("podman", "rm-in"),
    ] {
        let fake = Fake::new(kind);
        fake.hold(step);
        let mut running = fake.start(NETWORK);
        if step.starts_with("rm-") {
            drop(running.child.stdin.take());
        }
        until(step, || exists(&fake.path(&format!("started/{step}"))));
        running.signal(rustix::process::Signal::KILL);
        running.wait();
        fake.release(step);
        until(&format!("nothing is left after {step}"), || {
            // A command that was held may make something yet: it must have been called, too.
            fake.left().is_empty() && fake.steps().contains(&"rm-in".to_owned())
        });
        fake.assert_nothing_is_left();
    }
}

#[test]
fn a_running_launch_that_is_killed_leaves_nothing() {
    let fake = Fake::podman();
    fake.serve("trap '' TERM INT HUP; echo up; exec sleep 1000");
    let mut running = fake.start(NETWORK);
    let mut line = String::new();
    let mut stdout = BufReader::new(running.child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("it writes");
    running.signal(rustix::process::Signal::KILL);
    running.wait();
    fake.assert_nothing_is_left();
}

#[test]
fn what_cannot_be_removed_at_once_is_removed_later() {
    let fake = Fake::podman();
    fake.fail("rm-in", "1\nthe daemon is being restarted\n");
    let output = fake.launch(NETWORK, b"x");
    assert_eq!(output.status.code(), Some(0));
    assert!(
        said(&output).contains("-in` is left: the daemon is being restarted"),
        "{}",
        said(&output)
    );
    fake.assert_nothing_is_left();
}

#[test]
fn a_secret_s_value_is_on_no_command_line() {
    let fake = Fake::podman();
    fake.serve("echo $TOKEN >&2");
    let output = fake.launch(
        &["--allow=api.notion.com", "--secret=TOKEN", "--audit=none"],
        b"",
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let calls = fake.calls();
    assert!(calls.iter().flatten().any(|word| word == "--env=TOKEN"));
    assert!(
        !calls
            .iter()
            .flatten()
            .any(|word| word.contains("a-secret-value"))
    );
    let environment = fs::read_to_string(fake.path("environment")).expect("it was made");
    assert!(
        environment.contains("TOKEN=a-secret-value"),
        "the runtime has it to give"
    );
    assert_eq!(said(&output), "[TOKEN]\n");
}

#[test]
fn printing_the_plan_makes_nothing() {
    let fake = Fake::docker();
    let output = fake.launch(&["--allow=api.notion.com", "--print"], b"");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let plan = String::from_utf8(output.stdout).expect("text");
    assert!(
        plan.contains("\n  --internal\n") && plan.contains("\n  --allow=api.notion.com\n"),
        "{plan}"
    );
    let effects: Vec<String> = fake
        .steps()
        .into_iter()
        .filter(|step| !step.starts_with("in"))
        .collect();
    assert_eq!(
        effects,
        Vec::<String>::new(),
        "only questions: info, inspect"
    );
}
