"""Real MCP servers, driven by the official client, which also ends them its own way."""


import images
import mcp
from session import CLIENT, PATIENCE, Session
from stage import LISTED, UNLISTED, Skip, audit_lines

MIB = 1 << 20
# toy_server.py, but it does not end with its standard input: like every Node server that has a timer.
_IGNORES_THE_END = "import sys, time; sys.path.insert(0, '/'); import toy_server; toy_server.main(); time.sleep(10_000)"


def talk(stage, image, *flags, calls=(), extra_env=None, modern=False, **options):
    """A conversation that went well, and left nothing."""
    words = stage.words(image, *flags, **options)
    env = stage.runtime.environment(extra_env)
    report = mcp.talk(stage.runtime.command(*words), env, calls=calls, modern=modern, timeout=PATIENCE)
    assert not report.error, report
    assert report.tools, report
    stage.nothing_is_left()
    return report


def told(report):
    return f"handshake {report.seconds['handshake']:.2f} s, end {report.seconds['shutdown']:.2f} s"


def server_everything(stage):
    report = talk(stage, images.node(), "--allow", LISTED,
                  calls=[("echo", {"message": "hello"}), ("get-sum", {"a": 2, "b": 3})])
    assert "hello" in report.text(0) and "5" in report.text(1), report
    return told(report)


def server_memory(stage):
    entity = {"name": "strait", "entityType": "passage", "observations": ["narrow"]}
    report = talk(stage, images.node(), "--env", "MEMORY_FILE_PATH", "--command", "node",
                  arguments=images.server_command("memory")[1:], extra_env={"MEMORY_FILE_PATH": "/tmp/memory.json"},
                  calls=[("create_entities", {"entities": [entity]}), ("search_nodes", {"query": "narrow"})])
    assert "strait" in report.text(1), report
    return told(report)


def mcp_server_time(stage):
    # The newest protocol, which has no handshake: the first message decides, and it must be the client's own.
    report = talk(stage, images.python(), "--command", "python3", arguments=["-m", "mcp_server_time"], modern=True,
                  calls=[("get_current_time", {"timezone": "UTC"})])
    assert "UTC" in report.text(0), report
    return told(report)


def mcp_server_fetch(stage):
    flags, variables = stage.trusting()
    audit = stage.folder() / "audit.jsonl"
    report = talk(stage, images.python(), "--allow", LISTED, *flags, "--command", "python3",
                  arguments=["-m", "mcp_server_fetch"], audit=audit, extra_env=variables,
                  calls=[("fetch", {"url": f"https://{LISTED}/page"}), ("fetch", {"url": f"https://{UNLISTED}/page"})])
    assert f"the answer of {LISTED}" in report.text(0), f"{report} {audit.read_text()}"
    refused = report.calls[1]
    assert "error" in refused or refused["result"]["isError"], report
    # It asks for /robots.txt first.
    lines = [(line["method"], line["host"], line["allowed"]) for line in audit_lines(audit)]
    assert lines[:2] == [("CONNECT", LISTED, True)] * 2, lines
    assert lines[2:] and set(lines[2:]) == {("CONNECT", UNLISTED, False)}, lines
    assert f"refused {UNLISTED}:443" in report.errors, report.errors
    return told(report)


def a_server_that_does_not_end_with_its_input(stage):
    report = talk(stage, images.python(), "--allow", LISTED, "--command", "python3",
                  arguments=["-c", _IGNORES_THE_END], calls=[("echo", {"text": "hello"})])
    assert report.text(0) == "hello", report
    assert report.seconds["shutdown"] < CLIENT, f"the client had to send signals: {report}"
    return told(report)


def a_result_of_10_MiB(stage):
    text = "0123456789abcdef" * (10 * MIB // 16)
    report = talk(stage, images.python(), calls=[("echo", {"text": text})])
    assert report.text(0) == text, "another text"
    return f"{report.calls[0]['seconds']:.2f} s both ways"


def the_environment_of_a_client_is_enough(stage):
    """What the SDKs pass on: no XDG_RUNTIME_DIR, and no more of PATH than a desktop has."""
    env = {name: stage.runtime.env[name] for name in ("HOME", "LOGNAME", "SHELL", "TERM", "USER")}
    env |= {"PATH": "/usr/bin:/bin"}
    # Where a runtime cannot be found without, as a client's configuration would say.
    needed = [name for name in stage.runtime.env if name == "DOCKER_HOST" or name.startswith("CONTAINERS_")]
    env |= {name: stage.runtime.env[name] for name in needed}
    words = stage.words(images.python(), "--allow", LISTED)
    report = mcp.talk(stage.runtime.command(*words), env, calls=[("fetch", {"url": f"http://{LISTED}/"})])
    assert not report.error and report.json(0)["status"] == 200, report
    minimal = {name: value for name, value in env.items() if name in ("HOME", "PATH", *needed)}
    with stage.launch(images.busybox(), "--allow", LISTED,
                      extra_env={**dict.fromkeys(stage.runtime.env), **minimal}) as server:
        server.say_back()
        assert server.end() == 0, server.errors.text()
    stage.nothing_is_left()


def another_client_of_the_same_daemon(stage):
    others = stage.runtime.clients()[1:]
    if not others:
        raise Skip(f"there is one {stage.kind} here")
    for program in others:
        other = stage.runtime.with_client(program)
        words = stage.words(images.python(), "--allow", LISTED)
        with Session(other.popen(words)) as server:
            server.greet()
            assert server.call("fetch", url=f"http://{LISTED}/")["status"] == 200
            assert server.end() == 0, server.errors.text()
        stage.nothing_is_left()
    return other.version()


CASES = [
    server_everything,
    server_memory,
    mcp_server_time,
    mcp_server_fetch,
    a_result_of_10_MiB,
    the_environment_of_a_client_is_enough,
    another_client_of_the_same_daemon,
]
# With times that need a quiet machine.
QUIET = [a_server_that_does_not_end_with_its_input]
