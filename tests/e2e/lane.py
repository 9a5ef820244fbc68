"""Collects the tests of a module, runs them one after the other, says what came of each."""

import contextlib
import inspect
import signal
import sys
import time
import traceback

# The longest any one test may take before it counts as hung.
TEST_DEADLINE = 60


class Skip(Exception):
    """The test cannot run here, for the reason given; it is counted, and said aloud."""


def for_each(**rows):
    """Runs the test once per row, with the row as its second argument and the row's name in its own."""

    def mark(function):
        function.rows = rows
        return function

    return mark


def collect(modules, only):
    """(name, callable) of every test, in the order written: public functions whose first argument is the world."""
    tests = []
    for module in modules:
        for name, function in vars(module).items():
            if not inspect.isfunction(function) or function.__module__ != module.__name__ or name.startswith("_"):
                continue
            sentence = name.replace("_", " ")
            if hasattr(function, "rows"):
                for row, value in function.rows.items():
                    tests.append((f"{sentence}: {row.replace('_', ' ')}", _bind(function, value)))
            else:
                tests.append((sentence, function))
    return [(name, test) for name, test in tests if only in name]


def run(tests, world, show_times=False):
    """Runs all of them, whatever fails, and returns the exit code."""
    passed = failed = skipped = 0
    for name, test in tests:
        began = time.monotonic()
        try:
            with _deadline():
                test(world)
        except Skip as reason:
            skipped += 1
            print(f"SKIPPED: e2e: {name}: {reason}")
        except Exception as failure:  # an assertion, or anything else the proxy made happen
            failed += 1
            print(f"FAIL {name}: {' '.join((str(failure) or repr(failure)).split())}", flush=True)
            traceback.print_exc(limit=-3, file=sys.stderr)
        else:
            passed += 1
            print(f"ok {name}")
        sys.stdout.flush()
        if show_times:
            print(f"    {time.monotonic() - began:.2f} s", file=sys.stderr)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def _bind(function, value):
    return lambda world: function(world, value)


@contextlib.contextmanager
def _deadline():
    def too_late(*_):
        raise TimeoutError(f"the test did not end within {TEST_DEADLINE} s")

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(TEST_DEADLINE)
    try:
        yield
    finally:
        signal.alarm(0)
