"""Queries with any arguments to stores of any kind: each gets a result, a failure or an error of streamapp."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from store_harness import Life

from streamapp import ConfigError
from streamapp.errors import InvalidStoreError, SerializationError
from streamapp.query import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
    execute,
)
from streamapp.serdes import BytesSerde

WINDOW = {"retention_ms": 100, "size_ms": 5}
KINDS: list[dict[str, Any]] = [
    {"kind": "key_value"},
    {"kind": "timestamped"},
    {"kind": "timestamped", "plain": True, "persistent": True},
    {"kind": "timestamped", "max_entries": 3, "persistent": False},
    {"kind": "timestamped", "expires_after_ms": 10},
    {"kind": "window", **WINDOW},
    {"kind": "window", **WINDOW, "retain_duplicates": True},
    {"kind": "timestamped_window", **WINDOW},
    {"kind": "timestamped_window", **WINDOW, "time_ordered": True, "advance_ms": 5},
    {"kind": "session", "retention_ms": 100},
    {"kind": "session", "retention_ms": 100, "time_ordered": True},
    {"kind": "versioned", "retention_ms": 100},
    {"kind": "list"},
    {"kind": "time_ordered_buffer", "grace_ms": 5},
    {"kind": "suppress_buffer"},
    {"kind": "subscription", "value_serde": BytesSerde()},
]
ROWS: dict[str, tuple[Any, ...]] = {
    "key_value": ("a", 1),
    "timestamped": ("a", 1, 1),
    "window": ("a", 1, 1),
    "timestamped_window": ("a", 1, 1, 1),
    "session": ("a", 1, 1, 1),
    "versioned": ("a", 1, 1),
}
TIMES = (None, 0, 10, -5, 2**63 - 1, -(2**63))


def queries() -> Iterator[Query]:
    for key in ("a", None, 5):
        yield from (KeyQuery(key), TimestampedKeyQuery(key))
        yield from (VersionedKeyQuery(key, time) for time in TIMES)
        for start, end in product(TIMES, TIMES):
            yield WindowKeyQuery(key, start, end)
            yield WindowRangeQuery(start, end, key)
            if start is None or end is None or start <= end:
                yield MultiVersionedKeyQuery(key, start, end)
    for low, high, descending in product(("b", None, 5), ("a", None), (False, True)):
        yield from (RangeQuery(low, high, descending), TimestampedRangeQuery(low, high, descending))


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(
    "kind", KINDS, ids=lambda kind: "-".join(map(str, [kind["kind"], *sorted(kind.keys() - {"kind"})]))
)
def test_a_query_raises_only_documented_errors(kind: dict[str, Any], cached: bool) -> None:
    life = Life(cached=cached, **kind)
    if kind["kind"] in ROWS:
        life.store.put(*ROWS[kind["kind"]])
    for query in queries():
        try:
            result = execute(life.store, query)
            if isinstance(result.value, Iterator):
                list(result.value)
        except SerializationError:
            keys = [getattr(query, part, "a") for part in ("key", "low", "high")]
            assert None in keys or 5 in keys
        except InvalidStoreError:
            assert kind["kind"] == "versioned"
            assert isinstance(query, KeyQuery | RangeQuery)
        else:
            assert result.failure in (None, "UNKNOWN_QUERY_TYPE")


@pytest.mark.parametrize(
    ("kind", "query", "message"),
    [
        ({"kind": "window", **WINDOW}, WindowRangeQuery(), "both time_from and time_to"),
        ({"kind": "window", **WINDOW}, WindowRangeQuery(time_from=1), "both time_from and time_to"),
        ({"kind": "window", **WINDOW}, WindowRangeQuery(1, 2, "a"), "no key"),
        ({"kind": "timestamped_window", **WINDOW}, WindowRangeQuery(), "both time_from and time_to"),
        (
            {"kind": "timestamped_window", **WINDOW},
            WindowKeyQuery("a", 1, None),
            "both time_from and time_to",
        ),
        ({"kind": "session", "retention_ms": 100}, WindowRangeQuery(), "a key and no times"),
        ({"kind": "session", "retention_ms": 100}, WindowRangeQuery(1, 2), "a key and no times"),
        ({"kind": "session", "retention_ms": 100}, WindowRangeQuery(1, 2, "a"), "a key and no times"),
    ],
)
def test_a_query_with_other_arguments_than_the_store_takes_fails(
    kind: dict[str, Any], query: Query, message: str
) -> None:
    result = execute(Life(**kind).store, query)
    assert result.failure == "UNKNOWN_QUERY_TYPE"
    assert message in result.message


@pytest.mark.parametrize("time", ["5", 1.5, timedelta(seconds=1), 2**63])
def test_a_time_is_a_number_of_ms(time: Any) -> None:
    for query in (
        lambda: WindowKeyQuery("a", 0, time),
        lambda: WindowRangeQuery(time, 5),
        lambda: VersionedKeyQuery("a", time),
        lambda: MultiVersionedKeyQuery("a", time_to=time),
    ):
        with pytest.raises(ConfigError, match="number of ms since 1970"):
            query()
