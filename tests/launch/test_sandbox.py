"""What a server sees: its image, what it was given, and nothing of the machine."""

import contextlib
import os
import socket
import subprocess

import images
import mcp
import runtimes
from stage import LISTED

MIB = 1 << 20
# Requests that are answered before it is known that the line of an earlier one could not be kept.
ON_ITS_WAY = 10
TOKEN = "s3cr3t-token-of-this-test"
# What the image of toy_server.py has in its configuration.
OF_IMAGE = {"PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
OF_RUNTIME = {"podman": {"HOME", "HOSTNAME", "TERM", "container"}, "docker": {"HOME", "HOSTNAME"}}
OF_PROXY = {f"{name}_proxy" for name in ("http", "https", "all", "ftp", "no")}


def it_gets_the_variables_it_was_given_and_no_other(stage):
    given = {"NOTION_TOKEN": TOKEN, "LOG_LEVEL": "debug", "HOST_SECRET": "of the host", "EMPTY": "",
             "HTTP_PROXY": "http://proxy.of.the.host:3128", "all_proxy": "socks5://proxy.of.the.host:1080"}
    flags = ["--secret", "NOTION_TOKEN", "--env", "LOG_LEVEL", "--env", "NOT_SET"]
    with stage.launch(images.python(), "--allow", LISTED, *flags, extra_env=given) as server:
        server.greet()
        environment = server.call("environment")
        assert environment["NOTION_TOKEN"] == TOKEN and environment["LOG_LEVEL"] == "debug", environment
        proxies = OF_PROXY | {name.upper() for name in OF_PROXY}
        known = OF_IMAGE | OF_RUNTIME[stage.kind] | proxies | {"NODE_USE_ENV_PROXY", "NOTION_TOKEN", "LOG_LEVEL"}
        assert set(environment) == known, set(environment) ^ known
        values = "\n".join(environment.values())
        assert "of.the.host" not in values and "of the host" not in values, environment
        assert environment["no_proxy"] == environment["NO_PROXY"] == "localhost,127.0.0.1,::1", environment
        # A command line is everybody's to read.
        shown = [line for pid in runtimes.pids() if TOKEN in (line := runtimes.command_line(pid))]
        assert not shown, shown
        assert server.end() == 0
        assert "`NOT_SET` is not set, so the server does not get it" in server.errors.text(), server.errors.text()


def it_sees_nothing_of_the_machine(stage):
    marked = stage.folder() / "marked.txt"
    marked.write_text("of the host")
    with stage.launch(images.python(), "--allow", LISTED) as server:
        server.greet()
        assert "error" in server.call("read", path=str(marked))
        who = server.call("identity")
        assert who["pid"] == 1 and who["hostname"] == "server", who
        assert who["CapEff"] == who["CapBnd"] == ["0" * 16], who
        assert who["NoNewPrivs"] == ["1"] and who["Seccomp"] == ["2"], who
        hosts = server.call("read", path="/etc/hosts")
        resolv = server.call("read", path="/etc/resolv.conf")
        for text in hosts, str(resolv):
            for name in socket.gethostname(), "203.0.113.1", "host.containers.internal":
                assert name not in text, text
        mounts = server.call("read", path="/proc/self/mountinfo").splitlines()
        # The field before the separator's file system type says whether it may be written to.
        writable = {line.split()[4]: line.split(" - ")[1].split()[0] for line in mounts
                    if "rw" in line.split(" - ")[0].split()[5].split(",")}
        disks = {place: kind for place, kind in writable.items()
                 if kind not in ("tmpfs", "proc", "devpts", "mqueue", "sysfs", "cgroup", "cgroup2", "devtmpfs")}
        assert not disks, f"may be written to: {disks}"
        for path in "/written", "/packages/written", "/etc/written", "/var/written", "/workspace/written":
            assert "error" in server.call("write", path=path, text="x"), path
        assert server.call("write", path="/tmp/written", text="x") == {"written": 1}
        assert "error" in server.call("write", path="/tmp/large", text="x" * (65 * MIB)), "/tmp has no bound"
        assert server.end() == 0


def a_secret_and_control_sequences_are_not_shown_as_they_are(stage):
    with stage.launch(images.python(), "--allow", LISTED, "--secret", "NOTION_TOKEN", "--secret", "PIN",
                      extra_env={"NOTION_TOKEN": TOKEN, "PIN": "12"}) as server:
        server.greet()
        server.call("say", text=f"Authorization: Bearer {TOKEN}!")
        server.call("say", text="\x1b[31mred\x1b[0m \x07bell \u202eturned\r\nplain äöü")
        assert server.end() == 0
        raw = server.errors.rest()
    assert TOKEN.encode() not in raw, raw
    assert b"Authorization: Bearer [NOTION_TOKEN]!\n" in raw, raw
    assert not any(byte in raw for byte in b"\x1b\x07\r"), raw
    assert "\u202e".encode() not in raw, raw
    assert "red" in raw.decode() and "plain äöü\n" in raw.decode(), raw
    # A short one is in half of all lines.
    assert b"secret `PIN` is too short to be replaced" in raw, raw


def a_secret_without_a_value_stops_the_launch(stage):
    for value in None, "":
        errors = stage.refuses(images.python(), "--allow", LISTED, "--secret", "NOTION_TOKEN", code=2,
                               extra_env={"NOTION_TOKEN": value})
        assert "the secret `NOTION_TOKEN` has no value in the environment of strait" in errors, errors


def a_flood_on_standard_error_is_cut_and_the_server_goes_on(stage):
    with stage.launch(images.busybox(), "--command", "/server/noisy") as server:
        server.say_back()
        assert server.end() == 0
        shown = server.errors.rest()
    assert len(shown) <= MIB, f"{len(shown)} bytes of 10 MB were passed on"
    assert len(shown) > MIB // 4, f"only {len(shown)} bytes"
    assert b"left out" in shown[-1000:] or b"strait:" in shown[-1000:], shown[-300:]
    return f"{len(shown)} bytes"


# -- folders ---------------------------------------------------------------------------------------


def folders_are_read_and_written_as_they_were_given(stage):
    workspace = stage.folder()
    for name in "docs", "out", "private":
        (workspace / name).mkdir()
    (workspace / "docs/note.txt").write_text("a note of the user\n")
    (workspace / "private/key.txt").write_text("a key of the user\n")
    stage.own(workspace)
    words = stage.words(images.node(), "--workspace", workspace, "--mount", "docs:read", "--mount", "out:write",
                        "--command", "node", arguments=[*images.server_command("filesystem")[1:], "/workspace"])
    report = mcp.talk(stage.runtime.command(*words), stage.runtime.env, calls=[
        ("read_text_file", {"path": "/workspace/docs/note.txt"}),
        ("write_file", {"path": "/workspace/out/answer.txt", "content": "an answer"}),
        ("write_file", {"path": "/workspace/docs/note.txt", "content": "changed"}),
        ("read_text_file", {"path": "/workspace/private/key.txt"}),
        ("list_directory", {"path": "/workspace"}),
    ])
    assert not report.error, report
    assert "a note of the user" in report.text(0), report
    written = workspace / "out/answer.txt"
    assert written.read_text() == "an answer", report
    owner = (stage.runtime.uid, stage.runtime.gid) if stage.is_rootless else (0, 0)
    found = written.stat()
    assert (found.st_uid, found.st_gid) == owner, f"it belongs to {found.st_uid}:{found.st_gid}, not {owner}"
    assert (workspace / "docs/note.txt").read_text() == "a note of the user\n"
    assert report.calls[2]["result"]["isError"] and report.calls[3]["result"]["isError"], report
    assert sorted(report.text(4).split()) == ["[DIR]", "[DIR]", "docs", "out"], report.text(4)
    stage.nothing_is_left()


def a_link_in_the_image_where_a_folder_goes_gains_nothing(stage):
    script = ("cat /workspace/docs/note.txt; ls /workspace/docs/; cat /workspace/docs/shadow "
              "/workspace/docs/machine-id; cat >/dev/null")
    # The runtime's own files, where the folder has landed on the container's /etc.
    runtimes_own = {"hosts", "hostname", "resolv.conf", "mtab"}
    codes, before = [], sorted(os.listdir("/etc"))
    for access in "read", "write":
        workspace = stage.folder()
        (workspace / "docs").mkdir()
        (workspace / "docs/note.txt").write_text("a note of the user\n")
        stage.own(workspace)
        with stage.launch(images.hostile(), "--workspace", workspace, "--mount", f"docs:{access}", "--command",
                          "/bin/sh", arguments=["-c", script]) as server:
            first = server.out.line()
            codes.append(server.end())
            shown = set(server.out.rest().decode().split())
        if codes[-1] == 0:
            assert first == b"a note of the user\n", server.errors.text()
            assert shown <= {"note.txt"} | runtimes_own, shown
        else:
            # They cannot be put where it is read-only, and nothing is started.
            assert codes[-1] in (125, 126, 127) and (first, shown) == (b"", set()), (codes, first, shown)
        found = {each.name: each.stat().st_size for each in (workspace / "docs").iterdir()}
        assert found.pop("note.txt") == len("a note of the user\n"), found
        # What they are mounted on is made first, and stays: empty.
        assert set(found) <= (runtimes_own if access == "write" else set()) and not any(found.values()), found
    assert sorted(os.listdir("/etc")) == before
    stage.nothing_is_left()
    return f"exit {codes[0]} and {codes[1]}"


def the_audit_cannot_be_given_to_a_server(stage):
    home = stage.runtime.home
    (home / ".local/state/strait").mkdir(parents=True, exist_ok=True)
    stage.own(home / ".local")
    errors = stage.refuses(images.busybox(), "--workspace", home, "--mount", ".local/state:write", code=2)
    assert "strait" in errors and ".local/state" in errors, errors


def no_record_no_traffic(stage):
    # One page, for some twenty lines.
    folder = stage.folder()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=777", "tmpfs", folder], check=True, timeout=30)
    served = len(stage.world.requests)
    try:
        with stage.launch(images.python(), "--allow", LISTED, audit=folder / "audit.jsonl") as server:
            server.greet()
            with contextlib.suppress(AssertionError, OSError):
                # It ends in the middle of a call.
                while server.process.poll() is None:
                    server.call("fetch", url=f"http://{LISTED}/recorded")
            assert server.wait() == 125, server.errors.text()
            errors = server.errors.text()
        lines = (folder / "audit.jsonl").read_text().count("\n")
    finally:
        subprocess.run(["umount", folder], check=True, timeout=30)
    assert "; the server is stopped" in errors, errors
    served = len(stage.world.requests) - served
    # What the proxy has written may still be on its way here.
    assert 10 < lines and served <= lines + ON_ITS_WAY, f"{served} requests, {lines} lines"
    stage.nothing_is_left()
    return f"{lines} lines, {served} requests"


CASES = [
    it_gets_the_variables_it_was_given_and_no_other,
    it_sees_nothing_of_the_machine,
    a_secret_and_control_sequences_are_not_shown_as_they_are,
    a_secret_without_a_value_stops_the_launch,
    a_flood_on_standard_error_is_cut_and_the_server_goes_on,
    folders_are_read_and_written_as_they_were_given,
    a_link_in_the_image_where_a_folder_goes_gains_nothing,
    the_audit_cannot_be_given_to_a_server,
    no_record_no_traffic,
]
