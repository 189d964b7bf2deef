"""`GET /metrics`: what a worker does, in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from aiohttp import web

from streamapp._base.prometheus import Metric, exposition
from streamapp.consumer.account import described
from streamapp.records import TopicPartition
from streamapp.web.sampler import Sampler
from streamapp.web.status import StatusViews
from streamapp.web.view_source import WorkerState, WorkerStatus

__all__ = ["MetricsView"]


class MetricsView:
    """The HTTP handler of ``/metrics``. Each name has the prefix ``streamapp_``, and each metric its help text."""

    def __init__(self, application_id: str, sampler: Sampler, status: StatusViews) -> None:
        self._application_id, self._sampler, self._status = application_id, sampler, status

    async def metrics(self, _request: web.Request) -> web.Response:
        text = exposition(self._metrics(self._sampler.look()), {"application": self._application_id})
        return web.Response(
            body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    def _metrics(self, status: WorkerStatus) -> Iterable[Metric]:
        tasks = status.tasks
        inputs = [
            ({"task": task.id, "topic": each.topic, "partition": str(each.partition)}, each)
            for task in tasks
            for each in task.inputs
        ]
        restoring = [(task, self._status.restore_progress(task)) for task in tasks if task.restoring]
        yield Metric(
            "worker_state", "gauge", "1 for the state that the worker is in.",
            [({"state": state}, state == status.state) for state in get_args(WorkerState)],
        )  # fmt: skip
        yield Metric("worker_paused", "gauge", "1 while processing is paused.", [({}, status.paused)])
        yield Metric(
            "records_processed_total", "counter", "Records processed since the start.",
            [({}, status.processed)],
        )  # fmt: skip
        yield Metric(
            "dropped_records_total", "counter",
            "Records dropped since the start, for example late or without key, or by an exception handler.",
            [({"task": task}, dropped) for task, dropped in sorted(status.dropped_records.items())],
        )  # fmt: skip
        yield Metric(
            "drops_total", "counter",
            "Records dropped since the start, by operator (or store) and reason.",
            [
                ({"task": task, "operator": operator, "reason": reason}, count)
                for (task, operator, reason), count in sorted(status.drops.items())
            ],
        )  # fmt: skip
        parked = [
            ({"task": task.id, "operator": each.operator}, each) for task in tasks for each in task.parked
        ]
        yield Metric(
            "parked_records", "gauge", "Records that wait for a retry.",
            [(labels, each.records) for labels, each in parked],
        )  # fmt: skip
        yield Metric(
            "parked_keys", "gauge", "Keys whose records wait for a retry.",
            [(labels, each.keys) for labels, each in parked],
        )  # fmt: skip
        yield Metric(
            "circuit_open", "gauge", "1 while the operator's task takes no record because a service fails.",
            [(labels, each.circuit is not None) for labels, each in parked],
        )  # fmt: skip
        yield Metric(
            "dropped_results_total", "counter",
            "Results that brokers refused and production_exception_handler went on without.",
            [({}, status.dropped_results)],
        )  # fmt: skip
        yield Metric(
            "task_ready", "gauge", "1 for a task that is restored, 0 for one that is not.",
            [({"task": task.id}, task.state == "running") for task in tasks],
        )  # fmt: skip
        yield Metric(
            "input_position", "gauge", "Next offset to be processed.",
            [(labels, each.position) for labels, each in inputs if each.position is not None],
        )  # fmt: skip
        yield Metric(
            "input_lag", "gauge", "Offsets between the position and the end of the log.",
            [(labels, each.lag) for labels, each in inputs if each.lag is not None],
        )  # fmt: skip
        yield Metric(
            "input_buffered", "gauge", "Records that were fetched and wait.",
            [(labels, each.buffered) for labels, each in inputs],
        )  # fmt: skip
        # The series begin with 0, because `increase` of Prometheus does not see the first value of a series.
        read = [TopicPartition(each.topic, each.partition) for task in tasks for each in task.inputs]
        beside_tasks = (*status.agent_inputs, *status.global_inputs)
        read += [TopicPartition(each.topic, each.partition) for each in beside_tasks]
        removed = dict.fromkeys(read, 0) | {tp: each.count for tp, each in status.removed_records.items()}
        yield Metric(
            "removed_records_total", "counter",
            "Offsets that were passed over, because brokers had removed their records.",
            [({"topic": tp.topic, "partition": str(tp.partition)}, count) for tp, count in sorted(removed.items())],
        )  # fmt: skip
        yield Metric(
            "agent_lag", "gauge", "Offsets from the first record that agents have not finished to the end of the log.",
            [
                ({"topic": each.topic, "partition": str(each.partition)}, each.lag)
                for each in status.agent_inputs
                if each.lag is not None
            ],
        )  # fmt: skip
        failed = status.agent_failed_records.items()
        yield Metric(
            "agent_skipped_total", "counter", "Records of agents that were dropped after an error.",
            [({"topic": topic}, skipped) for topic, (skipped, _) in failed],
        )  # fmt: skip
        yield Metric(
            "agent_dead_total", "counter", "Records of agents that became dead letters.",
            [({"topic": topic}, dead) for topic, (_, dead) in failed],
        )  # fmt: skip
        for field, text in (
            ("percent", "How much of a task's changelogs is restored."),
            ("remaining", "Offsets of a task's changelogs that are to be restored."),
            ("records_per_second", "Changelog offsets restored per second."),
            ("seconds_left", "Time until a task is restored, as it looks now."),
        ):
            yield Metric(
                f"restore_{field}", "gauge", text,
                [({"task": task.id}, made[field]) for task, made in restoring if made[field] is not None],
            )  # fmt: skip
        yield Metric(
            "standby_lag", "gauge", "Changelog offsets that a standby does not have yet.",
            [({"task": each.id, "warmup": str(each.warmup).lower()}, each.lag) for each in status.standbys],
        )  # fmt: skip
        yield from described(status.consumers)
