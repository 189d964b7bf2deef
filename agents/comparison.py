"""Compares the workers' tables, entry by entry, with tables that Spark computes from the same events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rich.table import Table

from streamapp import StreamsConfig, Topology
from streamapp.runners.spark import OutputTable, SparkRunner
from streamapp.serdes.json_values import to_json
from streamapp.serdes.value_texts import as_document
from streamapp.testing import WorkerProcess

__all__ = ["Comparison", "batch_tables", "compare", "report", "worker_tables"]

Entries = dict[tuple[Any, int | None], Any]
"""The entries of a table: (key, start) -> all other fields. ``start`` is the start of the window, or of the time for
which a version is valid. In other tables, ``start`` is None."""

EXAMPLES = 3
PAGE = 1_000


@dataclass(frozen=True)
class Comparison:
    """The result for one table: the number of entries on each side, and those that differ, as (key, worker's,
    Spark's)."""

    table: str
    in_worker: int
    in_spark: int
    differences: list[tuple[Any, Any, Any]]


def batch_tables(topology: Topology, config: StreamsConfig) -> dict[str, Entries]:
    """Every table that the topology computes, by Spark from the records that are in Kafka now.

    A global table is a copy of its topic, so it is left out.
    """
    copies = {store.spec.name for store in topology.plan(config).global_stores}
    with SparkRunner(topology, config).batch(progress=True) as result:
        return {name: _batch_entries(table) for name, table in result.tables.items() if name not in copies}


def _batch_entries(table: OutputTable) -> Entries:
    key_serde = table.spec.key_serde
    return {
        (as_document(key_serde, row.key), row.start): (to_json(row.value), row.end, row.timestamp)
        for row in table.rows()
    }


def worker_tables(worker: WorkerProcess, keys: dict[str, Entries]) -> dict[str, Entries]:
    """The tables of all workers, read over HTTP from ``worker``, page by page. Global tables, and stores that operators
    have for themselves, are left out.

    ``keys`` are the tables that Spark computed. A versioned table can be read only by key, and Spark's table has the
    keys.
    """
    tables: dict[str, Entries] = {}
    for about in worker.get("/tables/")["tables"]:
        name, kind = about["name"], about["kind"]
        if about["global"] or about["internal"] or not about["readable"]:
            continue
        if kind == "versioned":
            known = sorted({key for key, _ in keys.get(name, {})})
            paths = [f"/tables/{name}/{quote(key)}?from=0&limit={PAGE}" for key in known]
        else:
            paths = [f"/tables/{name}/?limit={PAGE}"]
        tables[name] = {}
        for path in paths:
            for entry in _entries(worker, path):
                start = entry.get("timestamp") if kind == "versioned" else entry.get("start")
                end = entry.get("valid_to") if kind == "versioned" else entry.get("end")
                timestamp = None if kind == "versioned" else entry.get("timestamp")
                tables[name][entry["key"], start] = (entry["value"], end, timestamp)
    return tables


def _entries(worker: WorkerProcess, path: str | None) -> Iterator[dict[str, Any]]:
    while path is not None:
        page = worker.get(path)
        yield from page["entries"]
        path = page["next"]


def compare(workers: dict[str, Entries], spark: dict[str, Entries]) -> list[Comparison]:
    """The comparison of each table. A table or entry that only one side has counts as different."""
    found = []
    for name in sorted(workers.keys() | spark.keys()):
        ours, theirs = workers.get(name, {}), spark.get(name, {})
        differences = [
            (key, ours.get(key), theirs.get(key))
            for key in sorted(ours.keys() | theirs.keys(), key=str)
            if ours.get(key) != theirs.get(key)
        ]
        found.append(Comparison(name, len(ours), len(theirs), differences))
    return found


def report(comparisons: list[Comparison]) -> Table:
    """The comparison as a table for the terminal."""
    table = Table("table", title="The worker's tables and Spark's", title_justify="left")
    table.add_column("entries in worker", justify="right")
    table.add_column("entries in Spark", justify="right")
    table.add_column("")
    for each in comparisons:
        examples = [
            f"{key}: worker {ours}, Spark {theirs}" for key, ours, theirs in each.differences[:EXAMPLES]
        ]
        verdict = "\n".join([f"[red]{len(each.differences):,} differ[/red]", *examples])
        table.add_row(
            each.table,
            f"{each.in_worker:,}",
            f"{each.in_spark:,}",
            verdict if each.differences else "[green]equal[/green]",
        )
    return table
