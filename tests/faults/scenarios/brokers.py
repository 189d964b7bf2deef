"""Brokers are stopped, killed, started again."""

from __future__ import annotations

import os
import re
import signal
import time
from itertools import pairwise

from ..driver import Run
from ..matrix import EOS, scenario


@scenario(
    9,
    fault="the broker is stopped cleanly, or killed, and started again",
    brokers=(1,),
    breaks_brokers=True,
    each={"how": ("stop", "kill")},
)
def broker_restarts(run: Run, how: str) -> None:
    run.start("a")
    run.runs("a", 4)
    with run.feeding():
        for _ in range(2):
            run.commits()
            _end(run, 1, how)
            time.sleep(3)
            run.kafka.start_broker(1)
            run.commits()
    run.finish()


@scenario(
    9,
    12,
    fault="each of three brokers (leaders, coordinators) is killed and started again in turn",
    brokers=(3,),
    breaks_brokers=True,
    workloads=("count", "rekeyed"),
)
def brokers_killed_in_turn(run: Run) -> None:
    run.start("a")
    run.start("b")
    run.runs("a")
    run.runs("b")
    with run.feeding():
        for number in run.kafka.numbers:
            run.commits()
            _end(run, number, "kill")
            run.commits()
            run.kafka.start_broker(number)
            run.commits()
    run.finish()


@scenario(
    9,
    fault="rolling restart of three brokers, each stopped cleanly",
    brokers=(3,),
    breaks_brokers=True,
    guarantees=(EOS,),
)
def brokers_roll(run: Run) -> None:
    run.start("a")
    run.runs("a", 4)
    with run.feeding():
        for number in run.kafka.numbers:
            run.commits()
            _end(run, number, "stop")
            run.kafka.start_broker(number)
    run.finish()


@scenario(10, fault="all brokers are down for 40 s", brokers=(1,), breaks_brokers=True)
def brokers_down_for_long(run: Run) -> None:
    run.start("a")
    run.runs("a", 4)
    run.feed(200)
    run.caught_up()
    _end(run, 1, "kill")
    time.sleep(40)
    run.kafka.start_broker(1)
    run.feed(200)
    run.finish()


@scenario(
    10,
    fault="the broker stands still for 13 s while a worker starts, as if the machine had no CPU or the "
    "disk hung; four times",
    brokers=(1,),
    breaks_brokers=True,
)
def broker_freezes(run: Run) -> None:
    run.start("a")
    run.runs("a", 4)
    (broker,) = run.kafka.status().brokers
    with run.feeding():
        for before, after in pairwise("abcde"):
            run.commits()
            os.kill(broker.pid, signal.SIGSTOP)
            run.history.add("fault", what="the broker stands still")
            run.start(after)
            time.sleep(13)
            os.kill(broker.pid, signal.SIGCONT)
            run.runs(after)
            run.kill(before)
            run.commits()
    run.finish()


@scenario(
    11,
    fault="a worker is started while the broker is down: the worker says so and ends; with the broker "
    "back, the worker is started again",
    brokers=(1,),
    breaks_brokers=True,
    guarantees=(EOS,),
)
def started_without_brokers(run: Run) -> None:
    run.feed(100)
    _end(run, 1, "stop")
    run.start("a")
    run.fails("a", "Kafka cannot be reached at")
    run.kafka.start_broker(1)
    run.start("a")
    run.finish()


@scenario(
    13,
    fault="producer_byte_rate is far below the rate of the application: the worker works off 7 MB at 200 KB/s, and at "
    "most one transaction times out",
    workloads=("copy", "count", "agent"),
)
def quota(run: Run) -> None:
    for role in ("producer", "transactions"):
        run.kafka.set_quota(f"{run.id}-{role}", producer_byte_rate=200_000)
    for _ in range(5):
        run.feed(2_000, lambda number: f"{number:01000}")
    run.start("a")
    run.caught_up(240)
    # Brokers measure over eleven seconds, longer than a transaction may take. So one transaction may time out when
    # brokers slow the worker down for the first time.
    repeated = re.findall("begin again at the last commit|of the agents is tried again", run.log("a"))
    run.must(len(repeated) <= 1, "no transaction is repeated again and again")
    run.finish()


def _end(run: Run, number: int, how: str) -> None:
    run.history.add("fault", what=f"{how} broker {number}")
    if how == "kill":
        run.kafka.kill_broker(number)
    else:
        run.kafka.stop_broker(number)
