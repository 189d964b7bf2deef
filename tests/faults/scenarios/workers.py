"""Workers come, go, hang and are killed."""

from __future__ import annotations

import signal
import time

from ..driver import Run
from ..matrix import EOS, scenario


@scenario(
    4,
    22,
    fault="two workers, one of them killed and started again, three times in turn",
    workloads=("count", "rekeyed", "window", "agent"),
    sampled=("[rekeyed-eos]",),
)
def kill_in_rotation(run: Run) -> None:
    run.start("a")
    run.runs("a", 4)
    with run.feeding(60):
        for victim, other in (("a", "b"), ("b", "a"), ("a", "b")):
            run.start(other) if other not in run.ports() else None
            run.runs(other)
            run.commits()
            run.kill(victim)
            run.commits()
    run.finish()


@scenario(
    18,
    fault="a second worker joins and leaves again and again while records come in",
    workloads=("count", "rekeyed"),
)
def rebalance_storm(run: Run) -> None:
    run.start("a")
    run.runs("a", 4)
    with run.feeding(60):
        for turn in range(5):
            run.start("b")
            run.wait_until(lambda: "generation" in run.log("b"), "b joins")
            if turn % 2:
                run.stop("b")
            else:
                run.kill("b")
    run.finish()


@scenario(
    21,
    fault="the number of workers goes from one to three and back to one, with state",
    workloads=("count", "window"),
    guarantees=(EOS,),
)
def scale_out_and_in(run: Run) -> None:
    run.start("a")
    run.runs("a", 4)
    with run.feeding(60):
        for name in ("b", "c"):
            run.start(name)
            run.runs(name)
        run.commits()
        for name in ("a", "b"):
            run.stop(name)
            run.commits()
    run.finish()


@scenario(
    3,
    19,
    fault="kill -9 during a restore, and another worker joins during the next restore",
    guarantees=(EOS,),
)
def kill_during_restore(run: Run) -> None:
    run.feed(3_000)
    run.start("a")
    run.caught_up()
    run.kill("a")
    for step in (1, 2):
        run.start(f"r{step}", failpoint=f"restore-batch:kill:{step}")
        run.killed(f"r{step}")
    run.start("c", failpoint="restore-batch:sleep=4:1")
    run.wait_until(lambda: "generation" in run.log("c"), "c begins to restore")
    run.start("d")
    run.feed(200)
    run.finish()


@scenario(
    16,
    fault="a function of the topology never returns: the worker names the place and ends, and another "
    "worker takes over",
    sampled=("[count-eos]",),
)
def handler_hangs(run: Run) -> None:
    run.start("a", HANG_AT="150", POLL_MS="8000")
    run.feed(100)
    run.caught_up()
    run.feed(200)
    run.fails("a", "has not come back for .* record of .*-in-", 60)
    run.start("b")
    run.finish()


@scenario(
    17,
    fault="a record takes longer than `max_poll_interval_ms`; another worker takes over",
    guarantees=(EOS,),
)
def poll_interval_exceeded(run: Run) -> None:
    run.start("a", SLOW_AT="150:25", POLL_MS="8000")
    run.runs("a", 4)
    run.feed(100)
    run.caught_up()
    run.start("b")
    run.runs("b")
    run.feed(200)
    run.ends("a")
    run.finish()


@scenario(52, fault="user code blocks the event loop for three of four seconds")
def event_loop_blocked(run: Run) -> None:
    run.start("a", BUSY="3")
    run.runs("a", 4)
    with run.feeding():
        time.sleep(20)
    run.finish()


@scenario(
    50, fault="all keys are read over HTTP while a worker is killed and started again", guarantees=(EOS,)
)
def queries_during_failover(run: Run) -> None:
    run.feed(500)
    run.start("a")
    run.runs("a", 4)
    run.caught_up()
    with run.asking(), run.feeding(40):
        run.start("b")
        run.runs("b")
        run.kill("a")
        run.runs("b", 4)
        run.start("a")
        run.runs("a")
    answered = {e["worker"] for e in run.history.of("read") if e["status"] == 200}
    run.must(answered == {"a", "b"}, "both workers have answered")
    run.finish()


@scenario(
    5, fault="SIGSTOP of an idle worker for longer than its session, then SIGCONT", sampled=("[count-alo]",)
)
def idle_zombie(run: Run) -> None:
    run.start("a")
    run.runs("a", 4)
    run.feed(200)
    run.caught_up()
    run.signal("a", signal.SIGSTOP)
    run.start("b")
    run.feed(200)
    run.caught_up()
    run.signal("a", signal.SIGCONT)
    run.feed(200)
    run.finish()


@scenario(
    5,
    fault="SIGSTOP, for longer than its session, of a worker in which only punctuators have run since its "
    "start, then SIGCONT",
)
def ticking_zombie(run: Run) -> None:
    run.start("a", TICKS="yes")
    run.runs("a", 4)
    run.feed(200)
    run.caught_up()
    run.stop("a")
    run.start("a", TICKS="yes")
    run.runs("a", 4)
    run.signal("a", signal.SIGSTOP)
    run.start("b", TICKS="yes")
    run.feed(200)
    run.caught_up()
    run.signal("a", signal.SIGCONT)
    run.wait_until(lambda: run.assignments("a") > 1, "a has tasks again")
    run.stop("b")
    run.feed(200)
    run.finish()


@scenario(
    5,
    fault="SIGSTOP of one of two workers for longer than its session; meanwhile the other worker deletes "
    "processed records of the repartition topic; then SIGCONT; four times in turn",
    workloads=("rekeyed",),
    sampled=("[rekeyed-eos]",),
)
def suspended_in_rotation(run: Run) -> None:
    for name in ("a", "b"):
        run.start(name, PURGE_MS="200")
        run.runs(name)
    with run.feeding(60):
        for sleeper, other in (("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")):
            run.commits()
            given = run.assignments(sleeper)
            run.signal(sleeper, signal.SIGSTOP)
            run.wait_until(lambda name=other: run.has_every_task(name), f"{other} has all tasks")
            run.purged(f"{run.id}-regrouped-repartition")
            run.signal(sleeper, signal.SIGCONT)
            run.wait_until(
                lambda name=sleeper, before=given: run.assignments(name) > before, f"{sleeper} is back"
            )
    run.finish()
