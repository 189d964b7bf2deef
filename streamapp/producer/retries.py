"""The number of requests that librdkafka has sent again, from its statistics."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["count_retries"]

_INTERVAL_MS = 1_000


def count_retries(retried: Callable[[int], None]) -> dict[str, Any]:
    """Settings with which a client calls ``retried`` at intervals, with the number of requests that it has sent again
    since the last call.

    >>> seen = []
    >>> count_retries(seen.append)["stats_cb"]('{"brokers": {"a": {"txretries": 2}, "b": {"txretries": 1}}}')
    >>> seen
    [3]
    """
    before = 0

    def look(statistics: str) -> None:
        nonlocal before
        now = sum(broker.get("txretries", 0) for broker in json.loads(statistics)["brokers"].values())
        if now > before:
            retried(now - before)
            before = now

    return {"statistics.interval.ms": _INTERVAL_MS, "stats_cb": look}
