"""The metrics of several producers, consumers and relays on one page."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamapp import ConfigError, metrics_text
from streamapp._base.prometheus import Metric, exposition
from streamapp.consumer import SyncReliableConsumer
from streamapp.producer import OutboxRelay, SqliteOutbox, SyncReliableProducer


def test_each_metric_stands_once(tmp_path: Path) -> None:
    """Prometheus refuses a second TYPE line of a metric."""
    relays = [OutboxRelay(name, SqliteOutbox(tmp_path / name)) for name in ("a", "b")]
    consumers = [SyncReliableConsumer(name, "orders", print) for name in ("a", "b")]
    producers = [SyncReliableProducer(name) for name in ("a", "b")]
    lines = metrics_text(*relays, *consumers, *producers).splitlines()
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    alone = [each.exposition().splitlines() for each in (*relays, *consumers, *producers)]
    assert sorted({line for text in alone for line in text}) == sorted(lines)
    names = [line.split("{")[0] for line in lines if not line.startswith("#")]
    assert [
        name for index, name in enumerate(names) if name in names[:index] and names[index - 1] != name
    ] == []


def test_sources_that_nobody_can_tell_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two sources have the counts of producer a"):
        metrics_text(SyncReliableProducer("a"), SyncReliableProducer("a"))


def test_a_large_sum_of_seconds_keeps_its_fraction() -> None:
    """With six digits, the rate of this counter would be 0 for seconds, and then jump."""
    text = exposition([Metric("seconds_total", "counter", "Seconds.", [({}, 1_234_567.25), ({}, 0.1)])], {})
    assert [line.split()[1] for line in text.splitlines()[2:]] == ["1234567.25", "0.1"]
