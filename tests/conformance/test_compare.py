"""The comparison notices a difference, at the level where it belongs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from streamapp.errors import StreamsError, TopologyError

from .compare import compare
from .outcome import Outcome

EXPECTED: dict[str, Any] = {
    "describe": "Topologies:\n   Sub-topology: 0\n",
    "topics": {"out": [{"key": "a", "value": 1, "timestamp": 3}]},
    "serdes": {"out": {"key": "string", "value": "long"}},
    "stores": {"s": {"type": "kv", "entries": [{"key": "a", "value": 1}]}},
    "metrics": {"dropped_records": 0},
    "queries": [{"result": {"value": 1}}],
    "changelogs": {"oracle-s-changelog": [{"key_hex": "61", "value_hex": "01", "timestamp": 3}]},
}


def failed_levels(actual: dict[str, Any], error: Exception | None = None) -> set[int]:
    differences = compare({"expected": EXPECTED}, Outcome(actual, error))
    return {level for level, lines in differences.items() if lines}


def test_the_same_is_the_same() -> None:
    assert failed_levels(copy.deepcopy(EXPECTED)) == set()


@pytest.mark.parametrize(
    ("path", "value", "level"),
    [
        (("topics", "out", 0, "timestamp"), 4, 1),
        (("topics", "out", 0, "value"), True, 1),
        (("topics", "out"), [], 1),
        (("topics", "more"), [{"key": "b"}], 1),
        (("side_effects",), {"n1": [["a", 1]]}, 1),
        (("stores", "s", "entries", 0, "timestamp"), 3, 2),
        (("metrics", "dropped_records"), 1, 2),
        (("queries", 0), {"error": "KeyError: 'a'"}, 2),
        (("changelogs", "oracle-s-changelog", 0, "value_hex"), "02", 3),
        (("internal",), {"oracle-r-repartition": [{"key_hex": "61"}]}, 3),
        (("describe",), "Topologies:\n", 4),
    ],
)
def test_a_change_shows_at_its_level(path: tuple[str | int, ...], value: Any, level: int) -> None:
    actual = copy.deepcopy(EXPECTED)
    place: Any = actual
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert failed_levels(actual) == {level}


def test_an_unexpected_error_fails_all_that_was_not_reached() -> None:
    error = {"error": "StreamsError: no", "error_at": "input[0]"}
    actual = {**error, "describe": EXPECTED["describe"], "topics": {}, "serdes": {}}
    assert failed_levels(actual, StreamsError("no")) == {1, 2, 3}


@pytest.mark.parametrize(
    ("raised", "where", "held"),
    [
        (TopologyError("no"), "build n1", True),
        (StreamsError("no"), "build n1", False),
        (AttributeError("no"), "build n1", False),
        (TopologyError("no"), "topology", False),
        (None, "", False),
    ],
)
def test_an_expected_error_has_to_be_of_its_kind_and_at_its_place(
    raised: Exception | None, where: str, held: bool
) -> None:
    java = "org.apache.kafka.streams.errors.TopologyException: Invalid topology"
    actual = {"error": "no", "error_at": where} if raised else {}
    case = {"expected": {"error": java, "error_at": "build n1"}}
    assert (compare(case, Outcome(actual, raised))[1] == []) is held
