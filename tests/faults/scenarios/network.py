"""The network between a worker and the brokers is cut, slow or one-way, or loses single requests."""

from __future__ import annotations

import time

from ..driver import Run
from ..matrix import EOS, scenario
from ..proxy import COMMITS, JOIN, Link


@scenario(
    7,
    uses_link=True,
    fault="every connection of one of two workers is cut for 15 s",
    workloads=("count", "rekeyed"),
)
def network_cut(run: Run) -> None:
    run.start("a", link="A")
    run.start("b")
    run.runs("a")
    run.runs("b")
    with run.feeding():
        run.commits()
        run.kafka.links["A"].cut()
        run.history.add("fault", what="cut A")
        time.sleep(15)
        run.kafka.links["A"].heal()
        run.history.add("fault", what="heal A")
        run.commits()
    run.finish()


@scenario(
    7,
    50,
    uses_link=True,
    fault="a worker is cut off for longer than its session: the worker refuses reads, because other "
    "workers may have newer rows",
    guarantees=(EOS,),
    sampled=("[count-eos]",),
)
def cut_off_refuses_reads(run: Run) -> None:
    run.start("a", link="A")
    run.runs("a", 4)
    run.start("b")
    run.runs("b")
    run.feed(200)
    run.caught_up()
    run.kafka.links["A"].cut()
    run.history.add("fault", what="cut A")
    run.has_all("b")
    run.wait_until(
        lambda: run.ask("a", "/health/ready")[1].get("state") == "stuck", "a knows that it is cut off"
    )
    run.feed(200)
    run.commits()
    status, body = run.ask("a", "/tables/counts/?limit=1000")
    run.must(status == 503, f"a refuses reads while it is cut off, {status} {body}")
    run.kafka.links["A"].heal()
    run.finish()


@scenario(
    7,
    uses_link=True,
    fault="for 15 s, nothing comes through in one direction, but connections stay open",
    each={"way": ("up", "down")},
)
def network_hole(run: Run, way: str) -> None:
    run.start("a", link="A")
    run.start("b")
    run.runs("a")
    run.runs("b")
    with run.feeding():
        run.commits()
        run.kafka.links["A"].hole("up" if way == "up" else "down")
        run.history.add("fault", what=f"hole {way} in A")
        time.sleep(15)
        run.kafka.links["A"].heal()
        run.history.add("fault", what="heal A")
        run.commits()
    run.finish()


@scenario(7, uses_link=True, fault="each request and each response takes 0.4 s longer")
def network_delay(run: Run) -> None:
    run.start("a", link="A")
    run.runs("a", 4)
    with run.feeding():
        run.kafka.links["A"].delay(0.4)
        run.history.add("fault", what="delay in A")
        time.sleep(15)
        run.commits()
        run.kafka.links["A"].heal()
    run.finish()


@scenario(
    7,
    17,
    uses_link=True,
    fault="for longer than `max_poll_interval_ms`, the worker cannot join the group",
    guarantees=(EOS,),
    sampled=("[count-eos]",),
)
def joining_fails(run: Run) -> None:
    link = run.kafka.links["A"]
    run.start("a", link="A", POLL_MS="8000")
    run.runs("a", 4)
    with run.feeding():
        run.start("b")
        run.wait_until(lambda: _lose_joining(link), "a joins again, in vain")
        until = time.monotonic() + 12
        while time.monotonic() < until:
            _lose_joining(link)
        link.heal()
        run.history.add("fault", what="heal A")
        run.wait_until(lambda: run.ask("a", "/health/ready")[0] == 200, "a is in the group again")
        run.commits()
    run.finish()


def _lose_joining(link: Link) -> bool:
    """Loses the next request to join, if there is one soon."""
    before = link.lost
    link.lose([JOIN], "up")
    time.sleep(0.02)
    return link.lost > before


@scenario(
    8,
    uses_link=True,
    fault="the request of a commit is lost with its connection, then the response to a commit; five times "
    "in turn",
    sampled=("[count-eos]",),
)
def commit_lost(run: Run) -> None:
    link = run.kafka.links["A"]
    run.start("a", link="A")
    run.runs("a", 4)
    with run.feeding():
        for _ in range(5):
            for way in ("up", "down"):
                before = link.lost
                link.lose(COMMITS.values(), "up" if way == "up" else "down")
                run.wait_until(lambda: link.lost > before, f"a commit is lost {way}")  # noqa: B023
                run.commits()
    run.finish()
