#!/usr/bin/env python3
"""How much longer a server takes to answer in the sandbox, on each runtime that can be started here.

    tests/launch/bench.py [podman|rootless|docker ...] [--binary FILE] [--rounds N]

Prints Markdown. Every round starts the same server in each of four ways, one after the other, so that what else the
machine is doing hits all of them: strait with a network, strait without, and the runtime's own `run -i --rm` with a
network and with none. The ratio is of medians in one run. Beside it: a round trip over standard input and output, and
what the proxy's container holds in memory.
Exit: 0 measured, 1 something failed, 77 no runtime could be started.
"""

import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import images
import runtimes

ROOT = pathlib.Path(__file__).resolve().parents[2]
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}}
SERVER = ["python3", "/toy_server.py"]
NETWORK = "strait-bench"
TURNS = 300
# Seconds: for a start, and for an end.
START, END = 60, 30


class Server:
    """A started server: when it has answered, and when it has gone."""

    def __init__(self, runtime, words):
        self.began = time.monotonic()
        self.process = runtime.popen(words)

    def ask(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"no answer: {self.process.stderr.read().decode(errors='replace')}"
        return json.loads(line)

    def answered(self):
        assert "result" in self.ask(INITIALIZE)
        return time.monotonic() - self.began

    def turns(self):
        """Microseconds of round trips."""
        taken = []
        for number in range(TURNS):
            began = time.monotonic()
            self.ask({"jsonrpc": "2.0", "id": number, "method": "ping"})
            taken.append((time.monotonic() - began) * 1e6)
        return taken

    def end(self):
        began = time.monotonic()
        self.process.stdin.close()
        self.process.wait(END)
        return time.monotonic() - began


def ways(runtime, program, binary, image):
    launch = [binary, "launch", f"--runtime={program}", f"--proxy-binary={binary}", f"--image={image}",
              "--name=bench", "--audit=none", f"--command={SERVER[0]}"]
    bare = [program, "run", "-i", "--rm", "--pull=never"]
    return {
        "strait": [*launch, "--allow=api.example.com", "--", *SERVER[1:]],
        "bare": [*bare, f"--network={NETWORK}", image, *SERVER],
        "strait without a network": [*launch, "--", *SERVER[1:]],
        "bare without a network": [*bare, "--network=none", image, *SERVER],
    }


def memory_of(name):
    """KiB that the proxy's process holds of its own, and with what it shares; seen from the machine."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[:2] == [b"/strait", b"proxy"] and f"--name={name}".encode() in words:
                fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
                return int(fields["RssAnon"].split()[0]), int(fields["VmRSS"].split()[0])
        except (OSError, KeyError):
            continue
    raise AssertionError("the proxy's process is not there")


def measure(runtime, binary, rounds):
    image = images.python()
    runtime.load(image.archive)
    program = f"/usr/bin/{'docker' if runtime.name == 'docker' else 'podman'}"
    here = runtime.folder / "strait"
    here.write_bytes(binary.read_bytes())
    here.chmod(0o755)
    runtime.must("network", "create", NETWORK)
    try:
        all_ways = ways(runtime, program, here, image.id)
        started, ended = ({name: [] for name in all_ways} for _ in range(2))
        # The first makes the empty image and the private copy, and warms the caches.
        for words in all_ways.values():
            server = Server(runtime, words)
            server.answered()
            server.end()
        for _ in range(rounds):
            for name, words in all_ways.items():
                server = Server(runtime, words)
                started[name].append(server.answered())
                ended[name].append(server.end())
        turns = {}
        for name in "strait", "bare":
            server = Server(runtime, all_ways[name])
            server.answered()
            turns[name] = statistics.median(server.turns())
            if name == "strait":
                memory = memory_of("bench")
            server.end()
    finally:
        runtime.run("network", "rm", NETWORK)
    of = lambda times, name: statistics.median(times[name]) * 1000
    rows = [f"**{runtime.version()}**, {runtime.name}", "", "| | strait | bare | ratio |", "|---|---:|---:|---:|"]
    for title, suffix in ("with a network", ""), ("without a network", " without a network"):
        strait, bare = of(started, f"strait{suffix}"), of(started, f"bare{suffix}")
        rows.append(f"| first reply, {title}, ms | {strait:.0f} | {bare:.0f} | {strait / bare:.2f} |")
    strait, bare = of(ended, "strait"), of(ended, "bare")
    rows.append(f"| from the end of input to the end of all, ms | {strait:.0f} | {bare:.0f} | {strait / bare:.2f} |")
    rows.append(f"| round trip, p50, µs | {turns['strait']:.0f} | {turns['bare']:.0f} | "
                f"{turns['strait'] / turns['bare']:.2f} |")
    rows.append(f"| memory of the proxy, its own, MiB | {memory[0] / 1024:.1f} | – | – |")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runtimes", nargs="*", choices=[[], *(kind.name for kind in runtimes.KINDS)])
    parser.add_argument("--binary", type=pathlib.Path,
                        default=ROOT / f"target/static/strait-{platform.machine().replace('arm64', 'aarch64')}")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if not options.binary.exists():
        sys.exit(f"bench: no program at {options.binary}: scripts/build-static makes it")
    runtimes.install()
    measured = 0
    for kind in runtimes.KINDS:
        if options.runtimes and kind.name not in options.runtimes:
            continue
        try:
            with kind() as runtime:
                print(measure(runtime, options.binary.resolve(), options.rounds), end="\n\n", flush=True)
                measured += 1
        except runtimes.Unavailable as reason:
            print(f"SKIPPED: bench: {kind.name}: {reason}", file=sys.stderr)
        except (AssertionError, subprocess.SubprocessError) as error:
            print(f"bench: {kind.name}: {error}", file=sys.stderr)
            return 1
    return 0 if measured else 77


if __name__ == "__main__":
    sys.exit(main())
