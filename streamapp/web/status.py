"""`/health`, `/status` and `/topology`: the state of the worker. These views answer in every state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import chain
from typing import Any

from aiohttp import web

from streamapp.web.caller import CALLER
from streamapp.web.diagnosis import (
    findings,
    slow_consumers,
    standing_agents,
    standing_inputs,
    standing_restores,
)
from streamapp.web.problem import NotFound, json_response
from streamapp.web.sampler import Sampler
from streamapp.web.view_source import (
    InputStatus,
    RestoreStatus,
    StandbyStatus,
    TableInfo,
    TaskStatus,
    TopologyGraph,
    ViewSource,
    WorkerStatus,
)

__all__ = ["StatusViews"]

_Drops = dict[str, dict[str, int]]
"""Operator -> reason -> number of dropped records."""


class StatusViews:
    """The handlers. docs/views.md has the format of each answer."""

    def __init__(self, source: ViewSource, sampler: Sampler) -> None:
        self._source, self._sampler = source, sampler

    async def live(self, _request: web.Request) -> web.Response:
        """Answers 200. No answer means that the process hangs (a liveness probe)."""
        return json_response({"live": True})

    async def ready(self, request: web.Request) -> web.Response:
        """Answers 200 if the worker is running with all its tasks, else 503 with the state and the reason of each task.

        The answer 200 also has a reason while an operator or a consumer takes no record because a service fails. The
        same holds while tasks or agents process no record of a partition with waiting records. A third case is that a
        call of a consumer does not return. ``?task=0_3`` asks for one task, and gets 404 if this worker does not have
        the task. If there are web users, a request without a login gets only ``ready`` and the worker's state.
        """
        status = self._sampler.look()
        tasks = [self._readiness(status, task) for task in status.tasks]
        body: dict[str, Any] = {"state": status.state, "paused": status.paused}
        asked = request.query.get("task")
        if asked is None:
            ready = status.state == "running"
            body |= {
                "reason": status.reason or self._waits_for(status),
                "tasks": tasks,
            }
        else:
            found = [task for task in tasks if task["task"] == asked]
            if not found and not CALLER.get().may_read:
                raise NotFound(f"this worker does not have task {asked!r}")
            if not found:
                listed = ", ".join(task.id for task in status.tasks) or "none"
                raise NotFound(f"this worker does not have task {asked!r}: its tasks are {listed}")
            ready = found[0]["ready"]
            body |= found[0]
        if not CALLER.get().may_read:
            body = {"state": status.state}
        if ready:
            return json_response({"ready": True} | body)
        return json_response({"ready": False} | body, 503, {"Retry-After": str(self.retry_after())})

    def _waits_for(self, status: WorkerStatus) -> str | None:
        sampler = self._sampler
        if status.state == "restoring":
            restores = chain(standing_restores(sampler), standing_agents(sampler))
            return next((found.message for found in restores), None)
        if status.state != "running":
            return None
        standing = chain(standing_inputs(sampler), standing_agents(sampler), slow_consumers(status))
        warnings = (found.message for found in standing if found.severity == "warning")
        return _waits_for_service(status) or next(warnings, None)

    def _readiness(self, status: WorkerStatus, task: TaskStatus) -> dict[str, Any]:
        """The readiness of one task, while other tasks may still restore their tables.

        The tables of a ready task can be read. The task processes records, unless the worker is paused.
        """
        about: dict[str, Any] = {"task": task.id, "partition": task.partition}
        if task.state == "restoring":
            return about | {"ready": False, "reason": "restoring", "restore": self.restore_progress(task)}
        if status.state not in ("running", "restoring"):
            return about | {"ready": False, "reason": status.state}
        return about | {"ready": True}

    async def status(self, _request: web.Request) -> web.Response:
        sampler, tables = self._sampler, self._source.tables()
        status = sampler.look()
        drops, by_task = _by_operator(status)
        return json_response(
            {
                "application_id": self._source.application_id,
                "state": status.state,
                "reason": status.reason,
                "state_seconds": round(sampler.state_seconds, 1),
                "url": status.url,
                "workers": workers(status, tables),
                "processed": status.processed,
                "dropped": status.dropped,
                "drops": drops,
                "records_per_second": round(sampler.throughput(), 1),
                "history": sampler.history(),
                "lag": _sum(each.lag for task in status.tasks for each in task.inputs),
                "restore": self.restore_progress(*status.tasks),
                "paused": status.paused,
                "tasks": [self._task(status, task, by_task.get(task.id, {})) for task in status.tasks],
                "standbys": [self._standby(each) for each in status.standbys],
                "global_inputs": [_input(each) for each in status.global_inputs],
                "agent_inputs": [_input(each) for each in status.agent_inputs],
                "consumers": [each.as_json() for each in status.consumers],
                "findings": [dataclasses.asdict(finding) for finding in findings(sampler, tables)],
            }
        )

    async def topology(self, request: web.Request) -> web.Response:
        """The topology as JSON; with ``?format=text`` or ``?format=mermaid``, plain text."""
        graph = self._source.topology()
        match request.query.get("format", "json"):
            case "json":
                return json_response(_graph_json(graph))
            case "text":
                return web.Response(text=graph.text)
            case "mermaid":
                return web.Response(text=graph.mermaid)
            case other:
                raise NotFound(f"there is no format {other!r}: use json, text or mermaid")

    def retry_after(self) -> int:
        """The value of ``Retry-After`` in seconds: the time that the restore still needs, at most 60, or 2 if
        unknown."""
        left = self.restore_progress(*self._sampler.status.tasks)["seconds_left"]
        return 2 if left is None else max(1, min(60, round(left)))

    def _task(self, status: WorkerStatus, task: TaskStatus, drops: _Drops) -> dict[str, Any]:
        return {
            "id": task.id,
            "partition": task.partition,
            "state": task.state,
            "processed": task.processed,
            "dropped": status.dropped_records.get(task.id, 0),
            "records_per_second": round(self._sampler.throughput(task), 1),
            "inputs": [_input(each) for each in task.inputs],
            "restoring": [self._restore(each) for each in task.restoring],
            "drops": drops,
            "parked": [dataclasses.asdict(each) for each in task.parked],
        }

    @staticmethod
    def _standby(standby: StandbyStatus) -> dict[str, Any]:
        return {
            "id": standby.id,
            "partition": standby.partition,
            "warmup": standby.warmup,
            "lag": standby.lag,
            "stores": [dataclasses.asdict(each) | {"lag": each.remaining} for each in standby.stores],
        }

    def _restore(self, each: RestoreStatus) -> dict[str, Any]:
        rate = self._sampler.restore_rate(each)
        return dataclasses.asdict(each) | {
            "percent": each.percent,
            "remaining": each.remaining,
            "records_per_second": round(rate, 1),
            "seconds_left": _seconds_left(each.remaining, rate),
        }

    def restore_progress(self, *tasks: TaskStatus) -> dict[str, Any]:
        """The progress of the restore of some tasks: stores, remaining offsets, percent, rate and seconds left.

        The percentage is None while the ends of the changelogs are looked up.
        """
        restores = [each for task in tasks for each in task.restoring]
        unknown = not restores and any(task.state == "restoring" for task in tasks)
        remaining = sum(each.remaining for each in restores)
        total = sum(max(0, each.end - each.start) for each in restores)
        percent = 100.0 if total == 0 else round(100.0 * (total - remaining) / total, 1)
        rate = sum(self._sampler.restore_rate(each) for each in restores)
        return {
            "stores": len(restores),
            "remaining": remaining,
            "percent": None if unknown else percent,
            "records_per_second": round(rate, 1),
            "seconds_left": _seconds_left(remaining, rate) if restores else None,
        }


def workers(status: WorkerStatus, tables: Mapping[str, TableInfo]) -> list[str]:
    """The addresses of all workers. This worker is the first."""
    owners = {url for table in tables.values() if not table.is_global for url in table.owners.values() if url}
    return [status.url, *sorted({*status.workers, *owners} - {status.url})]


def _waits_for_service(status: WorkerStatus) -> str | None:
    """The service whose failure holds records back; None if no service fails."""
    failing = [
        f"{each.operator} of task {task.id} takes no record: a service fails ({each.circuit})"
        for task in status.tasks
        for each in task.parked
        if each.circuit is not None
    ]
    failing += [
        f"{each.name} takes no record: a service fails ({each.circuit})"
        for each in status.consumers
        if each.circuit is not None
    ]
    return failing[0] if failing else None


def _by_operator(status: WorkerStatus) -> tuple[_Drops, dict[str, _Drops]]:
    """The dropped records of the whole worker, and those of each task.

    The drops of the worker include those of tasks that have moved away, and of global tables.
    """
    total: _Drops = {}
    by_task: dict[str, _Drops] = {}
    for (task, operator, reason), count in sorted(each for each in status.drops.items() if each[1]):
        for drops in (total, by_task.setdefault(task, {})):
            reasons = drops.setdefault(operator, {})
            reasons[reason] = reasons.get(reason, 0) + count
    return total, by_task


def _seconds_left(remaining: int, rate: float) -> int | None:
    if remaining == 0:
        return 0
    return round(remaining / rate) if rate > 0 else None


def _sum(lags: Any) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _graph_json(graph: TopologyGraph) -> dict[str, Any]:
    return {
        "text": graph.text,
        "mermaid": graph.mermaid,
        "subtopologies": [dataclasses.asdict(each) for each in graph.subtopologies],
    }


def _input(each: InputStatus) -> dict[str, Any]:
    return dataclasses.asdict(each) | {"lag": each.lag}
