//! The program as others start it: readiness, lifeline, signals, exit codes, words.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::PATIENCE;

fn strait() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strait"));
    // Nothing in the environment changes what it does (M15).
    command.env_clear();
    command
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("ALL_PROXY", "socks5://127.0.0.1:1");
    command
}

fn run(arguments: &[&str]) -> Output {
    strait()
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// A started `strait proxy`; killed when dropped.
struct Started {
    child: Child,
    stdin: Option<ChildStdin>,
    stderr: BufReader<PipeReader>,
    address: String,
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Started {
    fn new(arguments: &[&str]) -> Self {
        Self::writing_to(Stdio::piped(), arguments)
    }

    fn writing_to(stdout: impl Into<Stdio>, arguments: &[&str]) -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        Self::telling(strait(), reader, writer, stdout, arguments)
    }

    /// Started by a shell that does something before.
    fn after(script: &str, stdout: impl Into<Stdio>, arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        let script = format!("{script}; exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_strait")]);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        Self::telling(command, reader, writer, stdout, arguments)
    }

    fn telling(
        mut command: Command,
        stderr: PipeReader,
        to: PipeWriter,
        stdout: impl Into<Stdio>,
        arguments: &[&str],
    ) -> Self {
        let mut child = command
            .args([
                "proxy",
                "--listen",
                "127.0.0.1:0",
                "--resolver",
                "127.0.0.1:9",
            ])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(to)
            .spawn()
            .expect("it starts");
        // The command holds the other end of the pipe.
        drop(command);
        let stdin = child.stdin.take();
        let mut stderr = BufReader::new(stderr);
        let mut address = None;
        while address.is_none() {
            let mut line = String::new();
            assert!(
                stderr.read_line(&mut line).expect("text") > 0,
                "it ended before it was ready"
            );
            address = line
                .strip_prefix("listening on ")
                .map(|address| address.trim().to_owned());
        }
        Self {
            child,
            stdin,
            stderr,
            address: address.expect("just found"),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    fn exchange(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .expect("kill");
        assert!(sent.success());
    }

    /// How it ended and what it had said, which must be within `limit`.
    fn end_within(mut self, limit: Duration) -> (ExitStatus, String, String) {
        let started = Instant::now();
        let mut stdout = self.child.stdout.take().expect("piped");
        let (tell, told) = mpsc::channel();
        let reader = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).expect("text");
            tell.send(()).expect("somebody waits");
            text
        });
        told.recv_timeout(limit).expect("it ends in time");
        let status = self.child.wait().expect("a status");
        assert!(started.elapsed() <= limit, "{:?}", started.elapsed());
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).expect("text");
        (status, reader.join().expect("read"), stderr)
    }
}

const REFUSED: &str = "CONNECT evil.com:443 HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn the_end_of_standard_input_ends_it_at_once() {
    let mut proxy = Started::new(&["--allow", "api.example.com", "--name", "notion"]);
    assert!(proxy.exchange(REFUSED).starts_with("HTTP/1.1 403 "));
    // Bytes on standard input are no end of it.
    proxy
        .stdin
        .as_mut()
        .expect("piped")
        .write_all(b"still here\n")
        .expect("it reads");
    assert!(proxy.exchange(REFUSED).starts_with("HTTP/1.1 403 "));
    let _open = proxy.connect();
    drop(proxy.stdin.take());
    let (status, stdout, stderr) = proxy.end_within(Duration::from_secs(1));
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert_eq!(stdout.lines().count(), 2, "one line an attempt: {stdout}");
    for line in stdout.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(
            (&line["server"], &line["reason"]),
            (&"notion".into(), &"not_listed".into())
        );
    }
    assert_eq!(stderr, "standard input has ended: stopping\n");
}

/// Fills a pipe, for everyone who writes to it.
fn fill(pipe: &mut PipeWriter) {
    let flags = rustix::fs::fcntl_getfl(&*pipe).expect("flags");
    rustix::fs::fcntl_setfl(&*pipe, flags | rustix::fs::OFlags::NONBLOCK).expect("flags");
    while pipe.write(b"nobody reads this\n").is_ok() {}
    rustix::fs::fcntl_setfl(&*pipe, flags).expect("flags");
}

#[test]
fn a_standard_error_that_nobody_reads_holds_up_no_stop() {
    for signal in [None, Some("TERM"), Some("INT")] {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let to = writer.try_clone().expect("a descriptor");
        let mut proxy = Started::telling(
            strait(),
            reader,
            to,
            Stdio::piped(),
            &["--allow", "a.example"],
        );
        fill(&mut writer);
        drop(writer);
        match signal {
            None => drop(proxy.stdin.take()),
            Some(signal) => proxy.signal(signal),
        }
        let (status, _, stderr) = proxy.end_within(PATIENCE);
        assert_eq!(status.code(), Some(0), "{signal:?}");
        assert!(stderr.ends_with("nobody reads this\n"), "{signal:?}");
    }
}

#[test]
fn a_standard_error_that_was_full_before_the_start_holds_up_no_end() {
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    fill(&mut writer);
    // It would warn that nothing is allowed, say that it listens, and that it stops.
    let mut child = strait()
        .args(["proxy", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .expect("it starts");
    let mut stdout = child.stdout.take().expect("piped");
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(stdout.read_to_end(&mut Vec::new())));
    let ended = told.recv_timeout(PATIENCE);
    child.kill().expect("it is ours");
    let status = child.wait().expect("a status");
    assert!(ended.is_ok(), "it did not end");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn everything_it_says_is_one_write_a_line_and_in_order() {
    // Each datagram is one write.
    let (here, there) = UnixDatagram::pair().expect("a pair");
    here.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let status = strait()
        .args(["proxy", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(OwnedFd::from(there))
        .status()
        .expect("it starts");
    assert_eq!(status.code(), Some(0));
    for begins in [
        "warning: nothing is allowed",
        "listening on 127.0.0.1:",
        "standard input has ended: stopping",
    ] {
        let mut line = [0; 200];
        let count = here.recv(&mut line).expect("a line");
        let line = text(&line[..count]);
        assert!(line.starts_with(begins) && line.ends_with('\n'), "{line}");
    }
}

#[test]
fn it_ends_at_once_where_there_is_no_standard_input() {
    // M8, M9: an empty one, and a closed one.
    let output = run(&["proxy", "--listen", "127.0.0.1:0", "--allow", "192.0.2.1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let binary = env!("CARGO_BIN_EXE_strait");
    let script = format!("exec {binary} proxy --listen 127.0.0.1:0 --allow 192.0.2.1 <&-");
    let output = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("sh");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_signal_drains_and_a_second_one_cuts() {
    // M10
    for signal in ["TERM", "INT", "HUP"] {
        let mut proxy = Started::new(&[
            "--no-lifeline",
            "--allow",
            "api.example.com",
            "--grace",
            "1m",
        ]);
        // Without a lifeline the end of standard input is nothing.
        drop(proxy.stdin.take());
        assert!(proxy.exchange(REFUSED).starts_with("HTTP/1.1 403 "));
        // An attempt that is under way: its name server never answers.
        let mut open = proxy.connect();
        open.write_all(b"CONNECT api.exam").expect("it reads");
        proxy.signal(signal);
        let mut line = String::new();
        proxy.stderr.read_line(&mut line).expect("text");
        assert!(line.starts_with("signal received"), "{line}");
        assert!(
            proxy.child.try_wait().expect("a status").is_none(),
            "it did not wait"
        );
        proxy.signal(signal);
        let (status, stdout, _) = proxy.end_within(Duration::from_secs(2));
        assert_eq!(status.code(), Some(0));
        assert!(stdout.starts_with('{'), "{stdout}");
    }
}

#[test]
fn sigquit_cuts_at_once_and_leaves_the_lines() {
    let mut proxy = Started::new(&["--log-close", "--allow", "api.example.com", "--grace", "1m"]);
    assert!(proxy.exchange(REFUSED).starts_with("HTTP/1.1 403 "));
    let mut open = proxy.connect();
    open.write_all(b"CONNECT api.exam").expect("it reads");
    proxy.signal("QUIT");
    let mut line = String::new();
    proxy.stderr.read_line(&mut line).expect("text");
    assert_eq!(line, "signal received: stopping\n");
    let (status, stdout, _) = proxy.end_within(Duration::from_secs(2));
    assert_eq!(status.code(), Some(0));
    assert!(stdout.contains("not_listed"), "{stdout}");
}

#[test]
fn what_was_ignored_at_the_start_stays_ignored() {
    // As `nohup` does.
    let proxy = Started::after(
        "trap '' HUP QUIT",
        Stdio::piped(),
        &["--allow", "a.example"],
    );
    proxy.signal("HUP");
    proxy.signal("QUIT");
    assert!(proxy.exchange(REFUSED).starts_with("HTTP/1.1 403 "));
    proxy.signal("TERM");
    let (status, _, stderr) = proxy.end_within(Duration::from_secs(2));
    assert_eq!(status.code(), Some(0));
    assert_eq!(stderr.matches("signal received").count(), 1, "{stderr}");
}

#[test]
fn a_log_that_may_not_grow_ends_it_with_1() {
    let path = std::env::temp_dir().join(format!("strait-log-{}", std::process::id()));
    let log = fs::File::create(&path).expect("a file");
    // One block: 512 bytes, or 1024.
    let mut proxy = Started::after("ulimit -f 1", log, &["--allow", "api.example.com"]);
    for _ in 0..20 {
        let Ok(mut client) = TcpStream::connect(&proxy.address) else {
            break;
        };
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // Without a record there is no answer.
        let _ = client.write_all(REFUSED.as_bytes());
        let _ = client.read_to_end(&mut Vec::new());
    }
    let mut stderr = String::new();
    proxy.stderr.read_to_string(&mut stderr).expect("text");
    fs::remove_file(&path).expect("it is ours");
    assert_eq!(proxy.child.wait().expect("a status").code(), Some(1));
    assert!(
        stderr.contains("audit log can no longer be written"),
        "{stderr}"
    );
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for arguments in [&["--help"][..], &["help", "proxy"], &["--version"]] {
        let full = fs::File::create("/dev/full").expect("a device");
        let output = strait()
            .args(arguments)
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .expect("it starts");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains("cannot write to standard output"));
    }
}

#[test]
fn a_drain_without_anything_open_is_over_at_once() {
    let proxy = Started::new(&["--allow", "api.example.com", "--grace", "1m"]);
    proxy.signal("TERM");
    let (status, stdout, _) = proxy.end_within(Duration::from_secs(1));
    assert_eq!((status.code(), stdout.as_str()), (Some(0), ""));
}

#[test]
fn a_reader_of_the_audit_that_goes_away_ends_it_with_1() {
    // Its reader is gone before it starts: a test beside this one that starts a program holds a copy
    // of every descriptor for a moment.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut proxy = Started::writing_to(writer, &["--allow", "api.example.com"]);
    let mut stream = proxy.connect();
    stream.write_all(REFUSED.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    // A reset or an end, but no answer.
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(text(&answer), "");
    let mut stderr = String::new();
    proxy.stderr.read_to_string(&mut stderr).expect("text");
    assert!(
        stderr.contains("audit log can no longer be written"),
        "{stderr}"
    );
    assert_eq!(proxy.child.wait().expect("a status").code(), Some(1));
}

/// Entries, networks and limits that stop it, each alone.
const WRONG: &[(&str, &[&str])] = &[
    (
        "--allow",
        &[
            "",
            "*",
            "*.example.com",
            "http://x",
            "https://api.example.com/v1",
            "x:0",
            "x:65536",
            "x:+443",
            "x:",
            "user@x",
            "localhost:8080",
            "foo.localhost",
            "127.0.0.1:8080",
            "[::1]:80",
            "::1",
            "2606:4700::1111",
            "2606:4700::1111:443",
            "http://",
            "http://u@x/",
            "http://localhost/",
            "[::ffff:93.184.216.34]:443",
            "169.254.169.254",
            "100.100.100.200",
            "127.1",
            "ex..com",
            "\u{ff41}pi.example.com",
            "\u{ff11}27.0.0.1",
            "a b",
            "a,b",
        ],
    ),
    (
        "--allow-net",
        &[
            "10.0.0.0",
            "10.0.0.1/8",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "fe80::/10",
            "x",
            "10.0.0.0/33",
        ],
    ),
    ("--header-timeout", &["0", "soon"]),
    ("--dns-timeout", &["99999999d"]),
    ("--max-connections", &["0"]),
    ("--max-head-bytes", &["1"]),
    ("--max-headers", &["0"]),
    ("--listen", &["localhost", "3128"]),
    ("--resolver", &["dns.example", "127.0.0.1:0", "[::1]:0"]),
    ("--name", &["a b"]),
    ("--grace", &["-1s"]),
];

/// Policy documents that stop it.
const WRONG_DOCUMENTS: &[(&str, &str)] = &[
    ("key.json", "{\"allow\": [], \"alow_net\": []}"),
    ("twice.json", "{\"allow\": [], \"allow\": []}"),
    ("entry.json", "{\"allow\": [\"a.example\", \"*.example\"]}"),
    ("net.json", "{\"allow_net\": [\"10.0.0.1/8\"]}"),
    ("type.json", "{\"allow\": \"a.example\"}"),
    ("text.json", "allow a.example"),
    ("array.json", "[[\"a.example\"], []]"),
    ("empty.json", "[]"),
    ("bom.json", "\u{feff}{\"allow\": []}"),
];

#[test]
fn a_policy_that_never_comes_is_not_waited_for() {
    let folder = std::env::temp_dir().join(format!("strait-pipe-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let pipe = folder.join("policy.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("a pipe");
    for (path, reason) in [
        (pipe.display().to_string(), "its end within 5s"),
        ("/dev/zero".to_owned(), "longer than 16777216 bytes"),
    ] {
        let output = run(&["check", "--policy", &path, "a.example:443"]);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains(reason), "{said}");
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn what_it_cannot_start_with_is_named_with_the_remedy() {
    let folder = std::env::temp_dir().join(format!("strait-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let mut wrong: Vec<Vec<String>> = Vec::new();
    for (name, content) in WRONG_DOCUMENTS {
        let path = folder.join(name);
        fs::write(&path, content).expect("a file");
        wrong.push(vec![format!("--policy={}", path.display())]);
    }
    wrong.push(vec![format!(
        "--policy={}",
        folder.join("missing.json").display()
    )]);
    for (flag, values) in WRONG {
        wrong.extend(values.iter().map(|value| vec![format!("{flag}={value}")]));
    }
    for twice in [
        ["--allow=a.example", "--allow=A.example."],
        ["--allow-net=10.0.0.0/8"; 2],
    ] {
        wrong.push(twice.map(str::to_owned).to_vec());
    }
    let both = folder.join("both.json");
    fs::write(
        &both,
        r#"{"allow": ["a.example"], "allow_net": ["10.0.0.0/8"]}"#,
    )
    .expect("a file");
    for given in ["--allow=A.example.", "--allow-net=10.0.0.0/8"] {
        wrong.push(vec![
            format!("--policy={}", both.display()),
            given.to_owned(),
        ]);
    }
    let mut said = String::new();
    for arguments in &wrong {
        let output = strait()
            .arg("proxy")
            .args(arguments)
            .stdin(Stdio::null())
            .output();
        let output = output.expect("it starts");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let shown = format!("{}\n{}\n", arguments.join(" "), text(&output.stderr));
        said += &shown.replace(folder.to_str().expect("text"), "FOLDER");
    }
    fs::remove_dir_all(&folder).expect("the folder is ours");
    insta::assert_snapshot!(said);
}

#[test]
fn nothing_in_the_environment_changes_it() {
    for (name, value) in [
        ("TOKIO_WORKER_THREADS", "0"),
        ("TOKIO_WORKER_THREADS", "many"),
        ("TOKIO_WORKER_THREADS", "100000"),
        ("RUST_MIN_STACK", "1"),
        ("RUST_MIN_STACK", "99999999999999"),
        ("RES_OPTIONS", "ndots:15"),
        ("LOCALDOMAIN", "evil.example"),
    ] {
        let output = strait()
            .args(["proxy", "--listen", "127.0.0.1:0", "--allow", "192.0.2.1"])
            .env(name, value)
            .stdin(Stdio::null())
            .output()
            .expect("it starts");
        assert_eq!(
            output.status.code(),
            Some(0),
            "{name}={value}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_standard_output_that_keeps_no_record_is_warned_of() {
    let start = |redirections: &str| {
        let binary = env!("CARGO_BIN_EXE_strait");
        let script =
            format!("exec {binary} proxy --listen 127.0.0.1:0 --allow 192.0.2.1 {redirections}");
        Command::new("sh")
            .args(["-c", &script])
            .output()
            .expect("sh")
    };
    // Closed, and as Python and Node open /dev/null: these cannot be told apart.
    for redirections in ["</dev/null >&-", "</dev/null 1<>/dev/null"] {
        let output = start(redirections);
        assert_eq!(output.status.code(), Some(0), "{redirections}");
        let said = text(&output.stderr);
        assert!(said.contains("attempts leave no record"), "{said}");
    }
    // Thrown away on purpose is another thing; and so is a closed standard error.
    let on_purpose = start("</dev/null >/dev/null");
    assert_eq!(on_purpose.status.code(), Some(0));
    assert!(!text(&on_purpose.stderr).contains("warning"));
    assert_eq!(start("</dev/null 2>&-").status.code(), Some(0));
}

#[test]
fn a_standard_output_that_does_not_block_is_waited_for() {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let flags = rustix::fs::fcntl_getfl(&writer).expect("flags");
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).expect("flags");
    let mut proxy = Started::writing_to(writer, &["--allow", "api.example.com"]);
    // More lines than a pipe holds, before anybody reads one.
    let mut clients = Vec::new();
    for _ in 0..600 {
        let mut client = proxy.connect();
        client.write_all(REFUSED.as_bytes()).expect("it reads");
        clients.push(client);
    }
    let reading = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        text
    });
    for mut client in clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    drop(proxy.stdin.take());
    assert_eq!(proxy.child.wait().expect("a status").code(), Some(0));
    assert_eq!(reading.join().expect("read").lines().count(), 600);
}

#[test]
fn an_address_in_use_is_told_and_ends_it_with_1() {
    let proxy = Started::new(&["--allow", "api.example.com"]);
    let output = run(&[
        "proxy",
        "--listen",
        &proxy.address,
        "--resolver",
        "127.0.0.1",
        "--allow",
        "a.example",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains(&proxy.address) && stderr.contains("--listen"),
        "{stderr}"
    );
}

#[test]
fn check_explains_each_destination() {
    let policy = [
        "--allow",
        "api.example.com",
        "--allow",
        "10.1.2.3:5432",
        "--allow",
        "www.example.com:80",
    ];
    let check = |more: &[&str]| {
        let output = run(&[&["check"], &policy[..], more].concat());
        format!(
            "{more:?} -> {:?}\n{}{}",
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr)
        )
    };
    let said = [
        check(&[
            "api.example.com:443",
            "API.example.com.:80",
            "10.1.2.3:5432",
        ]),
        check(&["api.example.com:443", "www.example.com:443", "evil.com:443"]),
        check(&["--json", "api.example.com:443", "evil.com:443"]),
        check(&["localhost:443", "169.254.169.254:80"]),
        check(&["[::ffff:93.184.216.34]:443"]),
        check(&["evil.com"]),
        check(&["evil.com:"]),
        check(&["evil.com:0"]),
        check(&["user@api.example.com:443"]),
        check(&["https://api.example.com"]),
        check(&[]),
        check(&["--resolver", "127.0.0.1", "api.example.com:443"]),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn help_fits_eighty_columns_and_stays_as_it_is() {
    let mut said = String::new();
    for arguments in [
        &["--help"][..],
        &["proxy", "--help"],
        &["check", "--help"],
        &["launch", "--help"],
        &["doctor", "--help"],
        &["pull", "--help"],
        &["list", "--help"],
        &["sweep", "--help"],
        &["config", "--help"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0));
        said += &text(&output.stdout);
        said += "\n========\n";
    }
    for line in said.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    insta::assert_snapshot!(said);
}

#[test]
fn the_version_names_the_commit() {
    let version = text(&run(&["--version"]).stdout);
    let (name, commit) = version.trim_end().split_once(" (").expect("a commit");
    assert_eq!(name, concat!("strait ", env!("CARGO_PKG_VERSION")));
    let commit = commit.trim_end_matches(')');
    let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown commit", "{version}");
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("allow-net"), "{shell}");
    }
}
