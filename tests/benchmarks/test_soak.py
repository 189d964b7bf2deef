"""The model of the soak beside a plain count, and its verdicts; without a broker."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.soak import Sample, Soaked
from benchmarks.soak_events import GAP, LONG, RETENTION, SESSION, Counts, Sessions
from benchmarks.soak_report import QUANTITIES, grows, plot, show
from benchmarks.soak_workers import Taken

KEYS, EVENTS, MS = 1_200, 4_321, timedelta(milliseconds=1)


def test_each_count_is_that_of_a_plain_count() -> None:
    events, counts = Counts(KEYS, 0), Counter[str]()
    for number in range(EVENTS):
        assert events.number(events.at(number)) == number
        counts[events.key(number)] += 1
        assert events.result(number) == b"%d" % counts[events.key(number)]
    assert dict(events.rows(EVENTS)) == {key.encode(): LONG.pack(count) for key, count in counts.items()}


def test_each_session_is_that_of_a_plain_search() -> None:
    events = Sessions(KEYS, 1_000_000)
    last: dict[str, tuple[int, int, int]] = {}
    rows: dict[bytes, bytes] = {}
    for number in range(EVENTS):
        key, at = events.key(number), events.at(number)
        start, end, count = last.get(key, (at, at, 0))
        if at - end > GAP // MS:
            start, count = at, 0
        elif count:
            del rows[key.encode() + SESSION.pack(end, start)]
        last[key] = start, at, count + 1
        rows[key.encode() + SESSION.pack(at, start)] = LONG.pack(count + 1)
        assert events.result(number) == b"%d,%d,%d" % last[key]
    oldest = events.at(EVENTS - 1) - RETENTION // MS
    kept = {key: value for key, value in rows.items() if SESSION.unpack(key[-16:])[0] >= oldest}
    assert KEYS < len(kept) < len(rows)
    assert dict(events.rows(EVENTS)) == kept
    assert {key for key in rows if events.kept(key, EVENTS)} == set(kept)


def samples(rss: float) -> list[Sample]:
    """An hour in which the memory of worker one grows by so many MiB a minute."""
    return [
        Sample(
            number / 10, ("counts", "sessions")[number // 30 % 2], Taken((100 + rss * number / 10, 90), (40, 41), 500),
            20_000, 2.0, 9.0, 20.0, 10,
        )
        for number in range(600)
    ]  # fmt: skip


@pytest.mark.parametrize(("rss", "verdict"), [(0.0, False), (0.1, False), (1.0, True)])
def test_only_what_grows_by_more_than_its_share_is_a_defect(rss: float, verdict: bool) -> None:
    verdicts = {quantity.title: grows(samples(rss), quantity) for quantity in QUANTITIES}
    assert verdicts.pop("RSS one") is verdict
    assert set(verdicts.values()) == {False}


def test_a_run_has_a_table_and_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = StringIO()
    found = Soaked(
        KEYS, 4_000, samples=samples(1.0), kills=[1.0, 4.0], events=7, wrong=["counts 3: 4, not 5"]
    )
    show(found, Console(file=text, width=200))
    assert "GROWS" in text.getvalue()
    assert "counts 3: 4, not 5" in text.getvalue()
    plot(found, tmp_path / "soak.svg")
    assert (tmp_path / "soak.svg").read_text().count("<svg") == 1
