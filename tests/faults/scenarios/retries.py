"""Keys that fail, services that are down, and records that wait for a retry meanwhile."""

from __future__ import annotations

import time
from functools import partial

from ..driver import Run
from ..feed import KEYS, key_of, poison_every, poison_where
from ..matrix import EOS, scenario

retries = partial(scenario, 34, workloads=("retried",))
STEPS = ("state-flushed", "outputs-acknowledged", "offsets-sent", "offsets-committed", "state-persisted")


@retries(
    fault="the records of two keys fail and wait, those of 38 keys go on; kill -9 at a step of the commit; then "
    "the records of the two keys succeed",
    guarantees=(EOS,),
    each={"step": STEPS},
    sampled=("[retried-eos-offsets-committed]",),
)
def parked_keys_and_a_kill(run: Run, step: str) -> None:
    run.trouble("k7", "k8")
    run.start("a", failpoint=f"{step}:kill:4")
    with run.feeding(60):
        run.feed(400)
        run.killed("a")
    run.start("a")
    run.caught_up()
    run.trouble()
    run.drained()
    run.finish()


@retries(
    fault="a record of a key always fails: the record becomes one dead letter, and the records that wait behind "
    "it give results",
    dead_letters=True,
)
def a_key_that_never_works(run: Run) -> None:
    run.trouble()
    run.start("a", TIMES="2", failpoint="offsets-committed:kill:3")
    with run.feeding(60):
        run.feed(200, poison_every(40))
        run.killed("a")
    run.start("a", TIMES="2")
    run.feed(200, poison_every(40))
    run.drained()
    run.finish()


@retries(
    fault="with `Retry.in_place`, a record fails and waits, and blocks its task; kill -9 at a step of the "
    "commit; then the record succeeds",
    guarantees=(EOS,),
    each={"step": ("state-flushed", "offsets-committed")},
)
def waiting_in_place_and_a_kill(run: Run, step: str) -> None:
    run.trouble("k7")
    run.start("a", failpoint=f"{step}:kill:4", IN_PLACE="yes")
    with run.feeding(60):
        run.feed(400)
        run.killed("a")
    run.start("a", IN_PLACE="yes")
    run.wait_until(lambda: run.behind > 100, "the task of the record waits")
    run.trouble()
    run.drained()
    run.finish()


@retries(
    fault="one key of 10,001 always fails: the records of all others give results meanwhile. After a start with "
    "a limit of attempts, its records become dead letters",
    dead_letters=True,
)
def a_key_beside_ten_thousand(run: Run) -> None:
    run.start("a")
    for count in (10_001, KEYS):
        run.feed(count, poison_where(partial(_is_of, "k7", count)), keys=count)
    failing = [e["value"] for e in run.history.of("sent") if e["key"] == "k7"]
    run.must(len(failing) == 2, f"k7 has 2 records, not {len(failing)}")
    run.came_out(*failing)
    out = {e["value"] for e in run.history.of("output")}
    run.must(out.isdisjoint(failing), "the records of k7 wait")
    run.stop("a")
    run.start("a", TIMES="2")
    run.became_letters(2)
    run.drained()
    run.finish()


@retries(
    fault="every 20th record fails twice and then succeeds: each gives its result, in the order of its key, and "
    "none becomes a dead letter",
    dead_letters=True,
)
def fails_twice_and_then_works(run: Run) -> None:
    run.start("a", TIMES="2", SHAKY="20")
    with run.feeding(60):
        run.feed(400)
    run.came_out()
    run.must(not run.history.of("dead"), "no record is a dead letter")
    run.finish()


@retries(
    fault="records wait in retry topics, also during a kill -9 at a step of the commit. Some succeed later, and "
    "have lost the order of their key; each of the others becomes one dead letter",
    workloads=("staged",),
    dead_letters=True,
    each={"step": STEPS},
)
def waiting_in_retry_topics_and_a_kill(run: Run, step: str) -> None:
    shaky = key_of(7)
    run.gives_up_order(shaky)
    run.start("a", failpoint=f"{step}:kill:8", SHAKY="80")
    with run.feeding(40):
        run.feed(400, poison_every(40, at=9))
        run.killed("a")
    run.must(run.kept > 0, "records wait in retry topics")
    run.start("a", SHAKY="80")
    run.drained()
    came = [int(e["value"]) for e in run.history.of("output") if e["key"] == shaky]
    run.must(came != sorted(came), "a record overtakes an earlier one of its key")
    run.must(len(run.history.of("dead")) >= 10, "each record that never works is a dead letter")
    run.finish()


@retries(
    fault="a service is down for a minute, also during a kill -9, while records come. None is skipped or "
    "becomes a dead letter, and the order stays",
    dead_letters=True,
)
def service_down(run: Run) -> None:
    run.trouble()
    run.start("a", TIMES="2")
    run.feed(100)
    run.caught_up()
    run.trouble(down=True)
    ends = time.monotonic() + 60
    run.feed(400)
    run.wait_until(lambda: "a service fails" in run.log("a"), "the worker says that the service fails")
    run.kill("a")
    run.start("a", TIMES="2")
    run.wait_until(lambda: "a service fails" in run.log("a"), "the new worker says so, too")
    time.sleep(max(0.0, ends - time.monotonic()))
    run.trouble()
    run.came_out()
    run.must(not run.history.of("dead"), "no record is a dead letter")
    run.finish()


@retries(
    fault="as many records wait as `max_records` allows: the task takes no further record, and goes on when the "
    "waiting records succeed",
    guarantees=(EOS,),
)
def parked_to_the_bound(run: Run) -> None:
    run.trouble("k7", "k8")
    run.start("a", MOST="5")
    run.feed(600)
    run.wait_until(lambda: run.behind > 100, "the tasks of the keys wait")
    run.trouble()
    run.drained()
    run.finish()


@retries(
    fault="workers come and go while records of some keys are parked: the parked records move with their task",
)
def rebalance_with_parked_keys(run: Run) -> None:
    run.trouble("k7", "k8", "k9")
    run.start("a")
    with run.feeding(60):
        run.feed(200)
        run.start("b")
        run.runs("b")
        run.kill("a")
        run.feed(200)
        run.start("c")
        run.runs("c")
        run.trouble()
    run.drained()
    run.finish()


def _is_of(key: str, keys: int, number: int) -> bool:
    return key_of(number, keys) == key
