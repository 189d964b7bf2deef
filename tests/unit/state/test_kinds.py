"""State folders and snapshots outlast releases: the bytes by which they remember a kind of store stay as they are."""

from __future__ import annotations

import pytest

from streamapp import Serde, StringSerde
from streamapp.state import kinds, operator_kinds
from streamapp.state.spec import StoreSpec
from streamapp.topology.planner import changelog_config

TIMES = {"retention_ms": 50}
COMPACT, BY_AGE = {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
HISTORY = COMPACT | {"min.compaction.lag.ms": str(2**63 - 1)}

REMEMBERED = [
    (kinds.KeyValue(), "key_value ", (0, 0, 0, 0, 0), COMPACT),
    (kinds.Lru(max_entries=3), "lru ", (0, 0, 0, 3, 0), COMPACT),
    (kinds.Table(), "timestamped ", (0, 0, 0, 0, 0), COMPACT),
    (kinds.PlainTable(), "timestamped plain", (0, 0, 0, 0, 0), COMPACT),
    (kinds.LruTable(max_entries=3), "timestamped ", (0, 0, 0, 3, 0), COMPACT),
    (kinds.ExpiringTable(expires_after_ms=9), "expiring timestamped ", (0, 0, 9, 0, 0), COMPACT),
    (kinds.Window(size_ms=10, **TIMES), "window 10/False", (10, 50, 0, 0, 0), BY_AGE),
    (kinds.Window(size_ms=0, retain_duplicates=True, **TIMES), "window 0/True", (0, 50, 0, 0, 0), BY_AGE),
    (kinds.TimestampedWindow(size_ms=10, **TIMES), "timestamped_window 10/False", (10, 50, 0, 0, 0), BY_AGE),
    (
        operator_kinds.HeadersWindow(size_ms=10, retain_duplicates=True, **TIMES),
        "timestamped_window with headers 10/True",
        (10, 50, 0, 0, 0),
        BY_AGE,
    ),
    (
        kinds.TimestampedWindow(size_ms=10, advance_ms=5, time_ordered=True, **TIMES),
        "timestamped_window 10/False",
        (10, 50, 0, 0, 0),
        BY_AGE,
    ),
    (
        kinds.TimestampedWindow(size_ms=10, time_ordered=True, **TIMES),
        "timestamped_window 10/False with a time index",
        (10, 50, 0, 0, 1),
        BY_AGE,
    ),
    (kinds.Session(time_ordered=True, **TIMES), "session  with a time index", (0, 50, 0, 0, 1), BY_AGE),
    (kinds.Session(**TIMES), "session ", (0, 50, 0, 0, 0), BY_AGE),
    (kinds.Versioned(**TIMES), "versioned ", (0, 50, 0, 0, 0), HISTORY),
    (operator_kinds.OuterJoin(), "list ", (0, 0, 0, 0, 0), COMPACT),
    (operator_kinds.TimeOrdered(grace_ms=7), "time_ordered_buffer ", (0, 7, 0, 0, 0), COMPACT),
    (operator_kinds.Suppression(), "suppress_buffer ", (0, 0, 0, 0, 0), COMPACT),
    (operator_kinds.Subscriptions(), "subscription ", (0, 0, 0, 0, 0), COMPACT),
    (operator_kinds.HeadersSubscriptions(), "subscription with headers ", (0, 0, 0, 0, 0), COMPACT),
]


@pytest.mark.parametrize(
    ("kind", "layout", "numbers", "config"), REMEMBERED, ids=lambda each: repr(each)[:30]
)
def test_what_is_remembered_of_a_kind_stays(kind, layout, numbers, config):
    assert kind.layout(persistent=True) == layout
    assert kind.layout(persistent=False) == layout.replace(" with headers", "")
    names = "window_size_ms", "retention_ms", "ttl_ms", "max_entries", "time_index"
    assert dict(zip(names, numbers, strict=True)) == kind.remembered
    serde: Serde[str] = StringSerde()
    spec = StoreSpec(name="s", kind=kind, key_serde=serde, value_serde=serde)
    assert changelog_config(spec) == config | {"message.timestamp.type": "CreateTime"}


@pytest.mark.parametrize(
    ("size", "advance", "retention", "bucket"),
    [
        (60_000, 60_000, 120_000, 60_000),
        (3_600_000, 60_000, 7_200_000, 60_000),
        (3_600_000, 1_000, 7_200_000, 7_200),
        (1_000, 1, 1_999, 2),
    ],
)
def test_hopping_windows_with_final_results_have_a_bucket_for_each_advance_but_not_too_many(
    size, advance, retention, bucket
):
    windows = {"size_ms": size, "advance_ms": advance, "retention_ms": retention}
    assert kinds.Window(time_ordered=True, **windows).bucket_ms == bucket
    assert kinds.Window(**windows).bucket_ms == kinds.Window(**windows).segment_ms


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("key_value", "timestamped", True),
        ("timestamped", "versioned", True),
        ("key_value", "lru", False),
        ("window", "timestamped_window", False),
        ("key_value", "unheard of", False),
        ("unheard of", "unheard of too", False),
    ],
)
def test_kinds_that_restore_from_each_others_changelogs(one, other, same):
    assert kinds.same_changelog(one, other) is same
