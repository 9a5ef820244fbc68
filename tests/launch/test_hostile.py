"""An image that tries what an image can: healthcheck, variables, volumes, user, entrypoint, labels."""

import pathlib
import socket

import images
from host import WORLD_ADDRESS
from stage import LISTED, of_server

MIB = 1 << 20
# Where its health check would announce itself (images.py), and how long it is listened for: it would run every second.
BEACON, LISTENED = 7999, 3
DEAD_OWNER = "no-such-boot 1 0"


def shell(stage, script, *flags, image=None, **options):
    """What a shell in the image's container says, with the words in front of it on standard error."""
    with stage.launch(image or images.hostile(), *flags, "--command", "/bin/sh", arguments=["-c", script],
                      **options) as server:
        code = server.wait()
        return code, server.out.rest().decode(), server.errors.text()


def its_entrypoint_and_command_are_run_in_its_own_container(stage):
    with stage.launch(images.hostile(), "--allow", LISTED) as server:
        server.say_back()
        assert server.end() == 0
        assert of_server(server.errors.text()) == "entry: /server/echo\n", server.errors.text()
    with stage.launch(images.hostile(), "--allow", LISTED, "--command", "/bin/echo", arguments=["mine"]) as server:
        assert server.wait() == 0
        assert server.out.rest() == b"mine\n"
    stage.nothing_is_left()


def its_health_check_never_runs(stage):
    machine = stage.runtime.host
    with machine.listen(WORLD_ADDRESS, BEACON, namespace=machine.world) as listener:
        with stage.launch(images.hostile(), "--allow", LISTED) as server:
            server.say_back()
            listener.settimeout(LISTENED)
            try:
                listener.accept()
            except socket.timeout:
                pass
            else:
                raise AssertionError("the beacon was seen: it ran where there is a way out")
            for part in "proxy", "server":
                [found] = stage.runtime.json("container", "inspect", stage.container(part))
                check = (found["Config"].get("Healthcheck") or {}).get("Test")
                health = found["State"].get("Health") or found["State"].get("Healthcheck") or {}
                assert check in (None, ["NONE"]) and not health.get("Log"), (part, check, health)
            server.say_back()
            assert server.end() == 0
            # podman has its own complaints about health checks.
            assert of_server(server.errors.text()) == "entry: /server/echo\n", server.errors.text()


def nothing_of_it_reaches_the_proxy(stage):
    with stage.launch(images.hostile(), "--allow", LISTED) as server:
        server.say_back()
        [proxy] = stage.runtime.json("container", "inspect", stage.container("proxy"))
        process = pathlib.Path(f"/proc/{proxy['State']['Pid']}")
        environment = process.joinpath("environ").read_bytes().decode()
        root = sorted(each.name for each in process.joinpath("root").iterdir())
        status = process.joinpath("status").read_text()
        routing = process.joinpath("net/route").read_text()
        labels = proxy["Config"]["Labels"]
        assert server.end() == 0
    assert "evil" not in environment and "203.0.113.66" not in environment, environment
    assert not any(f"{name}=" in environment for name in ("LD_PRELOAD", "RUST_LOG", "STRAIT_POLICY", "SSL_CERT_FILE"))
    assert "strait" in root and not {"evil", "bin", "server", "data", "workspace"} & set(root), root
    assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status, status
    uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
    assert len(set(uids)) == 1 and uids[0] != "0", uids
    assert len(routing.splitlines()) > 1
    assert not any("mallory" in str(value) for value in labels.values()), labels
    assert "io.podman.annotations.privileged" not in labels, labels


def its_variables_do_not_lead_around_the_proxy(stage):
    code, out, errors = shell(stage, "/bin/busybox env", "--allow", LISTED)
    assert code == 0, errors
    environment = dict(line.split("=", 1) for line in out.splitlines())
    proxy = environment["HTTP_PROXY"]
    assert proxy.startswith("http://10.231.") and proxy.endswith(":3128"), proxy
    for name in "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy":
        assert environment[name] == proxy, (name, environment)
    for name in "NO_PROXY", "no_proxy":
        assert environment[name] == "localhost,127.0.0.1,::1", (name, environment)
    for name in "ALL_PROXY", "all_proxy", "FTP_PROXY", "ftp_proxy":
        assert environment[name] == "", (name, environment)
    # Without a network there is nothing to lead to, and the image's own would only make it wait.
    code, out, errors = shell(stage, "/bin/busybox env")
    assert code == 0, errors
    assert "203.0.113.66" not in out, out


def its_volumes_are_bounded_memory_and_leave_nothing(stage):
    # A byte more than there is room for; `/evil/volume` has no content in the image.
    script = ("for place in /data /tmp /evil/volume; do "
              "if head -c 70000000 /dev/zero > $place/large 2>/dev/null; then echo $place unbounded; fi; "
              "echo $place $(wc -c < $place/large) $(stat -f -c %T $place); rm $place/large; done; "
              "for place in / /evil /server /workspace /etc; do "
              "if echo x > $place/written; then echo $place written; fi; done 2>/dev/null")
    code, out, errors = shell(stage, script)
    lines = out.splitlines()
    assert len(lines) == 3, (code, out, errors)
    for line, place in zip(lines, ("/data", "/tmp", "/evil/volume")):
        name, size, kind = line.split()
        assert (name, kind) == (place, "tmpfs") and 60_000_000 < int(size) <= 64 * MIB, line
    stage.nothing_is_left()
    # Also when it is removed while it runs.
    with stage.launch(images.hostile(), "--allow", LISTED, "--command", "/server/stubborn") as server:
        server.errors.wait_for("up\n")
        server.kill()
    stage.nothing_is_left(30)


def whatever_user_it_names_has_no_powers(stage):
    for user, uid in ("", "0"), ("0", "0"), ("mallory", "4242"), ("4242:0", "4242"):
        image = images.hostile(user=user)
        script = "id -u; grep -E 'Cap(Eff|Bnd|Prm)|NoNewPrivs' /proc/self/status"
        code, out, errors = shell(stage, script, image=image)
        assert code == 0, (user, errors)
        first, *powers = out.splitlines()
        assert first == uid, (user, out)
        assert all(line.split()[1] in ("0000000000000000", "1") for line in powers) and len(powers) == 4, (user, out)


def labels_that_imitate_ours_make_nobody_sweep_a_stranger(stage):
    host = socket.gethostname()
    labels = {"strait.run": "0123456789ab", "strait.owner": f"{host} {DEAD_OWNER}", "strait.server": "mallory"}
    image = images.hostile(labels=labels.items())
    try:
        stage.runtime.must("create", "--name=stranger", "--pull=never", stage.id_of(image))
        # A live launch of that image has labels of ours over the image's.
        with stage.launch(image, "--name", "mallory", "--allow", LISTED) as server:
            server.say_back()
            code, out, errors = stage.ran("sweep", f"--runtime={stage.kind}")
            assert (code, out) == (0, "nothing is left of dead launches\n"), (code, out, errors)
            server.say_back()
            assert server.end() == 0
        names = stage.runtime.must("ps", "--all", "--format", "{{.Names}}").split()
        assert names == ["stranger"], names
    finally:
        stage.runtime.run("rm", "--force", "--volumes", "stranger")
    stage.nothing_is_left()


CASES = [
    its_entrypoint_and_command_are_run_in_its_own_container,
    its_health_check_never_runs,
    nothing_of_it_reaches_the_proxy,
    its_variables_do_not_lead_around_the_proxy,
    its_volumes_are_bounded_memory_and_leave_nothing,
    whatever_user_it_names_has_no_powers,
    labels_that_imitate_ours_make_nobody_sweep_a_stranger,
]
