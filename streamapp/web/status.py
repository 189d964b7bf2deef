"""`/health`, `/status` and `/topology`: what the worker does, answered in every state of the worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from streamapp.web.diagnosis import findings
from streamapp.web.problem import NotFound, json_response
from streamapp.web.sampler import Sampler
from streamapp.web.source import RestoreStatus, TableInfo, TaskStatus, TopologyGraph, ViewSource

__all__ = ["StatusViews"]


class StatusViews:
    """The handlers; see docs/views.md for the shape of each answer."""

    def __init__(self, source: ViewSource, sampler: Sampler) -> None:
        self._source, self._sampler = source, sampler

    async def live(self, _request: web.Request) -> web.Response:
        """200 as long as the process can answer at all."""
        return json_response({"live": True})

    async def ready(self, _request: web.Request) -> web.Response:
        """200 when every local table can be read and records are processed; 503 with reasons until then."""
        status = self._sampler.look()
        if status.state == "running":
            return json_response({"ready": True, "state": status.state})
        partitions = [
            {
                "task": task.id,
                "store": restore.store,
                "partition": restore.partition,
                "reason": f"restoring: {restore.percent} % of {restore.topic}",
            }
            for task in status.tasks
            for restore in task.restoring
        ]
        body = {"ready": False, "state": status.state, "reason": status.reason, "partitions": partitions}
        return json_response(body, 503, {"Retry-After": str(self.retry_after())})

    async def status(self, _request: web.Request) -> web.Response:
        sampler, tables = self._sampler, self._source.tables()
        status = sampler.look()
        return json_response(
            {
                "application_id": self._source.application_id,
                "state": status.state,
                "reason": status.reason,
                "state_seconds": round(sampler.state_seconds, 1),
                "url": status.url,
                "workers": workers(tables, status.url),
                "processed": sampler.processed,
                "records_per_second": round(sampler.throughput(), 1),
                "history": sampler.history(),
                "lag": _sum(each.lag for task in status.tasks for each in task.inputs),
                "restore": self._restore_total(),
                "tasks": [self._task(task) for task in status.tasks],
                "findings": [dataclasses.asdict(finding) for finding in findings(sampler, tables)],
            }
        )

    async def topology(self, request: web.Request) -> web.Response:
        """The whole as JSON; ``?format=text`` and ``?format=mermaid`` as plain text."""
        graph = self._source.topology()
        match request.query.get("format", "json"):
            case "json":
                return json_response(_graph_json(graph))
            case "text":
                return web.Response(text=graph.text)
            case "mermaid":
                return web.Response(text=graph.mermaid)
            case other:
                raise NotFound(f"format={other!r}: there are json, text and mermaid")

    def retry_after(self) -> int:
        """When it makes sense to ask again, in seconds: the restore's time left, otherwise soon."""
        left = self._restore_total()["seconds_left"]
        return 2 if left is None else max(1, min(60, round(left)))

    def _task(self, task: TaskStatus) -> dict[str, Any]:
        return {
            "id": task.id,
            "partition": task.partition,
            "state": task.state,
            "processed": task.processed,
            "records_per_second": round(self._sampler.throughput(task), 1),
            "inputs": [dataclasses.asdict(each) | {"lag": each.lag} for each in task.inputs],
            "restoring": [self._restore(each) for each in task.restoring],
        }

    def _restore(self, each: RestoreStatus) -> dict[str, Any]:
        rate = self._sampler.restore_rate(each)
        return dataclasses.asdict(each) | {
            "percent": each.percent,
            "remaining": each.remaining,
            "records_per_second": round(rate, 1),
            "seconds_left": _seconds_left(each.remaining, rate),
        }

    def _restore_total(self) -> dict[str, Any]:
        restores = [each for task in self._sampler.status.tasks for each in task.restoring]
        remaining = sum(each.remaining for each in restores)
        total = sum(max(0, each.end - each.start) for each in restores)
        rate = sum(self._sampler.restore_rate(each) for each in restores)
        return {
            "stores": len(restores),
            "remaining": remaining,
            "percent": 100.0 if total == 0 else round(100.0 * (total - remaining) / total, 1),
            "records_per_second": round(rate, 1),
            "seconds_left": _seconds_left(remaining, rate) if restores else None,
        }


def workers(tables: Mapping[str, TableInfo], this: str) -> list[str]:
    """The addresses of all workers that hold a partition of some table, this one first."""
    others = {url for table in tables.values() if not table.is_global for url in table.owners.values() if url}
    return [this, *sorted(others - {this})]


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
