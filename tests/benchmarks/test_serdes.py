"""`python -m benchmarks serdes` measures both sides of each format."""

from benchmarks.serdes import costs, serdes_table


def test_every_format_is_measured_on_both_sides() -> None:
    measured = costs(rounds=1)
    assert len({format for format, _ in measured}) == 5
    assert all(
        f"{side} {way}" in {name for _, name in measured}
        for side in ("streamapp", "confluent")
        for way in ("read", "write")
    )
    assert len(measured) == 20
    assert min(measured.values()) > 0
    assert serdes_table(measured).row_count == 5
