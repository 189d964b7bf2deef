"""``streamapp sql``."""

from __future__ import annotations

import csv
import json
import re
import sys
from typing import Any

import click

from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.cli.spark_options import session, spark_options
from streamapp.cli.text_table import TextTable

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
    help="json: one object a line.",
)
@spark_options
def sql(
    application: str, query: str | None, compute: bool, form: str, master: str, conf: dict[str, str]
) -> None:
    """Run the SQL QUERY over the tables of APPLICATION; without QUERY, show the tables and their columns.

    Each table is a view. In the view's name, underscores replace all characters but letters and digits. A view has the
    columns partition, key and value. Most views have columns with times, too, such as timestamp and window_start.

    \b
        streamapp sql agents "select key, value.minutes / value.flights from airport_delays"
    """
    app = load(application)
    with clear_errors(), session(app.config.application_id, master, conf) as spark:
        from pyspark.errors import AnalysisException, PySparkException

        from streamapp.runners.spark import SparkRunner, create_views, live_tables

        topology, config = app.streams.topology, app.config
        if compute:
            tables = SparkRunner(topology, config, spark).batch(progress=True).tables
        else:
            tables = live_tables(topology, config, spark)
        views = create_views(spark, tables)
        if query is None:
            _show_views(spark, views)
            return
        try:
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
        for text in frame.toJSON().collect():
            click.echo(text)
        return
    rows = frame.collect()
    if form == "csv":
        out = csv.writer(sys.stdout)
        out.writerow(names)
        out.writerows([_text(cell) for cell in row] for row in rows)
    else:
        table = TextTable(*names)
        for row in rows:
            table.add_row(*[_text(cell) for cell in row])
        table.print()


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if hasattr(cell, "asDict"):
        cell = cell.asDict(recursive=True)
    return json.dumps(cell, default=str) if isinstance(cell, dict | list) else str(cell)
