"""What stands in the way is told, with what to do about it, and nothing is left of the attempt."""

import pathlib
import shutil
import subprocess

import images
from stage import LISTED, NOWHERE, Skip

# How many networks docker 20.10 has room for, and some.
POOLS = 40
# Half of the range that launch takes small networks from, in every other place.
TAKEN = [f"10.231.{third}.0/21" for third in range(0, 128, 16)]
WHOLE_RANGE = "10.231.0.0/17"
# An id that no user of this machine has.
NOBODYS = 54321


def an_image_that_is_not_here(stage):
    errors = stage.refuses(f"sha256:{'1' * 64}", "--allow", LISTED, code=125)
    assert f"an id is of this machine alone; see `{stage.kind} images --digests`" in errors, errors
    errors = stage.refuses(NOWHERE, "--allow", LISTED, code=125)
    assert f"run `{stage.kind} pull {NOWHERE}`" in errors, errors


def a_tag_is_refused(stage):
    image = images.busybox()
    for name in "busybox", "busybox:latest", image.tag, f"busybox:1@{image.id}", image.id.removeprefix("sha256:"):
        errors = stage.refuses(name, code=2)
        assert "sha256:" in errors, f"{name}: {errors}"


def an_image_for_another_machine(stage):
    errors = stage.refuses(images.foreign(), "--allow", LISTED, code=125)
    assert "the image is for arm64" in errors or "the image is for amd64" in errors, errors


def a_runtime_that_is_not_there(stage):
    errors = stage.refuses(images.busybox(), f"--runtime=/nonexistent/{stage.kind}", code=2)
    assert "cannot be used multiple times" in errors, errors
    flags = [f"--image={stage.id_of(images.busybox())}", f"--allow={LISTED}"]
    code, out, errors = stage.ran("launch", f"--runtime=/nonexistent/{stage.kind}", *flags)
    assert code == 125 and f"/nonexistent/{stage.kind}" in errors, (code, errors)
    # Where every program of the kind is hidden, in a mount namespace of its own.
    places = {pathlib.Path(folder, name) for name in ("podman", "docker")
              for folder in ("/usr/local/bin", "/usr/bin", "/bin", "/snap/bin")}
    real = sorted({str(place.resolve()) for place in places if place.exists()})
    hide = "; ".join(f"mount --bind /dev/null {place}" for place in real)
    command = ["unshare", "--mount", "--", "/bin/sh", "-c", f'{hide}; exec "$@"', "-",
               *stage.runtime.command(stage.binary, "launch", *flags)]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
                         env=stage.runtime.environment({"PATH": "/usr/bin:/bin"}))
    assert ran.returncode == 125, ran
    assert "no container runtime is here: looked for podman and docker in" in ran.stderr, ran.stderr
    assert "--runtime" in ran.stderr, ran.stderr


def a_daemon_that_is_not_there(stage):
    if not stage.is_docker:
        raise Skip("there is no daemon")
    stage.runtime.stop_daemon()
    try:
        code, out, errors = stage.ran(*stage.words(images.busybox(), "--allow", LISTED)[1:])
        listed = stage.ran("sweep", "--runtime=docker")
    finally:
        stage.runtime.start_daemon()
    assert code == 125 and "docker's daemon does not answer" in errors, (code, errors)
    assert "systemctl start docker" in errors, errors
    assert listed[0] == 125 and "daemon" in listed[2], listed
    stage.nothing_is_left()


def a_socket_that_the_user_may_not_use(stage):
    if not stage.is_docker:
        raise Skip("there is no daemon")
    home = stage.folder()
    home.chmod(0o777)
    command = ["setpriv", f"--reuid={NOBODYS}", f"--regid={NOBODYS}", "--clear-groups", "--",
               *stage.words(images.busybox(), "--allow", LISTED)]
    with subprocess.Popen(stage.runtime.command(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=stage.runtime.environment({"HOME": home})) as process:
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 125, (process.returncode, errors)
    assert b"permission" in errors and b"group `docker`" in errors, errors
    stage.nothing_is_left()


def a_daemon_without_room_for_networks(stage):
    if not stage.is_docker:
        raise Skip("podman has room for more networks than a test can make")
    made = []
    try:
        for number in range(POOLS):
            if stage.runtime.run("network", "create", f"pool-{number}").returncode != 0:
                break
            made.append(f"pool-{number}")
        assert len(made) < POOLS, "there is room for more"
        with stage.launch(images.busybox(), "--allow", LISTED) as server:
            server.say_back()
            outer = next(name for name in stage.runtime.networks() if name.endswith("-out"))
            [found] = stage.runtime.json("network", "inspect", outer)
            [subnet] = found["IPAM"]["Config"]
            assert subnet["Subnet"].startswith("10.231.") and subnet["Subnet"].endswith("/29"), subnet
            assert server.end() == 0
        assert set(stage.runtime.networks()) == set(made), stage.runtime.networks()
    finally:
        stage.runtime.run("network", "rm", *made)
    stage.nothing_is_left()
    return f"after {len(made)} networks"


def networks_that_are_taken(stage):
    made = []

    def take(subnets):
        for subnet in subnets:
            name = f"taken-{len(made)}"
            stage.runtime.must("network", "create", f"--subnet={subnet}", name)
            made.append(name)

    def give_back():
        if made:
            stage.runtime.run("network", "rm", *made)
        made.clear()

    try:
        take(TAKEN)
        for _ in range(2):
            with stage.launch(images.busybox(), "--allow", LISTED) as server:
                server.say_back()
                assert server.end() == 0
        assert set(stage.runtime.networks()) == set(made), stage.runtime.networks()
        give_back()
        if stage.is_docker:
            return  # It says the same, and takes ten seconds to try.
        take([WHOLE_RANGE])
        with stage.launch(images.busybox(), "--allow", LISTED) as server:
            assert server.wait() == 125
            errors = server.errors.text()
        assert "cannot make a network:" in errors and "strait sweep" in errors, errors
        assert set(stage.runtime.networks()) == set(made), stage.runtime.networks()
    finally:
        give_back()
    stage.nothing_is_left()


def a_proxy_that_is_not_static(stage):
    for program, reason in [("/usr/bin/python3", "is not static"), ("/etc/passwd", "is no Linux program"),
                            ("/nonexistent/strait", "is not there"), ("/usr", "is no regular file")]:
        errors = stage.refuses(images.busybox(), "--allow", LISTED, "--proxy-binary", program, code=125)
        assert f"`{program}`, given by --proxy-binary, {reason}" in errors, errors
    # Without a network there is no proxy, and nothing to be wrong with it.
    with stage.launch(images.busybox(), "--proxy-binary", "/nonexistent/strait") as server:
        server.say_back()
        assert server.end() == 0


def a_cache_that_cannot_be_written(stage):
    folder = stage.folder()
    (folder / "strait").mkdir(mode=0o555)
    places = ["/proc/none"]
    if stage.is_rootless:
        # As root there is no folder that cannot be written to for its mode.
        folder.chmod(0o555)
        places += [folder]
    for place in places:
        for flags in ["--allow", LISTED], []:
            errors = stage.refuses(images.busybox(), *flags, code=125, extra_env={"XDG_CACHE_HOME": place})
            assert str(place) in errors and "set XDG_CACHE_HOME to a folder" in errors, errors
    shutil.rmtree(folder, ignore_errors=True)


def a_state_folder_that_cannot_be_written(stage):
    words = [word for word in stage.words(images.busybox(), "--allow", LISTED) if "--audit" not in str(word)]
    code, out, errors = stage.ran(*words[1:], extra_env={"XDG_STATE_HOME": "/proc/none"})
    assert code == 125 and "/proc/none/strait" in errors and "--audit" in errors, (code, errors)
    stage.nothing_is_left()


def a_policy_that_allows_what_is_never_opened(stage):
    for flags in ["--allow", "localhost"], ["--allow", "169.254.169.254"], ["--allow", "*.example.com"], \
                 ["--allow", LISTED, "--allow-net", "127.0.0.0/8"], ["--secret", "TOKEN"]:
        stage.refuses(images.busybox(), *flags, code=2, extra_env={"TOKEN": "value"})


CASES = [
    an_image_that_is_not_here,
    a_tag_is_refused,
    an_image_for_another_machine,
    a_runtime_that_is_not_there,
    a_daemon_that_is_not_there,
    a_socket_that_the_user_may_not_use,
    a_daemon_without_room_for_networks,
    networks_that_are_taken,
    a_proxy_that_is_not_static,
    a_cache_that_cannot_be_written,
    a_state_folder_that_cannot_be_written,
    a_policy_that_allows_what_is_never_opened,
]
