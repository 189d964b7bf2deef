"""`python -m benchmarks serdes` measures both sides of each format, on the same values and bytes."""

from typing import Any

import pytest

from benchmarks import serdes
from benchmarks.serdes import Case, Cost, costs, serdes_table
from streamapp import AvroSerde


def test_every_format_is_measured_on_both_sides() -> None:
    measured = costs(rounds=2)
    assert {each.format.partition(",")[0] for each in measured} == {"Avro", "JSON Schema", "Protobuf"}
    ways = [(each.format, each.record, each.way) for each in measured]
    records = {(each.format, each.record) for each in measured}
    assert sorted(ways) == sorted((*each, way) for each in records for way in ("read", "write"))
    assert all(each.ours_us > 0 and each.theirs_us > 0 and len(each.ratios) == 2 for each in measured)
    assert serdes_table(measured).row_count == len(measured)


def test_the_ratio_is_the_median_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that becomes slower while it measures changes the times, and no ratio."""
    case = Case("f", "r", "write", lambda: "ours", lambda: "theirs")
    order: list[str] = []

    def measured(work: Any, times: int) -> float:
        order.append(work())
        slow = (len(order) + 1) // 2
        return slow * {"ours": 2e-6, "theirs": 6e-6}[work()]

    monkeypatch.setattr(serdes, "_measured", measured)
    cost = serdes._cost(case, 3)
    assert order[2:] == ["theirs", "ours", "ours", "theirs", "theirs", "ours"]
    assert cost == Cost(
        "f", "r", "write", pytest.approx(6.0), pytest.approx(18.0), pytest.approx((3.0, 3.0, 3.0))
    )


def test_values_that_are_read_otherwise_are_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AvroSerde, "deserialize", lambda self, data: {"another": "value"})
    with pytest.raises(AssertionError):
        costs(rounds=1)
