"""``streamapp sql``."""

from __future__ import annotations

import base64
import csv
import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.cli.spark_options import begin_late, session, spark_options
from streamapp.cli.text_table import TextTable
from streamapp.runners.connection import client_of

__all__ = ["sql"]


@click.command()
@APPLICATION
@click.argument("query", required=False)
@click.option(
    "--compute",
    is_flag=True,
    help="Compute the tables from the source topics, instead of reading the workers' committed tables.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help='json: one object a line. csv: null is an empty cell, and an empty text is "".',
)
@spark_options
def sql(
    application: str, query: str | None, compute: bool, form: str, master: str, conf: dict[str, str]
) -> None:
    """Run the SQL QUERY over the tables of APPLICATION; without QUERY, show the tables and their columns.

    The tables are as they are in Kafka now; with --compute, Spark computes the tables from the inputs. Each table is a
    view. In the view's name, underscores replace all characters of the table's name but letters and digits. A view has
    the columns partition, key and value. Most views have columns with times, too, such as timestamp and window_start.

    \b
        streamapp sql agents "select key, value.minutes / value.flights from airport_delays"
    """
    app = load(application)
    with (
        clear_errors(),
        session(app.config.application_id, master, conf, client=client_of(app.config)) as spark,
    ):
        from pyspark.errors import AnalysisException, PySparkException
        from pyspark.logger import PySparkLogger

        from streamapp.runners.spark import SparkRunner, create_views, live_tables
        from streamapp.runners.spark.failures import raised_in_tasks
        from streamapp.runners.spark.late_inputs import late_inputs

        # PySpark would log the error of a query with Java's stack trace, beside the message below.
        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
        topology, config = app.streams.topology, app.config
        if compute:
            runner = SparkRunner(topology, config, spark)
            stores = [spec.name for sub in runner.plan.subtopologies for spec in sub.stores]
            if late := late_inputs(runner.plan, stores):
                click.echo(f"{begin_late(late)}. The tables lack earlier records.", err=True)
            tables = runner.batch(progress=True).tables
        else:
            tables = live_tables(topology, config, spark)
        views = create_views(spark, tables)
        if query is None:
            _show_views(spark, views)
            return
        try:
            with raised_in_tasks():
                _show(spark.sql(query), form)
        except AnalysisException as error:  # also for a query that cannot be parsed
            known = ", ".join(views) or "none (has the application run? --compute computes them)"
            raise click.ClickException(f"{_message(error)}\nThe tables are: {known}") from None
        except PySparkException as error:  # only rows raise this, for example by a division by zero
            raise click.ClickException(_message(error)) from None


def _message(error: Any) -> str:
    """Spark's message about a query, without Java's stack trace and the plan."""
    return re.split(r"\s*JVM stacktrace:|;\n['+]", str(error))[0].strip()


def _show_views(spark: Any, views: dict[str, str]) -> None:
    table = TextTable("view", "table", "columns")
    for view, name in sorted(views.items()):
        columns = ", ".join(
            f"{field.name} {field.dataType.simpleString()}" for field in spark.table(view).schema
        )
        table.add_row(view, name, columns)
    table.print()


def _show(frame: Any, form: str) -> None:
    names = frame.columns
    if form == "json":
        with _computed(_objects(frame)) as rows:
            for row in rows:
                click.echo(row["row"])
    elif form == "csv":
        with _computed(_in_session_zone(frame)) as rows:
            csv.writer(sys.stdout).writerow(names)
            for row in rows:
                sys.stdout.write(",".join(map(_csv_cell, row)) + "\r\n")
    else:
        table = TextTable(*names)
        for row in _in_session_zone(frame).collect():
            table.add_row(*[_text(cell) for cell in row])
        table.print()


@contextmanager
def _computed(frame: Any) -> Iterator[Iterator[Any]]:
    """The rows of a frame. Spark computes all rows before the first one comes, and keeps them on its disks. So the
    driver never holds more than the rows of one Spark partition."""
    from streamapp.runners.spark.sessions import kept

    stored = kept(frame)
    try:
        stored.count()
        yield stored.toLocalIterator()
    finally:
        stored.unpersist()


def _objects(frame: Any) -> Any:
    """A frame with the rows as JSON. Each object has all columns, also those that are null."""
    from pyspark.sql import functions as F

    twice = sorted({name for name in frame.columns if frame.columns.count(name) > 1})
    if twice:
        raise click.ClickException(
            f"several columns have the name {', '.join(twice)}, so a JSON object would lose some: give them other "
            "names with AS, or use --format csv"
        )
    text = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}) if frame.columns else F.lit("{}")
    return frame.select(text.alias("row"))


def _in_session_zone(frame: Any) -> Any:
    """The frame with timestamps that have no zone, which PySpark returns as they are.

    PySpark returns other timestamps in the time zone of this machine, but the query computes in the session's time
    zone.
    """
    from pyspark.sql import functions as F

    shown = frame.toDF(*[f"_{n}" for n in range(len(frame.columns))])  # names may be equal
    columns = []
    for field in shown.schema:
        kind = _without_zone(field.dataType)
        # Spark's errors point into the query only for columns that are as the query made them.
        column = F.col(field.name)
        columns.append(column if kind == field.dataType else column.cast(kind))
    return shown.select(*columns)


def _without_zone(kind: Any) -> Any:
    """The type of a column, with timestamps without a zone in the place of those with one."""
    from pyspark.sql.types import (
        ArrayType,
        MapType,
        StructField,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    match kind:
        case TimestampType():
            return TimestampNTZType()
        case ArrayType(elementType=inner, containsNull=nullable):
            return ArrayType(_without_zone(inner), nullable)
        case MapType(keyType=key, valueType=value, valueContainsNull=nullable):
            return MapType(_without_zone(key), _without_zone(value), nullable)
        case StructType(fields=fields):
            return StructType(
                [StructField(each.name, _without_zone(each.dataType), each.nullable) for each in fields]
            )
    return kind


def _text(cell: Any) -> str:
    cell = _plain(cell)
    if cell is None:
        return ""
    return json.dumps(cell) if isinstance(cell, dict | list) else str(cell)


def _csv_cell(cell: Any) -> str:
    """A cell of CSV: null is empty, and an empty text is quoted, as in PostgreSQL. Python's writer shows both alike.

    >>> _csv_cell(None), _csv_cell(""), _csv_cell("JFK"), _csv_cell("a, b")
    ('', '""', 'JFK', '"a, b"')
    """
    text = _text(cell)
    if cell is None or (text and not set(text) & set(',"\r\n')):
        return text
    return '"' + text.replace('"', '""') + '"'


def _plain(cell: Any) -> Any:
    """A cell of Spark for `json.dumps`: bytes are base64, and NaN is a text, as in ``--format json``.

    >>> _plain([1.5, float("nan"), float("-inf")])
    [1.5, 'NaN', '-Infinity']
    """
    match cell:
        case bytes() | bytearray():
            return base64.b64encode(cell).decode()
        case tuple():
            row: Any = cell  # of PySpark
            return {name: _plain(item) for name, item in zip(row.__fields__, row, strict=True)}
        case dict():
            return {_text(key): _plain(item) for key, item in cell.items()}
        case list():
            return [_plain(item) for item in cell]
        case float() if not math.isfinite(cell):
            return json.dumps(cell)
        case None | bool() | int() | float() | str():
            return cell
    return str(cell)
