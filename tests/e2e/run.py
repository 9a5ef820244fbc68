#!/usr/bin/env python3
"""The real-parts lane: strait between real clients, a real resolver and real origins, in network namespaces.

    tests/e2e/run.py [--binary PATH] [--only WORDS] [--no-install] [--times]

Builds the release binary unless one is given, installs what is missing where it can (see `install` beside this
file), and runs every test. Needs root; elsewhere it says so and exits 77. Exit 1 when a test failed.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # leave the tree as it was

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SKIPPED = 77


def main():
    options = parse_options()
    import network

    if os.geteuid() != 0:
        return skip("not root")
    clients = install(options.no_install)
    if reason := network.why_not():
        return skip(reason)
    if missing := [name for name in ("nginx", "unbound", "openssl", "setpriv") if not installed(name)]:
        return skip(f"{', '.join(missing)} cannot be installed here")

    import lane
    import test_clients
    import test_dns
    import test_forwarding
    import test_lifecycle
    import test_targets
    import test_tunnels
    from world import World

    # A crowd of clients needs as many sockets here as it does there.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    modules = [test_clients, test_targets, test_dns, test_tunnels, test_forwarding, test_lifecycle]
    tests = lane.collect(modules, options.only)
    world = World(options.binary or build(), clients)
    try:
        return lane.run(tests, world, options.times)
    finally:
        world.remove()


def parse_options():
    parser = argparse.ArgumentParser(description="strait between real clients and real origins")
    parser.add_argument("--binary", type=pathlib.Path, help="test this program instead of building one")
    parser.add_argument("--only", default="", metavar="WORDS", help="only tests whose name contains WORDS")
    parser.add_argument("--no-install", action="store_true", help="take what is there, install nothing")
    parser.add_argument("--times", action="store_true", help="how long each test took, on standard error")
    return parser.parse_args()


def install(nothing):
    """The folder of the pinned clients. What could not be installed is for each test to skip."""
    flags = ["--check"] if nothing else []
    ran = subprocess.run([HERE / "install", *flags], stdout=subprocess.PIPE, text=True)
    return pathlib.Path(ran.stdout.strip() or "/nonexistent")


def installed(name):
    return shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def build():
    # Where it puts the program is cargo's business, and the environment's.
    command = ["cargo", "build", "--release", "--locked", "--bin=strait"]
    command += ["--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    [program] = [path for line in built.stdout.splitlines() if (path := json.loads(line).get("executable"))]
    return pathlib.Path(program)


def skip(reason):
    print(f"SKIPPED: e2e: {reason}")
    print("0 passed, 0 failed, 1 skipped")
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
