"""Tables that Spark computes on columns, without the engine, for topologies whose functions are expressions.

Such a topology reads a `ColumnSource`, and has filters and new keys by `Expression`, grouping, and a count or
`Aggregates`.
Windows, if any, are tumbling or hopping.

The records of a `ColumnSource` are in the order of time, so no record is late. Only the final contents of the table are
wanted, and no updates. Spark computes such sums by key many times faster than the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamapp import expressions as ex
from streamapp.config import StreamsConfig
from streamapp.dsl.aggregation import add_one
from streamapp.engine.operators.aggregate import StreamAggregate
from streamapp.engine.operators.aligned_windows import WindowAggregate
from streamapp.engine.operators.stateless import DropNullKeys, Filter, PassThrough, SelectKey
from streamapp.errors import StreamsError
from streamapp.runners.spark.columns import ColumnSource
from streamapp.runners.spark.expression_columns import Kind, Translation, Typed, kind_of, only_engine
from streamapp.runners.spark.given_columns import milliseconds, named
from streamapp.serdes import JsonSerde
from streamapp.state.kinds import Table, TimestampedWindow
from streamapp.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from streamapp.topology.plan import Plan
from streamapp.windows import TimeWindows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["native_table"]


def native_table(plan: Plan, name: str, source: ColumnSource) -> DataFrame:
    """The contents of a table, with the columns of `OutputTable.typed` except ``partition``.

    The value is a number (count) or a struct (`Aggregates`).

    - `UnsupportedOperation`: only the engine can compute an operator, which the error names.
    - `StreamsError`: the table or a column is unknown, or the rows span at least the retention of the windows. The span
      goes from the start of the first window to the time of the last row.
    """
    from pyspark.sql import functions as F

    nodes = {node.name: node for sub in plan.subtopologies for node in sub.nodes}
    owners = [n for n in nodes.values() if isinstance(n, ProcessorNode) and name in n.stores]
    if not owners:
        known = ", ".join(spec.name for sub in plan.subtopologies for spec in sub.stores)
        raise StreamsError(f"there is no table {name}; the topology has {known or 'none'}")
    aggregate = owners[0]
    operator = aggregate.operator
    if not isinstance(operator, StreamAggregate | WindowAggregate):
        raise only_engine(aggregate, "it is no count or aggregate of a stream")
    spec = plan.store_subtopology[name].store(name)
    kind = spec.kind
    if kind.drops_rows or not isinstance(kind, Table | TimestampedWindow):
        raise only_engine(aggregate, "its store drops rows, or keeps their versions")
    steps, begin = _upstream(aggregate, nodes)
    source.check(begin.topics[0])
    if source.corrupt is not None:
        raise only_engine(aggregate, "the error policy decides about rows that could not be parsed")
    rows = _with_time(source, begin, plan.config)
    fields = _fields(source, rows, begin)
    key = Typed(F.lit(None).cast("string"), Kind.NULL)
    if source.key is not None:
        key = Typed(named(source.key), kind_of(rows.schema[source.key].dataType))
    keep = F.lit(True)
    for step in reversed(steps):
        translation = Translation(step, key, fields)
        match step.operator:
            case Filter(predicate=ex.Expression() as predicate, negate=negate):
                holds = translation.condition(predicate)
                keep = keep & F.coalesce(~holds if negate else holds, F.lit(negate))
            case SelectKey(mapper=ex.Expression() as mapper):
                key = translation.column(mapper)
                if key.kind is Kind.OTHER:
                    raise only_engine(step, f"its keys are {key.kind.value}")
            case PassThrough() | DropNullKeys():
                pass
            case _:
                raise only_engine(
                    step, "it has a Python function, and Spark SQL needs an expression in its place"
                )
    if key.kind is Kind.FLOAT:
        raise only_engine(aggregate, "its keys are floats, and Spark SQL takes 0.0 and -0.0 as one key")
    if isinstance(source.value, str):
        keep = keep & named(source.value).isNotNull()
    chosen = rows.where(keep & key.column.isNotNull())
    finite = isinstance(spec.value_serde, JsonSerde)
    parts = _aggregates(aggregate, operator.aggregator, Translation(aggregate, key, fields, finite))
    time = milliseconds(source.frame, source.timestamp)
    timestamp = F.timestamp_millis(F.max(time)).alias("timestamp")
    value = parts["value"] if operator.aggregator is add_one else F.struct(*parts.values())
    if not isinstance(kind, TimestampedWindow):
        return chosen.groupBy(key.column.alias("key")).agg(value.alias("value"), timestamp)
    return _windowed(chosen, aggregate, key.column, time, value, timestamp, kind.retention_ms)


def _with_time(source: ColumnSource, node: SourceNode, config: StreamsConfig) -> DataFrame:
    """The rows of a source that have a time. For the other rows, the answer is that of a batch.

    A row is dropped if the answer is "skip", or "continue" without a dead-letter topic. For all other answers, the
    query over the rows ends with an error, because Spark SQL makes no dead letter and calls no handler.
    """
    from pyspark.sql import functions as F

    time = milliseconds(source.frame, source.timestamp)
    timed = F.coalesce(time >= 0, F.lit(False))
    answer = node.on_error or config.deserialization_exception_handler
    if answer == "skip" or (answer == "continue" and config.dead_letter_queue_topic is None):
        return source.frame.where(timed)
    message = F.concat(
        F.lit(f"{node.name}: a row for {node.topics[0]} is no record: the row has the time "),
        F.coalesce(time.cast("string"), F.lit("None")),
        F.lit(
            '. Set deserialization_exception_handler to "skip" to drop such rows. SparkRunner.batch also makes dead '
            "letters of them, and asks handlers"
        ),
    )
    return source.frame.where(F.when(timed, F.lit(True)).otherwise(F.raise_error(message)))


def _windowed(
    rows: DataFrame,
    node: ProcessorNode,
    key: Column,
    time: Column,
    value: Column,
    timestamp: Column,
    retention_ms: int,
) -> DataFrame:
    from pyspark.sql import functions as F

    windows = node.operator.windows
    if not isinstance(windows, TimeWindows):
        raise only_engine(node, "its windows are neither tumbling nor hopping")
    size, advance = windows.size_ms, windows.advance_ms
    last = time - F.pmod(time, F.lit(advance))
    if size > advance:
        first = F.greatest(F.lit(0), last - F.lit((size - 1) // advance * advance))
        starts = F.explode(F.sequence(first, last, F.lit(advance).cast("bigint")))
        rows = rows.withColumn("_start", starts).where(F.col("_start") + F.lit(size) > time)
    else:
        rows = rows.withColumn("_start", last)
    span = rows.agg(F.min("_start"), F.max(time)).collect()[0]
    if span[0] is not None and span[0] <= span[1] - retention_ms:
        raise StreamsError(
            f"{node.name}: the rows span {span[1] - span[0]:,} ms, but the table keeps windows for {retention_ms:,} "
            "ms. The engine's order would decide which old windows are left: give the table a longer retention, or "
            "fewer rows"
        )
    start, end = F.col("_start"), F.col("_start") + F.lit(size)
    grouped = rows.groupBy(key.alias("key"), start.alias("_start")).agg(value.alias("value"), timestamp)
    return grouped.select(
        "key",
        "value",
        F.timestamp_millis(start).alias("window_start"),
        F.timestamp_millis(end).alias("window_end"),
        "timestamp",
    )


def _upstream(node: ProcessorNode, nodes: dict[str, Node]) -> tuple[list[ProcessorNode], SourceNode]:
    """The steps before a node, through repartition topics, nearest first; and the source node at their beginning."""
    steps: list[ProcessorNode] = []
    at: Node = node
    while True:
        if len(at.parents) > 1:
            raise only_engine(at, "several streams come together in it")
        if isinstance(at, SourceNode):
            if at.timestamp_extractor is not None and not _internal(at, nodes):
                raise only_engine(at, "it takes the times of records from a Python function")
            writers = [n for n in nodes.values() if isinstance(n, SinkNode) and n.topic in at.topics]
            if len(at.topics) != 1 or len(writers) > 1:
                raise only_engine(at, "several streams come together in it")
            if not writers:
                return steps, at
            at = writers[0]
            continue
        at = nodes[at.parents[0]]
        if isinstance(at, ProcessorNode):
            steps.append(at)


def _internal(source: SourceNode, nodes: dict[str, Node]) -> bool:
    return any(isinstance(n, SinkNode) and n.topic in source.topics for n in nodes.values())


def _aggregates(node: ProcessorNode, aggregator: Any, translation: Translation) -> dict[str, Column]:
    from pyspark.sql import functions as F

    if aggregator is add_one:
        return {"value": F.count("*")}
    if not isinstance(aggregator, ex.Aggregates):
        raise only_engine(node, "it aggregates with a Python function, and Spark SQL needs Aggregates(...)")
    return {name: translation.aggregate(part).alias(name) for name, part in aggregator.parts.items()}


def _fields(source: ColumnSource, rows: DataFrame, node: SourceNode) -> dict[str, Typed]:
    """The fields of a value, as the serde of the source leaves them."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    found = {name: (named(name), rows.schema[name].dataType) for name in source.value_columns}
    if isinstance(source.value, str):
        column, type_ = found[source.value]
        inner = type_.fields if isinstance(type_, StructType) else []
        found = {field.name: (column[field.name], field.dataType) for field in inner}
    fields = {}
    for name, (column, type_) in found.items():
        kind = kind_of(type_)
        if kind is Kind.FLOAT:
            column = column.cast("double")
            if isinstance(node.value_serde, JsonSerde):  # JSON has null in place of NaN and infinity
                column = F.when(~F.isnan(column) & (F.abs(column) != F.lit(float("inf"))), column)
        fields[name] = Typed(column, kind)
    return fields
