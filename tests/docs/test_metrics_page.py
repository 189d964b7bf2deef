"""docs/metrics.md against the code: the names, types and labels of all metrics, and the names in the rules for alerts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import yaml

from streamapp._base.prometheus import Metric
from streamapp.broker.removed_records import RemovedRange
from streamapp.consumer.account import ConsumerMetrics, ConsumerStatus
from streamapp.engine.operator import ParkedStatus
from streamapp.producer import OutboxRelay, SqliteOutbox, SyncReliableProducer
from streamapp.web.metrics import MetricsView
from streamapp.web.sampler import Sampler
from streamapp.web.status import StatusViews
from streamapp.web.view_source import InputStatus, RestoreStatus, StandbyStatus, TaskStatus, WorkerState
from tests.web.fakes import FakeSource

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
_ROW = re.compile(r"^\| `(streamapp_\w+)` \| (\w+) \|(.*?)\| .+ \|$", re.MULTILINE)
_SAMPLE = re.compile(r"^(streamapp_\w+)\{(.*)\} \S+$", re.MULTILINE)


class Described(NamedTuple):
    name: str
    kind: str
    labels: frozenset[str]


def on_the_page() -> list[Described]:
    return [
        Described(name, kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in _ROW.findall(PAGE)
    ]


def of_metrics(metrics: Iterable[Metric]) -> set[Described]:
    """The metrics of a worker, each with the labels of its samples."""
    found = set()
    for metric in metrics:
        labels = {frozenset(own) for own, _ in metric.samples}
        assert len(labels) == 1, f"{metric.name} has no sample, or samples with other labels: {labels}"
        found.add(Described(f"streamapp_{metric.name}", metric.kind, labels.pop()))
    return found


def of_text(text: str) -> set[Described]:
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    return {
        Described(name, kinds[name], frozenset(re.findall(r'(\w+)="', labels)))
        for name, labels in _SAMPLE.findall(text)
    }


def emitted_by_a_worker() -> set[Described]:
    source = FakeSource()
    restore = RestoreStatus("counts", "counts-changelog", 2, 0, 250, 1_000)
    inputs = (InputStatus("flights", 1, 90, 100, 4),)
    parked = (ParkedStatus("look-up", 1, 1, 10, None, False),)
    source.worker = dataclasses.replace(
        source.worker,
        tasks=(
            TaskStatus("0_1", 1, "running", 100, inputs, parked=parked),
            TaskStatus("0_2", 2, "restoring", 0, (), (restore,)),
        ),
        standbys=(StandbyStatus("0_3", 3, True, (restore,)),),
        dropped_records={"0_1": 2},
        drops={("0_1", "look-up", "late"): 2},
        consumers=(
            ConsumerStatus(
                "a-pay",
                ("a",),
                "running",
                None,
                (),
                ConsumerMetrics(),
                None,
                None,
                None,
                0.0,
                (),
                lag={"a-0": 7},
                removed={"a-0": RemovedRange(20, 10, 29)},
            ),
        ),
        agent_inputs=inputs,
        agent_failed_records={"flights": (1, 2)},
    )
    now = 0.0
    sampler = Sampler(source, lambda: now)
    sampler.tick()
    now, source.worker = 1.0, dataclasses.replace(
        source.worker,
        tasks=(source.worker.tasks[0], dataclasses.replace(
            source.worker.tasks[1], restoring=(dataclasses.replace(restore, position=300),)
        )),
    )  # fmt: skip
    sampler.tick()  # a restore that goes on has an end that can be estimated
    view = MetricsView("a", sampler, StatusViews(source, sampler))
    return of_metrics(view._metrics(sampler.look()))


def emitted_by_a_service(tmp_path: Path) -> set[Described]:
    producer = SyncReliableProducer("orders", bootstrap_servers="localhost:9")
    relay = OutboxRelay("orders", SqliteOutbox(str(tmp_path / "db")), bootstrap_servers="localhost:9")
    return of_text(producer.exposition()) | of_text(relay.exposition())


def test_the_tables_have_each_metric_once_with_its_type_and_labels(tmp_path: Path) -> None:
    described = on_the_page()
    assert len(described) == len({each.name for each in described})
    assert set(described) == emitted_by_a_worker() | emitted_by_a_service(tmp_path)


def test_the_page_names_each_state() -> None:
    row = PAGE.partition("`streamapp_worker_state`")[2].partition("\n")[0]
    assert [state for state in get_args(WorkerState) if f"`{state}`" not in row] == []


def test_the_rules_for_prometheus_are_those_of_the_page() -> None:
    (group,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
    assert group["rules"] == rules()


def rules() -> list[dict[str, Any]]:
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)]
    (groups,) = (block["groups"] for block in blocks if "groups" in block)
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_names_metrics_and_labels_that_exist(rule: dict[str, Any]) -> None:
    labels = {each.name: each.labels | {"application", "instance", "job"} for each in on_the_page()}
    labels["up"] = frozenset({"instance", "job"})
    named = re.findall(r"\b(streamapp_\w+|up\b)(?:\{(.*?)\})?", rule["expr"])
    assert named
    for name, chosen in named:
        assert name in labels
        for label, values in re.findall(r'(\w+)=~?"(.*?)"', chosen):
            assert label in labels[name]
            assert label != "state" or set(values.split("|")) <= set(get_args(WorkerState))
    every = frozenset[str]().union(*(labels[name] for name, _ in named))
    kept = {
        label for group in re.findall(r"(?:by|on) \((.*?)\)", rule["expr"]) for label in group.split(", ")
    }
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert kept | shown <= every
    grouped = re.findall(r"by \((.*?)\)", rule["expr"])
    assert not grouped or all(shown <= set(group.split(", ")) for group in grouped)
