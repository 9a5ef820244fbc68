#!/usr/bin/env python3
"""`strait launch` on real container runtimes: podman as root, podman as an ordinary user, and docker.

    tests/launch/run.py [podman] [rootless] [docker] [--binary FILE] [--only TEXT] [--seed NUMBER]

All three unless named. FILE is the static program, launcher and proxy in one: target/static/strait-ARCH unless given;
scripts/build-static makes it. --only runs the cases that have TEXT in their names.

Installs what is missing where it can (Debian, as root). Each runtime is one of its own, in a network namespace that
plays the machine (runtimes.py), and nothing is left of it. A runtime that cannot be started is told in a line
`SKIPPED: launch NAME: REASON` and counts as skipped.

Last line `N passed, N failed, N skipped`. Exit: 0 all passed, 1 something failed, 2 wrong usage, 77 nothing could be
started.
"""

import argparse
import contextlib
import functools
import os
import pathlib
import platform
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback

sys.dont_write_bytecode = True  # leave the tree as it was

import runtimes  # noqa: E402
import stage as stages  # noqa: E402
import test_config  # noqa: E402
import test_ends  # noqa: E402
import test_errors  # noqa: E402
import test_hostile  # noqa: E402
import test_leaks  # noqa: E402
import test_network  # noqa: E402
import test_sandbox  # noqa: E402
import test_servers  # noqa: E402
import test_stdio  # noqa: E402

try:
    import test_doctor
except ModuleNotFoundError:
    test_doctor = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = [test_network, test_sandbox, test_stdio, test_servers, test_hostile, test_config, test_errors, test_ends,
           test_leaks]
# Seconds: for one case, and for everything.
CASE, WHOLE = 120, 900
SKIPPED = 77
KINDS = {kind.name: kind for kind in runtimes.KINDS}


class Score:
    """What came of the cases."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def run(self, name, case, *after):
        """One case, and one line about it. `after` is done when it failed."""
        began = time.monotonic()
        try:
            with _deadline(CASE):
                note = case()
        except stages.Skip as reason:
            self.skipped += 1
            print(f"  skip  {name}: {reason}", flush=True)
        except Exception as error:  # an assertion, or anything else that the program made happen
            self.failed += 1
            print(f"  FAIL  {name}: {' '.join((str(error) or repr(error)).split())}", flush=True)
            traceback.print_exc(limit=-4, file=sys.stderr)
            for step in after:
                step()
        else:
            self.passed += 1
            took = f"{time.monotonic() - began:.1f} s"
            print(f"  ok    {name} ({took}{f'; {note}' if note else ''})", flush=True)

    def add(self, passed, failed, skipped):
        self.passed, self.failed, self.skipped = self.passed + passed, self.failed + failed, self.skipped + skipped

    def skip(self, what, reason):
        self.skipped += 1
        print(f"SKIPPED: launch {what}: {' '.join(str(reason).split())}", flush=True)

    def code(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        if self.failed:
            return 1
        return 0 if self.passed else SKIPPED


def sentence(case):
    return case.__name__.replace("_", " ")


def doctor_cases():
    """About a bench of their own (test_doctor.py)."""
    return test_doctor.CASES if test_doctor else []


def main():
    options = parse_options()
    for each in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        signal.signal(each, _stop)
    began = time.monotonic()
    if not options.lane:
        print(f"launch: {_version(options.binary)}; seed {options.seed}", flush=True)
        runtimes.install()
    score = Score()
    if len(options.names) == 1:
        with contextlib.ExitStack() as closing:
            stage = start(options.names[0], options, score, closing)
            if stage is not None:
                run_lane(stage, options, score)
                if not options.lane:
                    run_afterwards([stage], options, score)
    else:
        run_lanes(options, score)
        with contextlib.ExitStack() as closing:
            # What could not be started has been told of.
            again = Score()
            wanted = options.names if cases_of("QUIET", options) or cases_of("TOGETHER", options) else []
            ready = [start(name, options, again, closing) for name in wanted]
            run_afterwards([stage for stage in ready if stage is not None], options, score)
            score.failed += again.failed
    if not options.lane:
        print(f"launch: {time.monotonic() - began:.0f} s", flush=True)
    return score.code()


def run_lane(stage, options, score):
    """The cases of one runtime."""
    began = time.monotonic()
    for case in cases_of("CASES", options):
        score.run(f"{stage.name}: {sentence(case)}", lambda case=case: case(stage), stage.clear)
    bench = functools.cache(lambda: test_doctor.Bench(stage.runtime, stage.binary))
    for case in doctor_cases():
        if options.only in f"the doctor {sentence(case)}":
            score.run(f"{stage.name}: the doctor {sentence(case)}", lambda case=case: case(bench()), stage.clear)
    print(f"{stage.name}: {time.monotonic() - began:.0f} s", flush=True)


def run_lanes(options, score):
    """Each runtime in a process of its own, all at once: they wait more than they work."""
    words = [sys.executable, __file__, "--lane", f"--binary={options.binary}", f"--only={options.only}",
             f"--seed={options.seed}"]
    lanes, counted = [], set()
    try:
        for name in options.names:
            lanes.append(subprocess.Popen([*words, name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
        readers = [threading.Thread(target=_retell, args=(name, lane, score, counted), daemon=True)
                   for name, lane in zip(options.names, lanes)]
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + WHOLE
        for name, lane, reader in zip(options.names, lanes, readers):
            try:
                lane.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                score.failed += 1
                print(f"  FAIL  {name}: not through within {WHOLE} s", flush=True)
                lane.terminate()
                lane.wait()
            reader.join()
            if name not in counted:
                score.failed += 1
                print(f"  FAIL  {name}: it broke off, exit {lane.returncode}", flush=True)
    finally:
        # Each cleans up after itself, and is given the time.
        for lane in lanes:
            lane.terminate()
        for lane in lanes:
            lane.wait()


def _retell(name, lane, score, counted):
    """What a lane says, but for its last line, which is counted."""
    for line in lane.stdout:
        if found := re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped\n", line):
            score.add(*map(int, found.groups()))
            counted.add(name)
        else:
            print(line, end="", flush=True)


def run_afterwards(stages, options, score):
    """Those that need a quiet machine, and those over all runtimes at once."""
    for stage in stages:
        for case in cases_of("QUIET", options):
            score.run(f"{stage.name}: {sentence(case)}", lambda case=case: case(stage), stage.clear)
    for case in cases_of("TOGETHER", options) if stages else []:
        score.run(sentence(case), lambda case=case: case(stages, random.Random(f"{options.seed}")),
                  *(stage.clear for stage in stages))


def cases_of(kind, options):
    """The cases of the modules' lists of this name."""
    return [case for module in MODULES for case in getattr(module, kind, []) if options.only in sentence(case)]


def start(name, options, score, closing):
    """The stage of a runtime, closed at the end; None where there is none."""
    runtime = KINDS[name]()
    try:
        runtime.start()
    except runtimes.Unavailable as reason:
        runtime.stop()
        score.skip(runtime.name, reason)
        return None
    except BaseException:
        runtime.stop()
        raise

    def stop():
        left = runtime.stop()
        if left:
            score.failed += 1
            print(f"  FAIL  {runtime.name}: left on the machine: {'; '.join(left)}", flush=True)

    closing.callback(stop)
    print(f"{runtime.name}: {runtime.version()}", flush=True)
    try:
        stage = stages.Stage(runtime, options.binary)
    except Exception as error:
        score.failed += 1
        print(f"  FAIL  {runtime.name}: nothing can be launched: {' '.join(str(error).split())}", flush=True)
        traceback.print_exc(limit=-4, file=sys.stderr)
        return None
    closing.callback(stage.close)
    stage.random = random.Random(f"{options.seed} {name}")
    return stage


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="RUNTIME", help="podman, rootless, docker")
    parser.add_argument("--binary", type=pathlib.Path, metavar="FILE", help="the static program")
    parser.add_argument("--only", default="", metavar="TEXT", help="the cases that have it in their names")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), metavar="NUMBER",
                        help="of what is random, as a run has printed it")
    parser.add_argument("--lane", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in KINDS]:
        parser.error(f"no runtime {', '.join(unknown)}; there are {', '.join(KINDS)}")
    options.names = list(dict.fromkeys(options.names)) or list(KINDS)
    machine = platform.machine().replace("arm64", "aarch64")
    options.binary = (options.binary or ROOT / f"target/static/strait-{machine}").resolve()
    if not os.access(options.binary, os.X_OK):
        parser.error(f"no program at {options.binary}: scripts/build-static makes it")
    return options


def _version(binary):
    return subprocess.run([binary, "--version"], check=True, capture_output=True, text=True, timeout=30).stdout.strip()


@contextlib.contextmanager
def _deadline(seconds):
    def too_late(*_):
        raise TimeoutError(f"it did not end within {seconds} s")

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def _stop(number, _frame):
    # Once: the clean-up must not be interrupted by a second one.
    for each in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(f"launch: stopped by {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main())
