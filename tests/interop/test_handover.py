"""A Kafka Streams application is taken over by Python in the middle, and the other way round.

Java counts, windows and joins one half of the input and stops; Python goes on from its committed offsets and
their metadata, its changelogs and its repartition topics. What is left in Kafka has to be what Java alone leaves.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .flights import UNORDERED
from .handover import Side
from .reading import ByKey, Left, last_of_each_key

pytestmark = pytest.mark.broker
Run = Callable[[str, tuple[Side, ...]], Left]

UNMATCHED = "trips"
"""An outer join. Kafka Streams looks for unmatched records when a tracked time has passed, which it forgets when it
is stopped; when it looks again the same results come, but perhaps before others of the same key."""

WAITING = "priced"
"""A join with a grace period. Kafka Streams logs the records that wait and cannot restore them: it reads the keys of
the changelog by the schema of another store (RocksDBTimeOrderedKeyValueBytesStore). Whoever takes over from it has
them; it has not when it takes over. What it takes for their times begins with the lower half of the true ones: for 25 days it
lies before all others, and for the next 25 so far behind that nothing waits any more (first seen on 21 November 2026, 21:25 UTC)."""

JOIN_STORES = ("OUTERTHIS", "OUTEROTHER", "arrived-", "priced-Buffer")
"""Stores whose keys hold a sequence number, which a restart may begin anew."""

LIMITED = "recent-"
"""A table with a limit of rows. Only streamapp writes tombstones for the rows that the store deletes at its limit."""

KEPT = {"retention.ms": "-1", "min.compaction.lag.ms": str(2**63 - 1)}
"""Settings of ours that differ: see docs/decisions/window-changelogs-keep-records.md."""


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_python_goes_on_where_java_stopped(run: Run, java_alone: Left, guarantee: str) -> None:
    left = run(guarantee, ("java", "python"))
    assert differences(java_alone, left) == {}
    assert tables(left) == tables(java_alone)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_java_goes_on_where_python_stopped(run: Run, java_alone: Left, guarantee: str) -> None:
    left = run(guarantee, ("python", "java"))
    assert differences(java_alone, left).keys() <= {WAITING}
    assert tables(left) == tables(java_alone)
    expected, found = java_alone.outputs[WAITING], left.outputs[WAITING]
    assert all(set(found.get(key, ())) <= set(written) for key, written in expected.items())

    assert left.internal_topics.keys() == java_alone.internal_topics.keys()
    for name, topic in java_alone.internal_topics.items():
        ours = left.internal_topics[name]
        assert ours.partitions == topic.partitions, name
        kept = {name: value for name, value in KEPT.items() if name in topic.settings}
        assert ours.settings == {**topic.settings, **kept}, name


def test_both_describe_the_topology_alike(java_alone: Left) -> None:
    theirs = java_alone.java_log.partition("-- end of the description")[0].partition("Topologies:")[2]
    assert f"Topologies:{theirs}".rstrip() == java_alone.application.topology.describe().rstrip()


def differences(expected: Left, found: Left) -> dict[str, list[bytes | None]]:
    """Output topic -> the keys that have other records, or the same in another order."""
    result = {}
    for topic, by_key in expected.outputs.items():
        wanted, got = comparable(topic, by_key), comparable(topic, found.outputs[topic])
        keys = [key for key in {**wanted, **got} if wanted.get(key) != got.get(key)]
        if keys:
            result[topic] = keys
    return result


def comparable(topic: str, by_key: ByKey) -> dict[bytes | None, object]:
    if topic in UNORDERED:
        return dict(last_of_each_key(by_key))
    if topic == UNMATCHED:
        return {key: sorted(map(repr, written)) for key, written in by_key.items()}
    return dict(by_key)


def tables(left: Left) -> dict[str, object]:
    """What the changelogs of all tables and windows hold, byte for byte."""
    others = (*JOIN_STORES, LIMITED)
    return {name: table for name, table in left.changelogs.items() if not any(s in name for s in others)}
