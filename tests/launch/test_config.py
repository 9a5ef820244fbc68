"""`strait.toml`, and the commands beside `launch`: list, pull, config, sweep."""

import json
import re
import subprocess
import tomllib

import images
import mcp
import registry
from session import PATIENCE, Session
from stage import LISTED, NOWHERE, RESOLVER, UNLISTED, audit_lines, said

TOKEN = "s3cr3t-token-of-this-test"
# The six variables that the SDKs pass on (research/launchers.md 5.6).
PASSED_ON = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")


def server(name, image, **more):
    """A [[server]] of a configuration."""
    values = {"name": name, "image": image, **more}
    return "[[server]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def network():
    return {"network": [LISTED], "resolver": f"{RESOLVER[0]}:{RESOLVER[1]}"}


def configured(stage, *servers, folder=None):
    """A folder for XDG_CONFIG_HOME, with these servers in its strait.toml."""
    folder = folder or stage.folder()
    (folder / "strait").mkdir(exist_ok=True)
    (folder / "strait/strait.toml").write_text(f'runtime = "{stage.kind}"\n' + "".join(servers))
    stage.own(folder)
    return folder


def a_configured_server_is_launched_by_its_name(stage):
    toy = server("toy", stage.id_of(images.python()), **network(), secret=["TOKEN"], env=["LOG"], memory=512,
                 workspace=str(stage.trusted), mounts=["certificates:read"])
    variables = {"XDG_CONFIG_HOME": configured(stage, toy), "TOKEN": TOKEN, "LOG": "x"}
    with stage.strait("launch", "toy", extra_env=variables) as it:
        it.greet()
        assert it.call("environment")["TOKEN"] == TOKEN
        assert "BEGIN CERTIFICATE" in it.call("read", path="/workspace/certificates/authority.pem")
        assert it.call("fetch", url=f"http://{LISTED}/")["status"] == 200
        assert it.call("fetch", url=f"http://{UNLISTED}/")["status"] == 403
        assert it.end() == 0, it.errors.text()
        lines = said(it.errors.rest().decode())
    # What it was refused is told with what would allow it, to be pasted.
    assert f'refused {UNLISTED}:80, which is not listed; to allow it, add "{UNLISTED}" to `network` of server `toy`' \
        in lines, lines
    assert f'  network = ["{LISTED}", "{UNLISTED}"]' in lines, lines
    # Where nothing else is named, attempts are recorded in the user's state folder.
    recorded = audit_lines(stage.runtime.home / ".local/state/strait/toy.jsonl")
    assert [line["allowed"] for line in recorded] == [True, False], recorded
    stage.nothing_is_left()


def the_current_folder_says_nothing(stage):
    """A repository that nobody has reviewed must supply neither a configuration nor a runtime."""
    repository = stage.folder()
    (repository / "strait.toml").write_text(server("toy", stage.id_of(images.busybox())))
    (repository / stage.kind).write_text("#!/bin/sh\ntouch was-run\n")
    (repository / stage.kind).chmod(0o755)
    (repository / ".env").write_text("DOCKER_HOST=tcp://203.0.113.66:1\n")
    stage.own(repository)
    code, out, errors = stage.ran("launch", "toy", cwd=repository, extra_env={"XDG_CONFIG_HOME": stage.folder()})
    assert code == 2 and "cannot read the configuration" in errors, (code, errors)
    path = f".:{stage.runtime.env['PATH']}"
    folder = configured(stage, server("toy", stage.id_of(images.busybox())))
    with stage.strait("launch", "toy", cwd=repository, extra_env={"XDG_CONFIG_HOME": folder, "PATH": path}) as it:
        it.say_back()
        assert it.end() == 0
    assert not (repository / "was-run").exists()


def list_shows_what_is_configured_and_what_is_here(stage):
    folder = configured(stage, server("here", stage.id_of(images.busybox()), network=[LISTED, "db.example.com:5432"]),
                        server("away", NOWHERE))
    code, out, errors = stage.ran("list", extra_env={"XDG_CONFIG_HOME": folder})
    assert code == 0, errors
    for line in f"  image    {images.busybox().id}", "           here", f"  network  {LISTED}, db.example.com:5432", \
                "           not here; `strait pull away` pulls it", "  network  none":
        assert line in out.splitlines(), out
    code, out, errors = stage.ran("list", "--json", extra_env={"XDG_CONFIG_HOME": folder})
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["name"], row["present"]) for row in rows] == [("here", True), ("away", False)], rows


def pull_is_by_digest_and_nothing_else_pulls(stage):
    hostile = images.hostile(labels=[("of", "the registry")])
    stage.runtime.load(hostile.archive)  # and removed again below
    with registry.Registry(stage.runtime) as local:
        name = local.push(hostile)
        stage.runtime.must("rmi", "--force", hostile.id)
        folder = configured(stage, server("pulled", name))
        variables = {"XDG_CONFIG_HOME": folder}
        asked = len(local.log)
        code, out, errors = stage.ran("launch", "pulled", extra_env=variables)
        assert code == 125 and "run `strait pull pulled`" in errors, (code, errors)
        assert stage.ran("list", extra_env=variables)[0] == 0
        code, out, errors = stage.ran(*stage.words(name)[1:])
        assert code == 125 and f"run `{stage.kind} pull {name}`" in errors, errors
        assert len(local.log) == asked, f"the registry was asked: {local.log[asked:]}"

        code, out, errors = stage.ran("pull", "pulled", extra_env=variables, seconds=60)
        assert code == 0, (out, errors)
        assert len(local.log) > asked, "the registry's log shows nothing, so the case shows nothing"
        assert stage.runtime.image_id(name) == hostile.id
        asked = len(local.log)
        with stage.strait("launch", "pulled", extra_env=variables) as it:
            it.say_back()
            assert it.end() == 0, it.errors.text()
        assert len(local.log) == asked, f"the registry was asked: {local.log[asked:]}"
        # A digest that the registry does not have.
        configured(stage, server("pulled", re.sub("@.*", f"@sha256:{'2' * 64}", name)), folder=folder)
        code, out, errors = stage.ran("pull", "pulled", extra_env=variables, seconds=60)
        assert code != 0 and errors, (code, out, errors)
        stage.runtime.must("rmi", "--force", hostile.id)


def what_config_prints_works_in_a_client(stage):
    toy = server("my.toy", stage.id_of(images.python()), secret=["TOKEN"], env=["LOG"], **network())
    configured(stage, toy, folder=stage.folder(".config"))
    clients = ["claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini", "zed"]
    entries = {client: printed(stage, client) for client in clients}
    launched = [{name: entry[name] for name in ("command", "args", "env")} for entry in entries.values()]
    # Filled in, all clients start the same; one speaks for them.
    assert all(each == launched[0] for each in launched), launched
    report = mcp.talk(*started(stage, launched[0]), calls=[("environment", {})], timeout=PATIENCE)
    assert not report.error, report
    assert {"TOKEN": TOKEN, "LOG": "debug"}.items() <= report.json(0).items(), report
    # A client passes XDG_CONFIG_HOME on to nobody.
    configured(stage, folder=stage.folder(".config"))
    elsewhere = configured(stage, toy)
    for entry in (printed(stage, "claude-code", "--config", elsewhere / "strait/strait.toml"),
                  printed(stage, "codex", extra_env={"XDG_CONFIG_HOME": elsewhere})):
        command, env = started(stage, entry)
        with Session(subprocess.Popen(command, env=env, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, start_new_session=True)) as it:
            it.greet()
            assert it.call("environment")["TOKEN"] == TOKEN
            assert it.end() == 0, it.errors.text()
    stage.nothing_is_left()
    return f"{len(clients)} clients"


def printed(stage, client, *flags, extra_env=None):
    """What a client reads out of what is printed for it."""
    code, text, notes = stage.ran("config", *flags, client, "my.toy", extra_env=extra_env)
    assert code == 0, notes
    assert TOKEN not in text
    entry = of_client(client, text)
    assert entry["command"] == str(stage.binary), entry
    return entry


def started(stage, entry):
    """The command line and the environment of a client's process: six variables of its own, and those of the entry."""
    env = {name: stage.runtime.env[name] for name in PASSED_ON}
    env |= {name: value for name, value in stage.runtime.env.items()
            if name == "DOCKER_HOST" or name.startswith("CONTAINERS_")}
    return stage.runtime.command(entry["command"], *entry["args"]), env | entry["env"]


def of_client(client, text):
    """The one entry of a snippet, with the placeholders filled in as the client would."""
    values = {"TOKEN": TOKEN, "LOG": "debug"}
    whole = tomllib.loads(text) if client == "codex" else json.loads(text)
    key = {"vscode": "servers", "codex": "mcp_servers", "zed": "context_servers"}.get(client, "mcpServers")
    [(name, entry)] = whole[key].items()
    assert re.fullmatch(r"[\w-]+", name), name
    if client == "codex":
        return entry | {"env": {name: values[name] for name in entry["env_vars"]}}
    inputs = {each["id"]: values["TOKEN"] for each in whole.get("inputs", ())}

    def fill(name, text):
        for pattern in r"\$\{(\w+)\}", r"\$\{env:(\w+)\}", r"\$(\w+)", r"REPLACE WITH THE VALUE OF (\w+)":
            if found := re.fullmatch(pattern, text):
                assert found[1] == name, (name, text)
                return values[found[1]]
        if found := re.fullmatch(r"\$\{input:(.+)\}", text):
            return inputs[found[1]]
        raise AssertionError(f"nobody fills in {name}={text}")

    return entry | {"env": {name: fill(name, text) for name, text in entry["env"].items()}}


def a_placeholder_that_nobody_filled_in_stops_the_launch(stage):
    here = configured(stage, server("toy", stage.id_of(images.python()), **network(), secret=["TOKEN"]))
    for client in "claude-desktop", "claude-code":
        _, text, _ = stage.ran("config", client, "toy", extra_env={"XDG_CONFIG_HOME": here})
        [entry] = json.loads(text)["mcpServers"].values()
        code, out, errors = stage.ran("launch", "toy", extra_env={"XDG_CONFIG_HOME": here, **entry["env"]})
        assert code == 2 and "the secret `TOKEN` has no value" in errors, (code, errors)


def print_makes_nothing(stage):
    before = stage.left()
    with stage.launch(images.busybox(), "--allow", LISTED, "--print", "--secret", "TOKEN",
                      extra_env={"TOKEN": TOKEN}) as it:
        assert it.end() == 0
        plan = it.out.rest().decode()
    assert "# start the server" in plan and TOKEN not in plan, plan
    assert stage.left() == before
    made = [line for line in plan.splitlines() if line.strip() == "create"]
    assert len(made) >= 2, plan


CASES = [
    a_configured_server_is_launched_by_its_name,
    the_current_folder_says_nothing,
    list_shows_what_is_configured_and_what_is_here,
    pull_is_by_digest_and_nothing_else_pulls,
    what_config_prints_works_in_a_client,
    a_placeholder_that_nobody_filled_in_stops_the_launch,
    print_makes_nothing,
]
