"""Fifty launches over all runtimes at once, some of them killed outright: nothing is left of any."""

import contextlib
import threading

import images
from stage import LISTED

LAUNCHES = {"podman": 20, "rootless": 15, "docker": 15}
KILLED = 20
# How many there are of a runtime at a time; and seconds, for all to end, and for what was killed to be removed.
AT_ONCE, WHOLE, AFTERWARDS = 2, 110, 60


def fifty_launches_leave_nothing(stages, random):
    """Seeded: see the first line of the run."""
    jobs = [stage for stage in stages for _ in range(LAUNCHES[stage.name])]
    killed = set(random.sample(range(len(jobs)), KILLED * len(jobs) // sum(LAUNCHES.values())))
    # A start takes about a second: the kills are spread over it, and over what comes after.
    plans = {stage: [] for stage in stages}
    for number, stage in enumerate(jobs):
        plans[stage].append(random.uniform(0, 2.5) if number in killed else None)
    failures, lock = [], threading.Lock()

    def work(stage):
        while True:
            with lock:
                if not plans[stage]:
                    return
                kill_after = plans[stage].pop()
            try:
                one(stage, kill_after)
            except Exception as error:
                failures.append(f"{stage.name}: {error!r}")

    threads = [threading.Thread(target=work, args=(stage,), daemon=True) for stage in stages for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WHOLE)
        assert not thread.is_alive(), "the launches did not end"
    assert not failures, f"{len(failures)} failed: {failures[:3]}"
    for stage in stages:
        stage.nothing_is_left(AFTERWARDS)
    return f"{len(jobs)} launches, {len(killed)} of them killed"


def one(stage, kill_after):
    program = "/server/echo" if kill_after is None else "/server/stubborn"
    with stage.launch(images.busybox(), "--name", "leak", "--allow", LISTED, "--command", program) as server:
        if kill_after is None:
            server.say_back()
            code = server.end()
            assert code == 0, f"exit {code}: {server.errors.text()}"
        else:
            with contextlib.suppress(Exception):
                server.process.wait(kill_after)
            server.kill()


TOGETHER = [fifty_launches_leave_nothing]
