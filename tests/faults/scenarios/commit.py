"""Workers that are killed, suspended, too slow or stopped in the middle of a commit."""

from __future__ import annotations

import signal

from streamapp._base.failpoints import POINTS

from ..driver import Run
from ..matrix import EOS, GUARANTEES, scenario
from ..workloads import TOPOLOGIES

STEPS = (
    "batch-polled",
    "records-processed",
    "state-flushed",
    "outputs-acknowledged",
    "offsets-sent",
    "offsets-committed",
    "state-persisted",
)
assert set(STEPS) <= set(POINTS)


@scenario(
    1,
    fault="kill -9 in the third commit of a worker, at each step of the commit in turn",
    workloads=TOPOLOGIES,
)
def kill_at_each_step(run: Run) -> None:
    for step in STEPS:
        run.start(failpoint=f"{step}:kill:3")
        with run.feeding(80):
            run.killed("a")
    run.start()
    run.finish()


@scenario(
    1,
    fault="kill -9 at one step of the third commit; a worker without the local state takes over",
    sampled=("[count-alo-offsets-committed]", "[count-eos-offsets-sent]"),
    each={"step": ("outputs-acknowledged", "offsets-sent", "offsets-committed")},
)
def kill_and_lose_the_disk(run: Run, step: str) -> None:
    run.start(failpoint=f"{step}:kill:3")
    with run.feeding(80):
        run.killed("a")
    run.start("b")
    run.finish()


@scenario(
    5,
    6,
    fault="SIGSTOP of a worker in the middle of a commit, until the group has replaced the worker, then SIGCONT",
    each={"step": ("state-flushed", "offsets-sent", "offsets-committed")},
)
def zombie(run: Run, step: str) -> None:
    run.start("a", failpoint=f"{step}:stop:3")
    with run.feeding():
        run.suspended("a")
        run.start("b")
        run.has_all("b")
        run.commits()
        run.signal("a", signal.SIGCONT)
        run.feed(100)
        run.caught_up()
    run.finish()


@scenario(
    13,
    fault="processing stops for longer than the transaction time-out: the worker begins again at the last "
    "commit",
    guarantees=(EOS,),
)
def transaction_times_out(run: Run) -> None:
    run.start(failpoint="records-processed:sleep=14:5")
    with run.feeding():
        run.wait_until(lambda: "begin again" in run.log("a") or not run.behind, "it begins again", 40)
    run.feed(200)
    run.finish()


@scenario(
    2,
    15,
    fault="SIGTERM while records come in; the next start restores nothing",
    guarantees=GUARANTEES,
    workloads=("count", "rekeyed"),
    sampled=("[rekeyed-eos]",),
)
def clean_stop(run: Run) -> None:
    run.start()
    with run.feeding(80):
        run.runs("a", 4)
        run.commits()
        run.stop("a")
    run.start()
    run.feed(100)
    run.caught_up()
    run.must("restored" not in run.log("a"), "nothing is restored after a clean stop")
    run.finish()


@scenario(
    2,
    fault="SIGTERM while a record takes longer than the time-out of the stop; the worker is then started again",
)
def stop_takes_too_long(run: Run) -> None:
    run.feed(100)
    run.start(SLOW_AT="150:20", SHUTDOWN_SECONDS="5")
    run.runs("a", 4)
    run.caught_up()
    run.feed(200)
    run.signal("a", signal.SIGTERM)
    run.ends("a")
    run.start()
    run.finish()
