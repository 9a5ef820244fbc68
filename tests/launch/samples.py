#!/usr/bin/env python3
"""What the three runtimes really say, for tests that must not need them: samples/RUNTIME/*.

    tests/launch/samples.py            writes them anew, from the runtimes of this machine

JSON as it comes (`inspect`, `version`, `info`, `ps`), and errors.txt: a command, its exit code and what it said, for
each thing that can go wrong. What belongs to the machine (folders, names, its kernel, its size) is replaced.
"""

import json
import pathlib
import platform
import re
import socket
import subprocess
import sys
import urllib.parse

import images
import runtimes

SAMPLES = pathlib.Path(__file__).parent / "samples"
ZEROS = "sha256:" + "0" * 64
# More networks than a fresh daemon has room for.
MANY = 40


def main():
    runtimes.install()
    for kind in runtimes.KINDS:
        with kind() as runtime:
            Sampler(runtime).all()
            for other in runtime.clients()[1:]:
                client = runtime.with_client(other)
                version = client.must("version", "--format", "{{.Client.Version}}").strip()
                Sampler(client, f"docker-{version}-client").all()


class Sampler:
    def __init__(self, runtime, name=None):
        self._runtime, self._docker = runtime, runtime.name == "docker"
        self._folder = SAMPLES / (name or runtime.name)
        self._errors = []

    def all(self):
        self._folder.mkdir(parents=True, exist_ok=True)
        self._image = images.busybox()
        for image in self._image, images.hostile(), images.foreign():
            self._runtime.load(image.archive)
        self.facts()
        self.things()
        self.errors()
        self._write("errors.txt", "\n".join(self._errors))
        print(f"{self._folder.name}: {len(list(self._folder.iterdir()))} files, {len(self._errors)} errors")

    def facts(self):
        json_flag = ["--format", "{{json .}}"] if self._docker else ["--format", "json"]
        self._json("version.json", "version", *json_flag)
        self._json("info.json", "info", *json_flag)
        self._json("image-inspect.json", "image", "inspect", images.hostile().id)

    def things(self):
        run, remove = self._runtime.must, ["rm", "--force"]
        closed = ["-o", "com.docker.network.bridge.inhibit_ipv4=true"] if self._docker else ["--disable-dns"]
        network = ["network", "create", "--label=strait.run=1"]
        run(*network, "--internal", *closed, "--subnet=10.231.1.0/29", "sample-in")
        run(*network, *([] if self._docker else closed), "sample-out")
        create = ["create", "--interactive", "--pull=never", "--name=sample", "--label=strait.run=1", "--read-only",
                  "--cap-drop=ALL", "--log-driver=none"]
        if self._docker:
            run(*create, "--network=sample-out", self._image.id, "cat")
            run("network", "connect", "--ip", "10.231.1.2", "sample-in", "sample")
        else:
            run(*create, "--network=sample-in:ip=10.231.1.2", "--network=sample-out", self._image.id, "cat")
        process = self._runtime.popen([self._runtime.program, "start", "--attach", "--interactive", "sample"])
        process.stdin.write(b"up\n")
        process.stdin.flush()
        process.stdout.readline()
        ps = ["ps", "--all", "--filter=label=strait.run"]
        self._json("container-inspect.json", "inspect", "sample")
        self._json("network-inspect.json", "network", "inspect", "sample-in", "sample-out")
        for name, words in ("ps", ps), ("network-ls", ["network", "ls", "--filter=label=strait.run"]):
            if self._docker:
                # One object a line, not a list.
                self._write(f"{name}.jsonl", self._runtime.must(*words, "--format", "{{json .}}"))
            else:
                self._json(f"{name}.json", *words, "--format", "json")
        run(*remove, "sample")
        process.communicate(timeout=20)
        run("network", "rm", "sample-in", "sample-out")

    def errors(self):
        run = ["run", "--rm", "--pull=never", "--network=none"]
        image = self._image.id
        say = self._error
        say("an image that is not there, by digest", *run, f"127.0.0.1:5000/nobody/server@{ZEROS}", "true")
        say("an image that is not there, by id", *run, ZEROS, "true")
        say("inspect an image that is not there", "image", "inspect", ZEROS)
        say("pull from a registry that is not there", "pull", f"127.0.0.1:5999/nobody/server@{ZEROS}")
        say("a program for another processor", *run, images.foreign().id)
        say("an entrypoint that is not there", *run, image, "/nowhere")
        say("an entrypoint that may not be run", *run, image, "/server/not-executable")
        say("an entrypoint that is a folder", *run, image, "/etc")
        say("a user that the image does not know", *run, "--user=nosuch", image, "true")
        say("the program's own exit code", *run, image, "/server/exit", "42")
        # Not `--volume`: docker makes the folder, on the host.
        missing = f"--mount=type=bind,source={self._runtime.folder}/nowhere,target=/data,readonly"
        say("a mount that is not there", *run, missing, image, "true")
        say("an unknown flag", *run, "--no-such-flag", image, "true")
        say("a container that is not there", "inspect", "nosuch")
        say("remove a container that is not there", "rm", "--force", "nosuch")
        say("start a container that is not there", "start", "nosuch")
        say("a network that is not there", "run", "--rm", "--pull=never", "--network=nosuch", image, "true")
        say("remove a network that is not there", "network", "rm", "nosuch")

        self._runtime.must("network", "create", "--subnet", "10.231.2.0/29", "taken")
        say("a network's name in use", "network", "create", "taken")
        say("a subnet in use", "network", "create", "--subnet", "10.231.2.0/29", "other")
        say("a subnet that overlaps", "network", "create", "--subnet", "10.231.2.0/24", "other")
        say("a subnet that is none", "network", "create", "--subnet", "10.231.2.1", "other")
        on_taken = ["run", "--detach", "--pull=never", "--network=taken"]
        self._runtime.must(*on_taken, "--ip=10.231.2.3", "--name=taken", image, "cat", "/dev/zero")
        say("a container's name in use", *run, "--name=taken", image, "true")
        say("an address in use", *on_taken, "--ip=10.231.2.3", image, "true")
        say("an address outside the network", *on_taken, "--ip=10.231.3.3", image, "true")
        say("remove a network that is in use", "network", "rm", "taken")
        self._clean()

        if self._docker:
            for number in range(MANY):
                if self._runtime.run("network", "create", f"many-{number}").returncode != 0:
                    break
            say("no address left in the pools", "network", "create", "one-more")
            say("the same, with a subnet of one's own", "network", "create", "--subnet", "10.231.2.0/29", "one-more")
            self._clean()
            say("no daemon", "version", extra_env={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
            say("no daemon", *run, image, "true", extra_env={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
            say("a socket without permission", *run, image, "true", as_nobody=True)
        elif self._runtime.name == "rootless":
            say("no runtime folder named", *run, image, "true", extra_env={"XDG_RUNTIME_DIR": None})
            say("a runtime folder that is not there", *run, image, "true", extra_env={"XDG_RUNTIME_DIR": "/nowhere"})
            say("limits, where they cannot be set", *run, "--memory=64m", "--pids-limit=64", image, "true")
        else:
            say("a limit that may not be raised", *run, "--ulimit=core=0", image, "true")

    def _clean(self):
        containers, networks = self._runtime.containers(), self._runtime.networks()
        if containers:
            self._runtime.must("rm", "--force", *containers)
        if networks:
            self._runtime.must("network", "rm", *networks)

    def _json(self, name, *words):
        self._write(name, json.dumps(self._runtime.json(*words), indent=2) + "\n")

    def _error(self, what, *words, extra_env=None, as_nobody=False):
        argv = self._runtime.argv(*words)
        if as_nobody:
            nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
            argv = self._runtime.command(*nobody, self._runtime.program, *words)
        ran = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/",
                             timeout=runtimes.COMMAND, env=self._runtime.environment(extra_env))
        program = pathlib.Path(self._runtime.program).name
        lines = [f"# {what}", f"$ {program} {' '.join(words)}", f"exit {ran.returncode}"]
        lines += [f"stdout: {line}" for line in ran.stdout.splitlines()]
        lines += [f"stderr: {line}" for line in ran.stderr.splitlines()]
        self._errors.append("\n".join(lines) + "\n")

    def _write(self, name, text):
        (self._folder / name).write_text(self._scrubbed(text))

    def _scrubbed(self, text):
        runtime = self._runtime
        quoted = urllib.parse.quote(str(runtime.folder), safe="")
        replaced = [
            (str(runtime.folder), "/FOLDER"), (quoted, "%2FFOLDER"), (getattr(runtime, "user", None) or "\0", "tester"),
            (socket.gethostname(), "HOSTNAME"), (platform.release(), "KERNEL"),
        ]
        if getattr(runtime, "uid", None) is not None:
            replaced.append((f"/run/user/{runtime.uid}", "/run/user/1000"))
        for found, instead in replaced:
            text = re.sub(rf"(?<![\w]){re.escape(found)}(?![\w])", instead, text)
        # How big and how busy the machine is, and when.
        sizes = "mem|swap|graphRootAllocated|graphRootUsed|Mem|NCPU|cpus|NFd|NGoroutines|NEventsListener|uptime"
        text = re.sub(rf'("(?:{sizes})\w*": )(\d+|"[^"]*")', r"\g<1>0", text)
        text = re.sub(r'("\w+Percent": )[\d.]+', r"\g<1>0", text)
        text = re.sub(r'("(?:SystemTime)": ")[^"]*', r"\g<1>2026-01-01T00:00:00Z", text)
        text = re.sub(r'("ID": ")[A-Z0-9:]{40,}', r"\g<1>DAEMON", text)
        return text


if __name__ == "__main__":
    sys.exit(main())
