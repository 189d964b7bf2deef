"""Late records as a stream. Windowed aggregations drop records of closed windows, and joins of two streams miss pairs.
With this stream, an application can process such records in another way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streamapp.dsl.graph import Node
from streamapp.dsl.graph_nodes import LateNode
from streamapp.dsl.ktable import KTable
from streamapp.dsl.steps import AggregateStep, StreamJoinStep
from streamapp.dsl.stream import Described
from streamapp.errors import TopologyError
from streamapp.records import Windowed
from streamapp.serdes.base import Serde

if TYPE_CHECKING:
    from streamapp.dsl.kstream import KStream

__all__ = ["WindowedKTable", "late_stream"]

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")

Giver = tuple[str, Node, AggregateStep | StreamJoinStep]
"""An operator with a second output, for late records: its name, its node, and its step."""


def late_stream(
    operator: Described[Any, Any],
    name: str | None,
    givers: Sequence[Giver],
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> KStream[Any, Any]:
    """The stream of the late records of one operator or of several operators. Each operator has at most one such
    stream."""
    for _, _, step in givers:
        if step.late is not None:
            raise TopologyError(
                f"the late records of {operator.name} are a stream already, {step.late}; keep it and use it again"
            )
    context = operator._context
    node = LateNode(context.names.given_or_new(name, "KSTREAM-LATE-"), [giver for giver, _, _ in givers])
    for _, _, step in givers:
        step.late = node.name
    context.graph.add(node, *dict.fromkeys(parent for _, parent, _ in givers))
    return context.faces.stream(context, node.name, node, operator._sources, key_serde, value_serde)


class WindowedKTable(KTable[Windowed[K], VA], Generic[K, V, VA]):
    """The table of a windowed aggregation, with rows by key and window (`Windowed`).

    `late_records` gives the records that came too late for their window.

    >>> from streamapp import TimeWindows
    >>> from streamapp.testing import try_out
    >>> tens = TimeWindows.of_size_with_no_grace(10)
    >>> records = [("ann", "in time", 25), ("ann", "late", 3)]
    >>> try_out(lambda clicks: clicks.group_by_key().windowed_by(tens).count().late_records(), records)
    [('ann', 'late')]
    """

    _givers: Sequence[Giver]
    _late_serdes: tuple[Serde[Any] | None, Serde[Any] | None]

    def _takes_late(
        self,
        aggregations: Sequence[tuple[Node, AggregateStep]],
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
    ) -> WindowedKTable[K, V, VA]:
        self._givers = [(node.name, node, step) for node, step in aggregations]
        self._late_serdes = key_serde, value_serde
        return self

    def late_records(self, *, name: str | None = None) -> KStream[K, V]:
        """The records that came after a window to which they belong was closed.

        Each record comes out of this stream once and unchanged (key, value, timestamp, headers). A record comes out
        even if only some of its hopping or sliding windows are closed. Records without a key, and for sliding windows
        also records without a value, never count as late. The metric ``dropped_records`` counts late records, too.
        A second call raises `TopologyError`. Kafka Streams has only this count, and no such stream.

        >>> from streamapp import LongSerde, StreamsBuilder, StringSerde, TimeWindows, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> flights = builder.stream("flights", key_serde=text, value_serde=text)
        >>> departures = flights.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
        >>> departures.late_records(name="late").to("late-flights")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     topic = driver.create_input_topic("flights", text, text)
        ...     topic.pipe_input("JFK", "UA1", timestamp=5)
        ...     topic.pipe_input("JFK", "UA2", timestamp=25)
        ...     topic.pipe_input("JFK", "UA3", timestamp=9)
        ...     driver.create_output_topic("late-flights", text, text).read_key_values()
        [('JFK', 'UA3')]
        """
        return late_stream(self, name, self._givers, *self._late_serdes)
