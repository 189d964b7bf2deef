"""Dead letters that are replayed, edited and cannot be written, with a worker beside the desk."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ..driver import Run, set_config
from ..feed import poison_every
from ..matrix import EOS, scenario
from ..models import POISON
from .retries import STEPS

desk = partial(scenario, 36, workloads=("desk",), guarantees=(EOS,), dead_letters=True)


@desk(
    fault="kill -9 of `streamapp dlq replay`, in its open transaction or directly after its commit; a second "
    "replay does the rest, while records come in",
    each={"step": ("desk-written", "desk-committed")},
    sampled=("[desk-eos-desk-written]",),
)
def replay_killed(run: Run, step: str) -> None:
    _forty_letters(run)
    run.trouble()
    with run.feeding(40):
        run.dlq("replay", "--all", "--rate", "10", failpoint=f"{step}:kill:2", code=-9)
        run.dlq("replay", "--all")
    _all_came_out(run)


@desk(
    fault="kill -9 of a worker at a step of its commit while letters are replayed and records are parked. At "
    "the end, each record is in one place",
    each={"step": STEPS},
)
def worker_killed_during_a_replay(run: Run, step: str) -> None:
    _forty_letters(run)
    run.stop("a")
    run.trouble("k11")
    with ThreadPoolExecutor(1) as beside, run.feeding(40):
        replay = beside.submit(run.dlq, "replay", "--all", "--rate", "2")
        run.start("a", failpoint=f"{step}:kill:8")
        run.killed("a")
        run.must(not replay.done(), "the worker is killed while letters are replayed")
        run.start("a")
        replay.result()
    run.trouble()
    _all_came_out(run)


@desk(
    fault="ten thousand letters are replayed while records come in: each gives one result",
)
def ten_thousand_replayed(run: Run) -> None:
    run.start("a", TIMES="1")
    run.feed(10_000, poison_every(1))
    run.became_letters(10_000)
    run.start("b", TIMES="1", CURED="yes")
    run.runs("b")
    run.stop("a")
    with run.feeding(100):
        run.dlq("replay", "--all")
    _all_came_out(run)


@desk(
    fault="a letter gets a value that fails, too, and is replayed: the record becomes one new letter. After a "
    "second edit, it gives a result",
)
def edited_into_something_worse(run: Run) -> None:
    run.trouble("k7")
    run.start("a", TIMES="1")
    run.feed(80)
    run.became_letters(2)
    run.trouble()
    first, *_ = run.letters()
    run.edit(first["letter"], f"{POISON}-worse")
    run.dlq("replay", "--all")
    run.became_letters(3)
    worse = next(each for each in run.letters() if each["state"] == "open")
    run.edit(worse["letter"], "mended")
    run.dlq("replay", "--all")
    run.dlq("replay", "--all", code=1)  # nothing is open: refused
    _all_came_out(run, *run.changed)


@desk(
    fault="the dead-letter topic takes no letter of this size: the worker names the topic and ends; then "
    "the topic takes larger letters, and each record is in one place",
    workloads=("retried",),
)
def dead_letter_too_large(run: Run) -> None:
    set_config(run, run.dead_letters, "max.message.bytes", "100")
    run.start("a", TIMES="1")
    run.feed(100, poison_every(40))
    run.fails("a", run.dead_letters)
    set_config(run, run.dead_letters, "max.message.bytes", "1000000")
    run.start("a", TIMES="1")
    run.drained()
    run.finish()


@desk(
    fault="the dead-letter topic has too few replicas in sync for 20 s: the worker waits, and goes on",
    workloads=("retried",),
)
def dead_letter_replicas_missing(run: Run) -> None:
    run.start("a", TIMES="1")
    run.feed(100)
    run.caught_up()
    set_config(run, run.dead_letters, "min.insync.replicas", "2")
    run.feed(100, poison_every(40))
    time.sleep(20)
    set_config(run, run.dead_letters, "min.insync.replicas", "1")
    run.drained()
    run.finish()


def _forty_letters(run: Run) -> None:
    run.trouble("k7", "k8", "k9", "k10")
    run.start("a", TIMES="1")
    run.feed(400)
    run.became_letters(40)


def _all_came_out(run: Run, *but: str) -> None:
    run.came_out(*but)
    run.note_letters()
    run.finish()
