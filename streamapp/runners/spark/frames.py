"""The frames between stages: their columns and their kinds of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamapp.runners.spark.packing import ARROW_HEADERS

__all__ = [
    "CHANGE",
    "COUNTS",
    "HEADERS",
    "INPUT",
    "INPUT_COLUMNS",
    "OUTPUT",
    "OUTPUT_TYPES",
    "PACK",
    "POSITION",
    "RECORD",
    "ROW",
    "SENT",
    "output_batch",
]

HEADERS = "array<struct<key:string,value:binary>>"

INPUT = {
    "task": "int",
    "input": "int",
    "mx": "bigint",
    "src": "int",
    "seq": "bigint",
    "key": "binary",
    "value": "binary",
    "timestamp": "bigint",
    "headers": HEADERS,
}
INPUT_COLUMNS = tuple(INPUT)
"""Rows into a stage.

``input`` is an index into the topics that Spark brings. The rows are in the order of (``mx``, ``input``, ``src``,
``seq``). ``mx`` is the largest timestamp that the writing task has seen, ``src`` the task's partition, and ``seq`` a
counter.

A row of a repartition topic is a pack: ``value`` has the records, and ``timestamp`` has their number.
"""

OUTPUT = (
    "kind int, name string, task int, mx bigint, src int, seq bigint, key binary, value binary, "
    f"timestamp bigint, headers {HEADERS}, start bigint, end bigint"
)
"""Rows out of a stage, by kind:

| kind | row |
| --- | --- |
| RECORD | a record: ``name`` is the topic, ``task`` the partition |
| PACK | a pack of a repartition topic, as in `INPUT` |
| ROW | a row of a table: ``name`` is the store |
| COUNTS | a counter: ``seq`` has the number |
| SENT | ``seq`` is the number of records of the topic ``name`` in the partition ``task``, packed or not |
| CHANGE | a changelog record; only with a `Resume` |
| POSITION | ``name`` and ``task`` are an input; ``value`` is the metadata to commit beside its offset |
"""

RECORD, ROW, COUNTS, CHANGE, POSITION, PACK, SENT = range(7)

OUTPUT_TYPES = {
    "kind": pa.int32(),
    "name": pa.string(),
    "task": pa.int32(),
    "mx": pa.int64(),
    "src": pa.int32(),
    "seq": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "timestamp": pa.int64(),
    "headers": ARROW_HEADERS,
    "start": pa.int64(),
    "end": pa.int64(),
}


def output_batch(kind: int, source: int, size: int, **columns: Any) -> pa.RecordBatch:
    """Rows of one kind from one task; columns without an argument are 0 (``mx``, ``seq``) or null."""
    columns["kind"] = np.full(size, kind, np.int32)
    columns["src"] = np.full(size, source, np.int32)
    columns.setdefault("mx", np.zeros(size, np.int64))
    columns.setdefault("seq", np.zeros(size, np.int64))
    arrays = [
        pa.nulls(size, type)
        if name not in columns
        else columns[name]
        if isinstance(columns[name], pa.Array)
        else pa.array(columns[name], type)
        for name, type in OUTPUT_TYPES.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, list(OUTPUT_TYPES))
