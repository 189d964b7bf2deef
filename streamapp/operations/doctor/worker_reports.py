"""Reads ``/status`` of running workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamapp._base.worker_client import open_worker, worker_address

__all__ = ["WorkerReport", "ask_workers"]

_SECONDS = 10.0


@dataclass(frozen=True)
class WorkerReport:
    """The status of one worker (docs/views.md), or the ``problem`` of a worker that does not answer."""

    url: str
    status: Mapping[str, Any] | None
    problem: str | None = None


def ask_workers(urls: Iterable[str]) -> list[WorkerReport]:
    """The status of the workers at these addresses, and of the workers that they name.

    Raises `ConfigError` for a URL that is not the address of a worker.
    """
    waiting, found = [worker_address(url) for url in urls], {}
    while waiting:
        url = waiting.pop(0)
        if url in found:
            continue
        found[url] = report = _ask(url)
        if report.status is not None:
            waiting += [worker_address(other) for other in report.status.get("workers", ())]
            found[worker_address(report.status.get("url", url))] = report
    unique = {id(report): report for report in found.values()}
    return list(unique.values())


def _ask(url: str) -> WorkerReport:
    try:
        with open_worker(f"{url}/status", seconds=_SECONDS) as response:
            status = json.load(response)
    except (OSError, ValueError) as error:
        return WorkerReport(url, None, str(error))
    return WorkerReport(url, status) if isinstance(status, dict) else WorkerReport(url, None, "no status")
