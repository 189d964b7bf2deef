"""Streams that hold their records back, so that one commit has several records."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["hold_records"]


def hold_records(case: dict[str, Any], seed: str, *, gathered: bool) -> None:
    """Puts a processor behind most streams of a DSL case. The processor keeps records, and forwards them at each
    punctuation; if ``gathered``, when the processor has some records.

    The oracle's driver commits after each record, so a record cache usually has the changes of one record only. Some
    operators of Kafka Streams refuse rows from a punctuator, and no row from the processing of a record.
    """
    chance = random.Random(f"held/{seed}")
    nodes: list[dict[str, Any]] = []
    instead: dict[str, str] = {}
    for node in case["topology"]:
        for side in ("input", "other"):
            if node.get(side) in instead:
                node[side] = instead[node[side]]
        nodes.append(node)
        if node["op"] == "stream" and chance.random() < 0.75:
            instead[node["id"]] = held = f"{node['id']}h"
            processor: dict[str, Any] = {
                "name": "hold",
                "interval_ms": chance.choice([5, 20, 60]),
                "punctuation": "stream_time",
            }
            if gathered:
                processor = {"name": "gather", "count": chance.choice([2, 3, 5, 8])}
            nodes.append({"id": held, "op": "processValues", "input": node["id"], "processor": processor})
    case["topology"] = nodes
