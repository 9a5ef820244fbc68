#!/usr/bin/env python3
"""Shows `strait launch`: a sample MCP server in the sandbox, one host it may reach and one it may not, and the doctor.

    tests/launch/demo.py --binary FILE

Needs root: the runtime, the origins and the name server are on a machine of their own, in a network namespace, and
gone afterwards. Installs podman, or docker, where neither is here and it can. `scripts/demo` calls this.
Exit: 0 all came out as it should, 1 something did not, 77 no runtime could be started.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap

import images
import runtimes
import session
import stage

WIDTH = 78


def say(text=""):
    print(text, flush=True)


def show(text):
    for line in text.splitlines():
        for part in textwrap.wrap(line, WIDTH, break_on_hyphens=False, drop_whitespace=False):
            say(f"  {part.rstrip()}")


def wrong_if(is_wrong, what):
    if is_wrong:
        raise AssertionError(what)


def launch_words(runtime, binary, image, audit):
    address, port = stage.RESOLVER
    return [binary, "launch", f"--runtime={'docker' if runtime.name == 'docker' else 'podman'}", f"--image={image.id}",
            "--name=sample", f"--allow={stage.LISTED}", f"--resolver={address}:{port}", f"--audit={audit}",
            "--command=python3", "--", "/toy_server.py"]


def ask(server, host, outcome, reason):
    say(f'\n  client: tools/call fetch {{"url": "http://{host}/"}}')
    answer = server.call("fetch", url=f"http://{host}/")
    show(f"server: {json.dumps(answer)}")
    wrong_if(outcome not in json.dumps(answer), f"wanted {outcome} of {host}")
    return reason


def demonstrate(runtime, binary):
    image = images.python()
    runtime.load(image.archive)
    program = runtime.folder / "strait"
    program.write_bytes(binary.read_bytes())
    program.chmod(0o755)
    audit = runtime.folder / "audit.jsonl"
    words = launch_words(runtime, program, image, audit)
    say(f"\nAn MCP server in a sandbox, by {runtime.name} {runtime.version()}.\n")
    shown = [word for word in map(str, words[1:]) if not word.startswith(("--runtime", "--resolver", "--audit"))]
    show(f"$ strait {' '.join(shown)}".replace(image.id, f"{image.id[:19]}…"))

    with session.Session(runtime.popen(words)) as server:
        say("\n  client: initialize")
        show(f"server: {json.dumps(server.greet()['serverInfo'])}")
        reasons = [ask(server, stage.LISTED, "the answer of", "listed"), ask(server, stage.UNLISTED, "403", "not_listed")]
        wrong_if(server.end() != 0, f"it ended with {server.process.returncode}: {server.errors.text()}")
        say("\nWhat strait says where clients keep it (standard error):\n")
        show(server.errors.text())
    lines = audit.read_text().splitlines()
    say("\nEvery attempt, a line of the audit file:\n")
    show("\n".join(lines))
    wrong_if([json.loads(line)["reason"] for line in lines] != reasons, f"wanted the reasons {reasons}")
    wrong_if(runtime.containers() or runtime.networks(), "something is left")
    say("\nNothing is left: no container, no network.")


def examine(runtime, binary):
    program = runtime.folder / "strait"
    kind = "docker" if runtime.name == "docker" else "podman"
    say("\nThe sandbox, proved from inside:\n\n  $ strait doctor\n")
    done = subprocess.run(runtime.command(program, "doctor", f"--runtime={kind}"), env=runtime.env,
                          capture_output=True, text=True, timeout=120)
    say(done.stdout)
    wrong_if(done.returncode != 0, f"the doctor ended with {done.returncode}: {done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    binary = parser.parse_args().binary.resolve()
    runtimes.install()
    why = []
    for kind in runtimes.Podman, runtimes.Docker:
        try:
            with kind() as runtime, tempfile.TemporaryDirectory() as folder:
                names = [stage.LISTED, stage.UNLISTED, stage.PRIVATE]
                world = stage.World(runtime.host, stage.certificates.make(pathlib.Path(folder), names).origin)
                try:
                    demonstrate(runtime, binary)
                    examine(runtime, binary)
                finally:
                    world.close()
                return 0
        except runtimes.Unavailable as reason:
            why.append(f"{kind.name}: {reason}")
        except (AssertionError, subprocess.SubprocessError) as error:
            say(f"\n  THIS IS WRONG: {error}")
            return 1
    say(f"SKIPPED: the sandbox: {'; '.join(why)}")
    return 77


if __name__ == "__main__":
    sys.exit(main())
