"""Runs cases on Spark in batch; `meaning` says what of them can be compared."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from streamapp import SparkRunner, Windowed
from streamapp.records import OutputRecord
from streamapp.runners.spark import BatchResult, FrameSource, OutputTable

from .builder import CaseBuilder
from .outcome import Outcome, case_config
from .queries import row, shown_version
from .shown import Shown

__all__ = ["run_on_spark"]

Spec = dict[str, Any]

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("headers", _HEADERS),
    ]
)


def run_on_spark(case: Spec, spark: SparkSession) -> Outcome:
    """The outcome of a case whose records are all there when it begins. An error is a part of the outcome."""
    outcome = Outcome()
    where = ""
    with tempfile.TemporaryDirectory() as state_dir:
        config = case_config(case, state_dir)
        builder = CaseBuilder(case, config)
        shown = Shown(case, builder, config)
        try:
            topology = builder.build()
            where = "start"
            runner = SparkRunner(topology, config, spark)
            sources = {topic: FrameSource(_frame(case, topic, shown, spark), 1) for topic in _topics(case)}
            where = _where_it_fails(case)
            with runner.batch(sources) as result:
                outcome.actual["stores"] = {
                    name: _store(table, shown.keys) for name, table in result.tables.items()
                }
                outcome.actual |= shown.topics(_written(result))
        except Exception as error:
            outcome.error = error
            error_at = where or builder.where
            outcome.actual |= {"error": f"{type(error).__name__}: {error}", "error_at": error_at}
    return outcome


def _topics(case: Spec) -> list[str]:
    """The topics that the case reads: those of its records, and those that stay empty."""
    read = {step["topic"] for step in case["input"] if "topic" in step}
    for node in case["topology"]:
        if node["op"] in ("stream", "table", "globalTable", "addGlobalStore", "addSource"):
            read |= {*node.get("topics", ()), *({node["topic"]} if "topic" in node else ())}
    written = {node.get("topic") for node in case["topology"] if node["op"] in ("to", "addSink")}
    return sorted(read - written)


def _frame(case: Spec, topic: str, shown: Shown, spark: SparkSession) -> Any:
    steps = [step for step in case["input"] if step.get("topic") == topic]
    rows = []
    for offset, step in enumerate(steps):
        key, value, headers = shown.input(step)
        listed = [{"key": name, "value": data} for name, data in headers]
        rows.append((key, value, step["timestamp"], 0, offset, listed or None))
    columns = list(zip(*rows, strict=True)) or [()] * len(_COLUMNS)
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, _COLUMNS, strict=True)], schema=_COLUMNS)
    return spark.createDataFrame(table)


def _where_it_fails(case: Spec) -> str:
    """A batch has no steps: which one has failed it cannot say."""
    return str(case["expected"].get("error_at", "end"))


def _written(result: BatchResult) -> dict[str, list[OutputRecord]]:
    return {
        name: [
            OutputRecord(name, r.key, r.value, r.timestamp, r.headers, partition) for partition, r in found
        ]
        for name, topic in result.topics.items()
        for found in [list(topic.records())]
    }


def _store(table: OutputTable, keys: Collection[Any]) -> Spec:
    """``keys``: those of the input, which are all that an answer has of a versioned store."""
    kind = table.spec.kind.persistent_name
    entries = list(_entries(table, kind))
    if kind == "versioned":
        return {"type": "versioned", "entries": [each for each in entries if each["key"] in keys]}
    if kind in ("window", "timestamped_window"):
        return {"type": "window", "entries": entries}
    return {"type": "session" if kind == "session" else "kv", "entries": entries}


def _entries(table: OutputTable, kind: str) -> Iterable[Spec]:
    for key, value, timestamp, start, end in table.rows():
        if kind == "versioned":
            yield shown_version(key, (value, start, end))
        elif kind == "session":
            yield row(Windowed(key, start, end), value)
        elif kind in ("window", "timestamped_window"):
            stored = (value,) if kind == "window" else (value, timestamp)
            yield row(Windowed(key, start, end), *stored)
        elif kind == "timestamped":
            yield row(key, (value, timestamp))
        else:
            yield row(key, value)
