"""Expressions as columns of Spark SQL, with the results that Python gives.

Spark compares and computes differently in some cases: NaN equals NaN, texts become numbers, numbers overflow. The
translation avoids these cases, or refuses them: at once if the types of the columns tell, else in the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from typing import TYPE_CHECKING, NamedTuple

from streamapp import expressions as ex
from streamapp.errors import StreamsError, UnsupportedOperation
from streamapp.topology.nodes import Node

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

__all__ = ["Kind", "Translation", "Typed", "kind_of", "only_engine"]

_ENGINE = "SparkRunner.batch computes it with the engine"
_LARGEST = 2**63


class Kind(Enum):
    """The kind of the values of a column. The value of each member names the kind in error messages."""

    BOOLEAN = "booleans"
    INTEGER = "integers"
    FLOAT = "floats"
    TEXT = "texts"
    NULL = "nulls"
    OTHER = "values that are neither booleans, nor numbers, nor texts"


class Typed(NamedTuple):
    """A column with the kind of its values."""

    column: Column
    kind: Kind


def kind_of(type_: DataType) -> Kind:
    from pyspark.sql import types as T

    match type_:
        case T.BooleanType():
            return Kind.BOOLEAN
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return Kind.INTEGER
        case T.FloatType() | T.DoubleType():
            return Kind.FLOAT
        case T.StringType():
            return Kind.TEXT
        case T.NullType():
            return Kind.NULL
    return Kind.OTHER


def only_engine(node: Node, why: str) -> UnsupportedOperation:
    return UnsupportedOperation(node.name, "Spark SQL", why, _ENGINE)


@dataclass(frozen=True)
class Translation:
    """Translates the expressions and aggregates of one node.

    ``fields`` are the columns of the value. ``finite`` is True if results are written as JSON, which has neither NaN
    nor infinity. The methods raise `UnsupportedOperation` for an expression that Spark SQL computes differently, and
    `StreamsError` for a field that is no column.
    """

    node: Node
    key: Typed
    fields: Mapping[str, Typed]
    finite: bool = True

    def condition(self, expression: ex.Expression) -> Column:
        found = self.column(expression)
        if found.kind not in (Kind.BOOLEAN, Kind.NULL):
            raise only_engine(
                self.node, f"a condition is made of {found.kind.value}, and Spark SQL needs booleans"
            )
        return found.column.cast("boolean")

    def column(self, expression: ex.Expression) -> Typed:
        match expression:
            case ex.Key():
                return self.key
            case ex.Constant(constant=constant):
                return self._constant(constant)
            case ex.Field(name=name):
                if name not in self.fields:
                    columns = ", ".join(self.fields) or "none"
                    raise StreamsError(
                        f"{self.node.name} names the field {name}, but the columns are {columns}"
                    )
                return self.fields[name]
            case ex.Binary(symbol=symbol, left=left, right=right):
                return self._binary(symbol, self.column(left), self.column(right))
            case ex.Both(left=left, right=right):
                return Typed(self.condition(left) & self.condition(right), Kind.BOOLEAN)
            case ex.Not(inner=inner):
                return Typed(~self.condition(inner), Kind.BOOLEAN)
            case ex.IsNull(inner=inner):
                return Typed(self.column(inner).column.isNull(), Kind.BOOLEAN)
            case _:
                raise only_engine(
                    self.node, f"{type(expression).__name__} is no expression of streamapp.expressions"
                )

    def _constant(self, constant: object) -> Typed:
        from pyspark.sql import functions as F

        match constant:
            case None:
                return Typed(F.lit(None), Kind.NULL)
            case bool():
                return Typed(F.lit(constant), Kind.BOOLEAN)
            case str():
                return Typed(F.lit(str(constant)), Kind.TEXT)
            case Integral() if -_LARGEST <= int(constant) < _LARGEST:
                return Typed(F.lit(int(constant)).cast("bigint"), Kind.INTEGER)
            case Real() if not isinstance(constant, Integral):
                return Typed(F.lit(float(constant)).cast("double"), Kind.FLOAT)
        raise only_engine(
            self.node, f"the constant {constant!r} is neither a boolean, nor a number of 64 bits, nor a text"
        )

    def _binary(self, symbol: str, left: Typed, right: Typed) -> Typed:
        from pyspark.sql import functions as F

        kinds = {left.kind, right.kind} - {Kind.NULL}
        computes = symbol in _CHECKED
        if not kinds:
            return Typed(F.lit(None), Kind.NULL)
        numbers = kinds <= {Kind.INTEGER, Kind.FLOAT}
        texts = kinds == {Kind.TEXT}
        alike = numbers or texts or (kinds == {Kind.BOOLEAN} and not computes)
        if not alike or (texts and computes and symbol != "+"):
            words = " and ".join(sorted(kind.value for kind in kinds))
            raise only_engine(
                self.node,
                f"Spark SQL has another result than Python for {symbol} of {words}",
            )
        if Kind.NULL in (left.kind, right.kind):
            return Typed(F.lit(None), Kind.NULL)
        if not computes:
            return Typed(_compared(symbol, left, right), Kind.BOOLEAN)
        if texts:
            return Typed(F.concat(left.column, right.column), Kind.TEXT)
        if kinds == {Kind.INTEGER}:
            return Typed(
                self._exact(symbol, left.column.cast("bigint"), right.column.cast("bigint")), Kind.INTEGER
            )
        operands = left.column.cast("double"), right.column.cast("double")
        return Typed(ex.OPERATORS[symbol](*operands), Kind.FLOAT)

    def _exact(self, symbol: str, left: Column, right: Column) -> Column:
        """Computes with integers. A result of more than 64 bits ends the query, because Python has larger integers."""
        from pyspark.sql import functions as F

        result = getattr(F, _CHECKED[symbol])(left, right)
        return F.coalesce(result, F.when(left.isNotNull() & right.isNotNull(), self._too_large()))

    def aggregate(self, part: ex.Aggregate) -> Column:
        from pyspark.sql import functions as F

        if part.of is None:
            return F.count(F.lit(1))
        column, kind = self.column(part.of)
        if part.kind == "count":
            return F.count(column)
        if kind is Kind.NULL:
            return F.max(column.cast("bigint"))
        ordered = part.kind in ("min", "max") and kind in (Kind.BOOLEAN, Kind.TEXT)
        if not ordered and kind not in (Kind.INTEGER, Kind.FLOAT):
            raise only_engine(
                self.node, f"Spark SQL has another result than Python for {part.kind} of {kind.value}"
            )
        if part.kind in ("min", "max"):
            result = F.min(column) if part.kind == "min" else F.max(column)
        elif kind is Kind.INTEGER:
            result = F.coalesce(F.try_sum(column), F.when(F.count(column) > 0, self._too_large()))
            if part.kind == "avg":
                result = F.try_divide(result, F.count(column))
        else:
            result = F.sum(column) if part.kind == "sum" else F.avg(column)
        return self._finite(column, result) if kind is Kind.FLOAT else result

    def _finite(self, column: Column, result: Column) -> Column:
        """The result, if it does not depend on the order of records. Otherwise the query ends with an error.

        In the engine, the smallest of NaN and another number is the earlier one. A table in JSON keeps null in place of
        NaN and infinity, and begins anew with the next record.
        """
        from pyspark.sql import functions as F

        def odd(of: Column) -> Column:
            return F.isnan(of) | (F.abs(of) == F.lit(float("inf"))) if self.finite else F.isnan(of)

        message = (
            f"{self.node.name}: a number to aggregate, or the result, is {'infinite or ' * self.finite}NaN, so the "
            f"result depends on the order of records: drop such rows, or use SparkRunner.batch"
        )
        bad = F.coalesce(F.max(odd(column)) | odd(result), F.lit(False))
        return F.when(bad, F.raise_error(message).cast("double")).otherwise(result)

    def _too_large(self) -> Column:
        from pyspark.sql import functions as F

        message = (
            f"{self.node.name}: an integer has more than 64 bits, and Spark SQL has no such integers. "
            "SparkRunner.batch computes with Python's integers"
        )
        return F.raise_error(message).cast("bigint")


_CHECKED: Mapping[str, str] = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
"""The functions of Spark that give null in place of an overflow."""


def _compared(symbol: str, left: Typed, right: Typed) -> Column:
    """A comparison in which NaN is unequal to every number, and neither smaller nor larger."""
    from pyspark.sql import functions as F

    operation: Callable[[Column, Column], Column] = ex.OPERATORS[symbol]
    result = operation(left.column, right.column)
    if {left.kind, right.kind} == {Kind.INTEGER, Kind.FLOAT}:
        result = _compared_exactly(operation, left, right, result)
    floats = [side.column for side in (left, right) if side.kind is Kind.FLOAT]
    if not floats:
        return result
    nan = F.isnan(floats[0]) if len(floats) == 1 else F.isnan(floats[0]) | F.isnan(floats[1])
    known = left.column.isNotNull() & right.column.isNotNull()
    return F.when(known & nan, F.lit(symbol == "!=")).otherwise(result)


def _compared_exactly(
    operation: Callable[[Column, Column], Column], left: Typed, right: Typed, result: Column
) -> Column:
    """The comparison of an integer with a float.

    Spark rounds the integer to a float, and may take unequal numbers as equal. The rounding can change the result only
    if the rounded integer equals the float. Such a float has no fraction, and is at most 2^63.
    """
    from pyspark.sql import functions as F

    integer, number = (left, right) if left.kind is Kind.INTEGER else (right, left)
    top = F.lit(float(_LARGEST))
    whole = F.when(number.column < top, number.column).cast("bigint")

    def ordered(one: Column, other: Column) -> Column:
        return operation(one, other) if integer is left else operation(other, one)

    exact = F.when(number.column >= top, ordered(F.lit(0), F.lit(1))).otherwise(
        ordered(integer.column.cast("bigint"), whole)
    )
    return F.when(integer.column.cast("double") == number.column.cast("double"), exact).otherwise(result)
