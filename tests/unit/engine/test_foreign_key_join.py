"""A foreign-key join ends with the right table, whatever its tasks do in between.

Both sides are written and deleted in any order, tasks take a few records at a time and commit when they like, and record caches
of any size hold updates back.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import mmh3
import pytest

from streamapp import (
    JsonSerde,
    LongSerde,
    Materialized,
    StreamsBuilder,
    StringSerde,
    TopologyTestDriver,
)
from streamapp.engine.operators.foreign_key import value_hash
from streamapp.engine.runner_ports import TaskRules
from streamapp.runners.spark.batch_rules import BATCH_RULES
from streamapp.serdes.base import Serde

from ...orders import TEXT, Change, changes, config, fold, topology
from .several_tasks import PARTITIONS, SeveralTasks


@pytest.mark.parametrize("cache", [0, 400, 1_000_000])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("kind", ["inner", "left"])
def test_the_table_in_the_end_is_that_of_the_sides_in_the_end(
    kind: str, cache: int, again: bool, mapped: bool
) -> None:
    wrong = {}
    for seed in range(10):
        chance = random.Random(f"{kind} {seed} {cache} {again} {mapped}")
        settings = config(statestore_cache_max_bytes=cache, foreign_key_join_recheck=True)
        run = SeveralTasks(topology(kind, settings, mapped=mapped), settings, chance)
        history = list(changes(chance, 150, again=again))
        _run_by_chance(run, history, chance)
        if run.table("joined") != fold(kind, history, mapped=mapped):
            wrong[seed] = run.table("joined"), fold(kind, history, mapped=mapped)
    assert wrong == {}


def _run_by_chance(run: SeveralTasks, history: list[Change], chance: random.Random) -> None:
    busy = chance.choice((1, 3, 8))
    for number, (side, key, value) in enumerate(history):
        run.send(side, key.encode(), value and value.encode(), number + chance.randrange(1, 20))
        for _ in range(chance.randrange(busy)):
            run.step(commit_one_of=chance.choice((1, 4, 20)))
    run.settle()


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_the_test_driver_is_never_in_between(kind: str) -> None:
    for seed in range(5):
        history = list(changes(random.Random(seed), 200, again=bool(seed % 2)))
        with TopologyTestDriver(topology(kind, config())) as driver:
            inputs = {side: driver.create_input_topic(side, TEXT, TEXT) for side in ("orders", "sellers")}
            for side, key, value in history:
                inputs[side].pipe_input(key, value)
            latest = driver.create_output_topic("joined", TEXT, TEXT).read_key_values()
        table = {key: value for key, value in dict(latest).items() if value is not None}
        assert table == fold(kind, history)


def test_a_seller_that_comes_and_goes_between_two_commits_leaves_no_row() -> None:
    run = SeveralTasks(topology("inner", config()), config(), random.Random(1))
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


def test_the_flush_does_not_join_a_row_once_more_with_an_older_timestamp() -> None:
    run = SeveralTasks(topology("inner", config()), config(), random.Random(1))
    run.send("sellers", b"s1", b"old", 1)
    run.send("orders", b"o1", b"s1/1", 9)
    run.settle()
    assert run.latest["joined"] == {b"o1": (b"s1/1+old", 9)}


@pytest.mark.parametrize(
    ("rules", "recheck", "kept"),
    [(TaskRules(), False, True), (TaskRules(), True, False), (BATCH_RULES, False, False)],
)
@pytest.mark.parametrize(
    ("first", "second"),
    [("nobody/2", "nobody/3"), ("/2", "/3"), ("nobody/2", None), ("/2", None), (None, "nobody/3")],
)
def test_a_row_that_changes_again_before_the_answer_that_deletes_it(
    first: str | None, second: str | None, rules: TaskRules, recheck: bool, kept: bool
) -> None:
    """The answer fits the row no more, and the second change asks only for a seller that exists. Kafka Streams keeps the row."""
    settings = config(statestore_cache_max_bytes=0, foreign_key_join_recheck=recheck)
    run = SeveralTasks(topology("inner", settings), settings, random.Random(1), rules)
    run.send("sellers", b"s1", b"known", 1)
    run.send("orders", b"o1", b"s1/1", 2)
    run.settle()
    for time, order in ((3, first), (4, second)):
        run.send("orders", b"o1", order and order.encode(), time)
    run.settle()
    asks_for_itself = (first, second) == ("nobody/2", None)
    assert run.table("joined") == ({"o1": "s1/1+known"} if kept and not asks_for_itself else {})


def test_a_seller_goes_while_a_change_of_the_order_is_on_its_way_to_it() -> None:
    for recheck, expected in ((False, {"o1": "s1/1+known"}), (True, {})):
        settings = config(statestore_cache_max_bytes=0, foreign_key_join_recheck=recheck)
        run = SeveralTasks(topology("inner", settings), settings, random.Random(1))
        run.send("sellers", b"s1", b"known", 1)
        run.send("orders", b"o1", b"s1/1", 2)
        run.settle()
        run.send("sellers", b"s1", None, 3)
        run.send("orders", b"o1", b"s1/2", 4)
        run.settle()
        assert run.table("joined") == expected


def test_nobody_is_asked_again_in_order() -> None:
    """The bytes are Kafka Streams' bytes, unless an answer is overtaken."""
    written: list[Any] = []
    for recheck in (False, True):
        history = list(changes(random.Random(7), 200))
        with TopologyTestDriver(topology("inner", config(foreign_key_join_recheck=recheck))) as driver:
            inputs = {side: driver.create_input_topic(side, TEXT, TEXT) for side in ("orders", "sellers")}
            for side, key, value in history:
                inputs[side].pipe_input(key, value)
            written.append(driver.produced)
    assert written[0] == written[1]


class Tagged(Serde[str]):
    """Bytes that begin with the id of a schema, which another version of the application changes."""

    tag = b"1"

    def serialize(self, value: str) -> bytes:
        return self.tag + value.encode()

    def deserialize(self, data: bytes) -> str:
        return data[1:].decode()


@pytest.mark.parametrize("filtered", [False, True])
def test_a_left_row_that_was_written_with_another_schema_gets_answers(
    filtered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a new schema of the left values, each change of a right row was dropped, if the left table was a filter."""
    text, tagged = StringSerde(), Tagged()
    builder = StreamsBuilder()
    left = builder.table("left", key_serde=text, value_serde=tagged, materialized=Materialized("kept"))
    if filtered:
        left = left.filter(lambda key, value: True)
    right = builder.table("right", key_serde=text, value_serde=text)
    joined = left.join(right, lambda one, other: one + other, foreign_key=lambda value: value)
    joined.to_stream().to("out", key_serde=text, value_serde=text)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("left", text, tagged).pipe_input("k", "x")
        monkeypatch.setattr(Tagged, "tag", b"2")
        driver.create_input_topic("right", text, text).pipe_input("x", "y")
        assert driver.create_output_topic("out", text, text).read_values() == ["xy"]


class CountingSerde(JsonSerde[str]):
    def __init__(self) -> None:
        super().__init__(str)
        self.encoded: list[str] = []

    def serialize(self, value: str) -> bytes:
        self.encoded.append(value)
        return super().serialize(value)

    def bind(self, topic: str, is_key: bool) -> CountingSerde:
        return self


@pytest.mark.parametrize("cache", [0, 100_000])
@pytest.mark.parametrize("keys", [StringSerde(), LongSerde()])
@pytest.mark.parametrize("kind", ["table", "aggregate", "expiring"])
def test_the_row_of_the_left_table_is_encoded_once(kind: str, keys: Serde[Any], cache: int) -> None:
    """The bytes that the store keeps are hashed."""
    settings, values = config(statestore_cache_max_bytes=cache), CountingSerde()
    builder = StreamsBuilder(settings)
    stored = Materialized(
        "orders", key_serde=keys, value_serde=values, ttl=100 if kind == "expiring" else None
    )
    texts = builder.stream("orders", key_serde=keys, value_serde=TEXT)
    if kind == "aggregate":
        grouped = texts.group_by_key()
        orders = grouped.aggregate(str, lambda key, value, old: old + value, materialized=stored)
    else:
        orders = texts.to_table(materialized=stored)
    sellers = builder.table("sellers")
    joined = orders.join(sellers, lambda order, seller: seller, foreign_key=str)
    joined.to_stream().to("joined", key_serde=keys, value_serde=TEXT)
    run = SeveralTasks(builder.build(), settings, random.Random(1))
    run.send("sellers", b"s1", b"known", 1)
    for key in (1, 2):
        run.send("orders", keys.serialize(key if isinstance(keys, LongSerde) else str(key)), b"s1", 2)
    run.settle()
    assert len(run.latest["joined"]) == 2
    assert len(values.encoded) == 2


@pytest.mark.parametrize("size", [0, 1, 15, 16, 300])
def test_the_hash_of_a_value_is_two_longs_of_murmur3_as_java_writes_them(size: int) -> None:
    data = bytes(range(256)) * 2
    assert value_hash(data[:size]) == struct.pack(">qq", *mmh3.hash64(data[:size], 104729))
