"""The columns of DataFrames that users give as topics: checks of their names and types, and the time of a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from streamapp.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["BYTES", "HEADER_PAIRS", "NUMBER", "TIME", "check_names", "check_types", "milliseconds", "named"]

BYTES = "binary or string"
HEADER_PAIRS = "array<struct<key:string,value:binary>>"
NUMBER = "int or bigint"
TIME = "timestamp, or bigint in ms"


def check_names(frame: DataFrame, topic: str, wanted: Iterable[str]) -> None:
    """Raises `ConfigError` for a column that the frame of a topic does not have."""
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise ConfigError(
            f"the frame for topic {topic} has no column {', '.join(missing)}; it has {', '.join(frame.columns)}"
        )


def check_types(frame: DataFrame, topic: str, wanted: Mapping[str, str]) -> None:
    """Raises `ConfigError` for a column whose type is not the wanted one: `BYTES`, `HEADER_PAIRS`, `NUMBER` or `TIME`.

    A column of nulls only may have Spark's type void, except for a `NUMBER`.
    """
    for name, kind in wanted.items():
        found = frame.schema[name].dataType
        if not _fits(found, kind):
            raise ConfigError(
                f"column {name} of the frame for topic {topic} is {found.simpleString()}, but has to be {kind}: "
                "cast it, or give another column"
            )


def _fits(found: DataType, kind: str) -> bool:
    from pyspark.sql import types as T

    if kind == NUMBER:
        return isinstance(found, T.IntegralType)
    if isinstance(found, T.NullType):
        return True
    if kind == TIME:
        return isinstance(found, T.IntegralType | T.TimestampType | T.TimestampNTZType)
    if kind == BYTES:
        return isinstance(found, T.BinaryType | T.StringType)
    pair = found.elementType if isinstance(found, T.ArrayType) else None
    return (
        isinstance(pair, T.StructType)
        and len(pair) == 2
        and isinstance(pair[0].dataType, T.StringType)
        and isinstance(pair[1].dataType, T.BinaryType | T.StringType | T.NullType)
    )


def named(name: str) -> Column:
    """The column with exactly this name. Without quotes, Spark takes a dot in a name for the field of a struct."""
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def milliseconds(frame: DataFrame, name: str) -> Any:
    """The column of a `TIME` in ms since the epoch. Times without a zone are in the time zone of the session."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegralType, NullType

    column = named(name)
    if isinstance(frame.schema[name].dataType, IntegralType | NullType):
        return column.cast("bigint")
    return F.unix_millis(column.cast("timestamp"))
