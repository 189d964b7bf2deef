"""Expressions are functions of key and value, with the nulls of SQL."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from streamapp import (
    JsonSerde,
    LongSerde,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TopologyTestDriver,
)
from streamapp import expressions as ex
from streamapp.expressions import Aggregates, Expression, avg, key, max_of, sum_of, value

TRUTH = (True, False, None)


class Departure(NamedTuple):
    delay: int | None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (value.delay > 15, True),
        (value.delay <= 15, False),
        (value.delay + 1 == 21, True),
        (value.delay * 2 - 1 != 39, False),
        ((1 + 2 * value.delay) == 41, True),
        ((100 - value.delay) == 80, True),
        (value["delay"] >= value.delay, True),
        (value.missing < 1, None),
        (value.missing.is_null(), True),
        (value.missing + 1, None),
        (key == "N1", True),
    ],
)
def test_operators(expression: Expression, expected: Any) -> None:
    assert expression("N1", {"delay": 20}) is expected


def test_fields_are_items_or_attributes() -> None:
    assert value.delay("N1", {"delay": 3}) == value.delay("N1", Departure(3)) == 3


@pytest.mark.parametrize("a", TRUTH)
@pytest.mark.parametrize("b", TRUTH)
def test_conditions_have_three_values(a: bool | None, b: bool | None) -> None:
    record = {"a": a, "b": b}
    both = False if False in (a, b) else None if None in (a, b) else True
    either = True if True in (a, b) else None if None in (a, b) else False
    assert (value.a & value.b)("k", record) is both
    assert (value.a | value.b)("k", record) is either
    assert (~value.a)("k", record) is (None if a is None else not a)


def test_an_expression_is_not_used_as_a_condition_by_mistake() -> None:
    with pytest.raises(TypeError, match="combine conditions with &"):
        bool(1 < value.delay < 5)


def test_aggregates_pass_over_nulls() -> None:
    totals = Aggregates(
        flights=ex.count(),
        known=ex.count(value.delay),
        minutes=ex.sum_of(value.delay),
        best=ex.min_of(value.delay),
        worst=ex.max_of(value.delay),
        mean=ex.avg(value.delay),
    )
    found = totals.initializer()
    assert found["flights"] == found["known"] == 0
    assert found["minutes"] is found["best"] is found["mean"] is None
    for delay in (None, 10, -4, None, 6):
        found = totals("JFK", {"delay": delay}, found)
    assert {name: found[name] for name in ("flights", "known", "minutes", "best", "worst", "mean")} == {
        "flights": 5, "known": 3, "minutes": 12, "best": -4, "worst": 10, "mean": 4.0,
    }  # fmt: skip


def test_aggregates_that_are_none_are_refused() -> None:
    with pytest.raises(TypeError, match="needs name=count"):
        Aggregates()
    with pytest.raises(TypeError, match="flights"):
        Aggregates(flights=value.delay)  # type: ignore[arg-type]
    # The mean would be that of another sum.
    with pytest.raises(TypeError, match=r"\['delay_sum'\], because avg"):
        Aggregates(delay=avg(value.delay), delay_sum=sum_of(value.way))
    Aggregates(delay=max_of(value.delay), delay_sum=sum_of(value.way))


def test_a_topology_takes_them_like_functions() -> None:
    text, json = StringSerde(), JsonSerde()
    builder = StreamsBuilder()
    stream = builder.stream("flights", key_serde=text, value_serde=json)
    late = stream.filter((value.delay > 15) | value.delay.is_null()).filter_not(value.origin == "LGA")
    kept = Materialized("late", key_serde=text, value_serde=LongSerde())
    late.group_by(value.origin, key_serde=text, value_serde=json).count(materialized=kept)
    with TopologyTestDriver(builder.build(), StreamsConfig("expressions")) as driver:
        topic = driver.create_input_topic("flights", text, json)
        for origin, delay in [("JFK", None), ("JFK", 20), ("JFK", 3), ("LGA", 50), (None, 50), ("EWR", 16)]:
            topic.pipe_input("N1", {"origin": origin, "delay": delay}, timestamp=1)
        assert [(k, count) for k, (count, _) in driver.store("late").all()] == [("EWR", 1), ("JFK", 2)]


def test_conditions_of_numpy_numbers() -> None:
    """The comparison of a NumPy number gives no bool of Python."""
    for number in (np.int64(15), np.float64(15)):
        late = (value.delay > number) & (value.delay < 100)
        assert [bool(late("k", Departure(delay))) for delay in (20, 10, 200)] == [True, False, False]
        assert not (value.delay.is_null() & (value.delay > number))("k", Departure(None))
