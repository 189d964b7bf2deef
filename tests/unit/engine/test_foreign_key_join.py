"""A foreign-key join ends with the right table, whatever its tasks do in between.

Orders name a seller by `"<seller>/<number of the update>"`; both sides are written and deleted in any order, tasks take a few
records at a time and commit when they like, and record caches of any size hold updates back.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamapp import Materialized, StreamsBuilder, StreamsConfig, StringSerde, Topology
from streamapp.engine.task import Task

from .several_tasks import PARTITIONS, SeveralTasks

TEXT = StringSerde()
TEXTS: dict[str, Any] = {"key_serde": TEXT, "value_serde": TEXT}


def seller_of(order: str) -> str | None:
    """None: the order names no seller."""
    return order.split("/")[0] or None


def joined(left: str, right: str | None) -> str:
    return f"{left}+{right}"


def topology(kind: str, config: StreamsConfig, mapped: bool = False) -> Topology:
    builder = StreamsBuilder(config)
    orders, sellers = builder.table("orders", **TEXTS), builder.table("sellers", **TEXTS)
    if mapped:  # neither side of the join has a store of its own
        orders, sellers = orders.map_values(str.lower), sellers.map_values(str.upper).filter(lambda *_: True)
    join = orders.join if kind == "inner" else orders.left_join
    result = join(
        sellers, joined, foreign_key=seller_of, materialized=Materialized(key_serde=TEXT, value_serde=TEXT)
    )
    result.to_stream().to("joined", **TEXTS)
    return builder.build()


def fold(kind: str, orders: dict[str, str | None], sellers: dict[str, str | None]) -> dict[str, str]:
    """The join, from what both tables are in the end."""
    result = {}
    for key, order in orders.items():
        seller = None if order is None else sellers.get(seller_of(order) or "")
        if order is not None and (kind == "left" or seller is not None):
            result[key] = joined(order, seller)
    return result


def wrong_rows(
    kind: str,
    seed: int,
    cache: int,
    *,
    recheck: bool = True,
    again: bool = False,
    mapped: bool = False,
    task: type[Task] = Task,
) -> set[tuple[str, str]]:
    """Rows of the result that should not be, or lack. ``again``: values come back, so that answers to an older row fit a newer one."""
    chance = random.Random(f"{kind} {seed} {cache} {again} {mapped}")
    config = StreamsConfig(
        "app",
        statestore_cache_max_bytes=cache,
        foreign_key_join_recheck=recheck,
        default_key_serde=TEXT,
        default_value_serde=TEXT,
    )
    run = SeveralTasks(topology(kind, config, mapped), config, chance, task)
    sides: dict[str, dict[str, str | None]] = {"orders": {}, "sellers": {}}
    busy = chance.choice((1, 3, 8))
    for number in range(150):
        side = chance.choice(list(sides))
        key = f"{side[0]}{chance.randrange(4)}"
        value = None
        if chance.random() < 0.65:
            update = "v" if again else f"v{number}"
            value = f"s{chance.randrange(4)}/{update}" if side == "orders" else update
            if side == "orders" and not chance.randrange(6):
                value = f"/{update}"
        sides[side][key] = value
        run.send(side, key.encode(), value and value.encode(), number + chance.randrange(1, 20))
        for _ in range(chance.randrange(busy)):
            run.step(commit_one_of=chance.choice((1, 4, 20)))
    run.settle()
    sellers = sides["sellers"]
    if mapped:
        sellers = {key: value and value.upper() for key, value in sellers.items()}
    return set(run.table("joined").items()) ^ set(fold(kind, sides["orders"], sellers).items())


@pytest.mark.parametrize("cache", [0, 400, 1_000_000])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("kind", ["inner", "left"])
def test_the_table_in_the_end_is_that_of_the_sides_in_the_end(
    kind: str, cache: int, again: bool, mapped: bool
) -> None:
    wrong = {seed: wrong_rows(kind, seed, cache, again=again, mapped=mapped) for seed in range(12)}
    assert {seed: rows for seed, rows in wrong.items() if rows} == {}


def test_kafka_streams_keeps_a_row_that_changes_again_before_the_answer_that_deletes_it() -> None:
    """The answer fits the row no more, and the row's second change asks only for a seller that exists."""
    assert _order_moves_twice(recheck=False) == {"o1": "s1/1+known"}
    assert _order_moves_twice(recheck=True) == {}


def _order_moves_twice(*, recheck: bool) -> dict[str, Any]:
    config = StreamsConfig("app", statestore_cache_max_bytes=0, foreign_key_join_recheck=recheck)
    run = SeveralTasks(topology("inner", config), config, random.Random(1))
    run.send("sellers", b"s1", b"known", 1)
    run.send("orders", b"o1", b"s1/1", 2)
    run.settle()
    run.send("orders", b"o1", b"nobody/2", 3)
    run.send("orders", b"o1", b"nobody/3", 4)
    run.settle()
    return run.table("joined")


def test_a_seller_that_comes_and_goes_between_two_commits_leaves_no_row() -> None:
    config = StreamsConfig("app")
    run = SeveralTasks(topology("inner", config), config, random.Random(1))
    run.send("sellers", b"s1", b"new", 1)
    run.send("orders", b"o1", b"s1/1", 2)
    asking, answering = run.tasks[:PARTITIONS], run.tasks[PARTITIONS:]
    for task in asking:
        task.process()
        run.commit(task)
    for task in answering:
        task.process()
    run.send("sellers", b"s1", None, 3)
    run.settle()
    assert run.latest["joined"][b"o1"][0] is None


def test_a_row_that_was_joined_is_not_joined_again_with_an_older_timestamp_by_the_flush() -> None:
    config = StreamsConfig("app")
    run = SeveralTasks(topology("inner", config), config, random.Random(1))
    run.send("sellers", b"s1", b"old", 1)
    run.send("orders", b"o1", b"s1/1", 9)
    run.settle()
    assert run.latest["joined"] == {b"o1": (b"s1/1+old", 9)}
