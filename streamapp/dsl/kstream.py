"""`KStream`: a stream of independent records.

The methods here are the face: signature and documentation. The builders in `stateless`, `asynchronous`, `joins` and
`stream_topics` check the arguments and add the nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, overload

from streamapp._base.callables import require_function
from streamapp._base.durations import Duration
from streamapp._base.names import check_name
from streamapp.dsl import asynchronous, joins, stateless, stream_topics
from streamapp.dsl.asynchronous import TIMEOUT, Calls
from streamapp.dsl.branched import BranchedKStream
from streamapp.dsl.context import Context
from streamapp.dsl.global_ktable import GlobalKTable
from streamapp.dsl.graph import Node
from streamapp.dsl.graph_nodes import Partitioner, ProcessorNode, RepartitionNode
from streamapp.dsl.grouped import KGroupedStream
from streamapp.dsl.joins import JoinCall
from streamapp.dsl.ktable import KTable
from streamapp.dsl.materialize import Materialized
from streamapp.dsl.steps import Fixed
from streamapp.dsl.stream import Described
from streamapp.dsl.stream_joins import StreamJoined
from streamapp.engine.asynchronous import Order
from streamapp.engine.operators.stateless import PassThrough
from streamapp.engine.processor import FixedKeyProcessor, Processor
from streamapp.errors import TopologyError
from streamapp.on_error import OnError
from streamapp.serdes.base import Serde
from streamapp.windows import JoinWindows

if TYPE_CHECKING:
    from streamapp.dsl.joined import JoinedKStream

__all__ = ["KStream"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VR = TypeVar("VR")


class KStream(Described[K, V]):
    """A stream of records with keys of type K and values of type V.

    Each method adds one operator and returns a new stream; the stream itself does not change and may be used any number
    of times. Keys and values may be None unless a method says otherwise; timestamps and headers stay with the record.
    No method makes a topic unless it says so. ``name`` names the operator (default: generated, as Kafka Streams does).
    ``on_error`` decides about a record for which the function raises (see `OnError`, docs/failures.md; default:
    ``processing_exception_handler`` of the configuration). Wrong arguments raise `TopologyError` at once. (Kafka
    Streams: ``KStream``.)

    >>> from streamapp.testing import try_out
    >>> try_out(lambda words: words.filter(lambda key, word: word > "m"), [("a", "now"), ("a", "here")])
    [('a', 'now')]
    """

    _hints: ClassVar[Mapping[str, str]] = {
        "count": "group first: stream.group_by_key().count()",
        "reduce": "group first: stream.group_by_key().reduce(reducer)",
        "aggregate": "group first: stream.group_by_key().aggregate(initializer, aggregator)",
        "windowed_by": "group first: stream.group_by_key().windowed_by(windows)",
        "through": "write stream.repartition() for an internal topic; for one of yours, to(topic) and "
        "builder.stream(topic)",
        "transform": "write stream.process(supplier)",
        "transform_values": "write stream.process_values(supplier)",
        "for_each": "write stream.foreach(action)",
        "sink": "write stream.to(topic)",
    }

    def __init__(
        self,
        context: Context,
        name: str,
        node: Node,
        sources: frozenset[str],
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        *,
        repartition_required: bool = False,
    ) -> None:
        super().__init__(context, name, node, sources, key_serde, value_serde)
        self.repartition_required = repartition_required
        """True if the key may have changed, so that a grouping or join needs a repartition topic first."""
        self._repartitioned: RepartitionNode | None = None

    # ------------------------------------------------------------------ one record at a time

    def filter(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K, V]:
        """Keeps the records for which ``predicate(key, value)`` holds; null keys and values are given to it.
        (``KStream.filter``)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda delays: delays.filter(lambda flight, delay: delay > 15), [("UA1", 20), ("UA2", 3)])
        [('UA1', 20)]
        """
        return stateless.filtered(self, predicate, name, on_error)

    def filter_not(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K, V]:
        """Drops the records for which ``predicate(key, value)`` holds. (``KStream.filterNot``)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda delays: delays.filter_not(lambda flight, delay: delay > 15), [("UA1", 20), ("UA2", 3)])
        [('UA2', 3)]
        """
        return stateless.filtered(self, predicate, name, on_error, negate=True)

    def map(
        self, fn: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K2, V2]:
        """One new (key, value) pair for each record, with its timestamp and headers. (``KStream.map``)

        The key may change, so a later grouping or join goes through a repartition topic; see `map_values`.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda flights: flights.map(lambda tail, origin: (origin, tail)), [("N1", "JFK")])
        [('JFK', 'N1')]
        """
        return stateless.mapped(self, fn, name, on_error)

    @overload
    def map_values(
        self,
        fn: Callable[[V], V2],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self,
        fn: Callable[[K, V], V2],
        *,
        with_key: Literal[True],
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    def map_values(
        self,
        fn: Callable[..., V2],
        *,
        with_key: bool = False,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]:
        """One new value for each record: ``fn(value)``, or ``fn(key, value)``; called for None too.

        Prefer it to `map`: the key stays, so that nothing has to be repartitioned. (``KStream.mapValues``)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda words: words.map_values(len), [("a", "to be"), ("b", "or")])
        [('a', 5), ('b', 2)]
        >>> try_out(lambda words: words.map_values("{}: {}".format, with_key=True), [("a", "to be")])
        [('a', 'a: to be')]
        """
        return stateless.with_values_mapped(self, fn, with_key, name, on_error)

    def flat_map(
        self,
        fn: Callable[[K, V], Iterable[tuple[K2, V2]]],
        *,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K2, V2]:
        """Any number of (key, value) pairs for each record, all with its timestamp and headers. (``KStream.flatMap``)

        The key may change, so a later grouping or join goes through a repartition topic; see `flat_map_values`.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda lines: lines.flat_map(lambda key, line: [(word, 1) for word in line.split()]),
        ...     [("a", "to be")])
        [('to', 1), ('be', 1)]
        """
        return stateless.flat_mapped(self, fn, name, on_error)

    @overload
    def flat_map_values(
        self,
        fn: Callable[[V], Iterable[V2]],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self,
        fn: Callable[[K, V], Iterable[V2]],
        *,
        with_key: Literal[True],
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    def flat_map_values(
        self,
        fn: Callable[..., Iterable[V2]],
        *,
        with_key: bool = False,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]:
        """Any number of values for each record, all with its key. (``KStream.flatMapValues``)

        >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> builder.stream("lines", key_serde=text, value_serde=text).flat_map_values(str.split).to(
        ...     "words", value_serde=text)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("lines", text, text).pipe_input("a", "to be")
        ...     driver.create_output_topic("words", text, text).read_key_values()
        [('a', 'to'), ('a', 'be')]
        """
        return stateless.with_values_flat_mapped(self, fn, with_key, name, on_error)

    def select_key(
        self, fn: Callable[[K, V], K2], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K2, V]:
        """A new key for each record. (``KStream.selectKey``)

        A later grouping or join goes through a repartition topic. This topic drops records without key, unless a left
        or outer join reads them (KIP-962).

        >>> from streamapp.testing import try_out
        >>> try_out(lambda flights: flights.select_key(lambda tail, flight: flight["to"]), [("N1", {"to": "JFK"})])
        [('JFK', {'to': 'JFK'})]
        """
        return stateless.with_key_selected(self, fn, name, on_error)

    def peek(
        self, fn: Callable[[K, V], object], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K, V]:
        """Calls ``fn(key, value)`` with each record in passing, for its side effect. (``KStream.peek``)

        The function is called again for records that are processed again after a failure.

        >>> from streamapp.testing import try_out
        >>> _ = try_out(lambda words: words.peek(print), [("a", "to be")])
        a to be
        """
        return stateless.peeked(self, fn, name, on_error)

    def foreach(
        self, fn: Callable[[K, V], object], *, name: str | None = None, on_error: OnError | None = None
    ) -> None:
        """Calls ``fn(key, value)`` with each record, as the last operator. (``KStream.foreach``)

        The function is called again for records that are processed again after a failure.

        >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> builder.stream("words", key_serde=text, value_serde=text).foreach(print)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("words", text, text).pipe_input("a", "to be")
        a to be
        """
        stateless.foreach(self, fn, name, on_error)

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        *store_names: str,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K2, V2]:
        """Runs a `Processor` of its own for each task, with the named stores. (``KStream.process``, KIP-820)

        ``supplier`` is its class, or a function that returns a new one each time. Stores are named here or brought
        along by the attribute ``stores`` of the supplier or the processor. The processor may change the key, so a later
        grouping or join repartitions.

        >>> from streamapp import Processor, Record
        >>> from streamapp.testing import try_out
        >>> class Twice(Processor):
        ...     def process(self, record: Record) -> None:
        ...         self.context.forward(record)
        ...         self.context.forward(record.with_value(record.value + 1))
        >>> try_out(lambda numbers: numbers.process(Twice), [("a", 1)])
        [('a', 1), ('a', 2)]
        """
        return stateless.processed(self, supplier, store_names, name, on_error)

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V2]],
        *store_names: str,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]:
        """Runs a `FixedKeyProcessor` of its own for each task, with the named stores. (``KStream.processValues``,
        KIP-820)

        The processor has to keep the key (`StreamsError` if it forwards another), so nothing has to be repartitioned.

        >>> from streamapp import FixedKeyProcessor, Record
        >>> from streamapp.testing import try_out
        >>> class Negative(FixedKeyProcessor):
        ...     def process(self, record: Record) -> None:
        ...         self.context.forward(record.with_value(-record.value))
        >>> try_out(lambda numbers: numbers.process_values(Negative), [("a", 1)])
        [('a', -1)]
        """
        return stateless.with_values_processed(self, supplier, store_names, name, on_error)

    # ------------------------------------------------------------------ coroutines

    def map_async(
        self,
        fn: Callable[[K, V], Awaitable[tuple[K2, V2]]],
        *,
        concurrency: int = 16,
        order: Order = "key",
        timeout: Duration = TIMEOUT,
        on_timeout: Callable[[K, V], tuple[K2, V2]] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K2, V2]:
        """One new (key, value) pair for each record, from a coroutine; grouping or joining repartitions.

        As `map_values_async`, which is to be preferred when the key stays.

        >>> from streamapp.testing import try_out
        >>> async def swapped(tail, origin):
        ...     return origin, tail
        >>> try_out(lambda flights: flights.map_async(swapped), [("N1", "JFK")])
        [('JFK', 'N1')]
        """
        calls = Calls(concurrency, order, timeout, on_timeout, on_error)
        return asynchronous.mapped(self, fn, calls, name)

    @overload
    def map_values_async(
        self,
        fn: Callable[[V], Awaitable[V2]],
        *,
        with_key: Literal[False] = False,
        concurrency: int = 16,
        order: Order = "key",
        timeout: Duration = TIMEOUT,
        on_timeout: Callable[[V], V2] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_values_async(
        self,
        fn: Callable[[K, V], Awaitable[V2]],
        *,
        with_key: Literal[True],
        concurrency: int = 16,
        order: Order = "key",
        timeout: Duration = TIMEOUT,
        on_timeout: Callable[[K, V], V2] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]: ...
    def map_values_async(
        self,
        fn: Callable[..., Awaitable[V2]],
        *,
        with_key: bool = False,
        concurrency: int = 16,
        order: Order = "key",
        timeout: Duration = TIMEOUT,
        on_timeout: Callable[..., V2] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, V2]:
        """One new value for each record, from a coroutine: ``await fn(value)``, or ``await fn(key, value)``.

        On a worker the coroutines run on Faust's event loop, up to ``concurrency`` records of each partition at a time.
        A partition with a full step waits, and the other partitions go on. Calls overlap, also calls of one key.
        Results come out in the order of the records: of each key (``order="key"``) or of the partition
        (``order="partition"``). With ``order="key"`` a slow record delays only its key. A commit waits until all
        earlier records have come out. After a crash, some calls are made again, under every guarantee.

        A call that takes longer than ``timeout`` is cancelled; its result is then ``on_timeout(value)`` (or of key and
        value), or without that a ``TimeoutError``. Exceptions are handled as those of every other step (``on_error``,
        or `StreamsConfig.processing_exception_handler`). Timestamps and headers stay; None is a value, and nothing is
        dropped. Stream time is that of the records that came in. Beyond Kafka Streams; Spark refuses it.

        >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
        >>> async def greet(name: str) -> str:
        ...     return f"hello {name}"
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> builder.stream("names", key_serde=text, value_serde=text).map_values_async(greet).to("out",
        ...     value_serde=text)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("names", text, text).pipe_input("k", "world")
        ...     driver.create_output_topic("out", text, text).read_key_value()
        ('k', 'hello world')
        """
        calls = Calls(concurrency, order, timeout, on_timeout, on_error)
        return asynchronous.with_values_mapped(self, fn, with_key, calls, name)

    # ------------------------------------------------------------------ joins

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        stream_joined: StreamJoined | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
        on_error: OnError | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        stream_joined: StreamJoined | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
        on_error: OnError | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], VR],
        *,
        with_key: Literal[False] = False,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2], VR],
        *,
        with_key: Literal[True],
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[V, V2], VR],
        *,
        with_key: Literal[False] = False,
        key_selector: Callable[[K, V], K2],
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[K2, V, V2], VR],
        *,
        with_key: Literal[True],
        key_selector: Callable[[K, V], K2],
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, VR]: ...
    def join(
        self,
        other: KStream[K, V2] | KTable[K, V2] | GlobalKTable[Any, V2],
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        stream_joined: StreamJoined | None = None,
        key_selector: Callable[[K, V], Any] | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, Any]:
        """Joins each record with matching ones of another stream, or with a row of a table.

        ``joiner(left, right)``, or ``joiner(key, left, right)`` if ``with_key``, makes the result's value. The result
        keeps the key.

        - With a stream: all pairs with the same key that are as close in time as ``windows`` says. The result has the
          larger
          timestamp. Two window stores with changelogs; ``stream_joined`` names the join and its stores.
        - With a table: the row of the same key when the record is processed. With ``grace`` (for versioned tables,
          KIP-923), records wait for this time and are joined with the row as of their timestamp. Records without key
          are then an error. Updates of the table cause no
          results; a result has the record's timestamp.
        - With a global table: the row of ``key_selector(key, value)``; nothing has to be co-partitioned.

        Records without key, value or match are dropped; those without key or value are counted. Where the key may have
        changed, a repartition topic comes first. Late records: see `JoinedKStream.late_records`. (``KStream.join``)

        ``on_error`` answers for the joiner and the key selector. A `Retry` is for look-ups in tables without grace,
        and looks the row up again. A join of streams leaves out all pairs of the record; only inner joins
        take ``on_error``.

        >>> from streamapp import JoinWindows
        >>> from streamapp.testing import try_out
        >>> near = JoinWindows.of_time_difference_with_no_grace(10)
        >>> def pairs(clicks, views):
        ...     return clicks.join(views, "{} on {}".format, near)
        >>> try_out(pairs, [("ann", "buy", 5), ("bob", "buy", 5)], [("ann", "home", 8), ("bob", "home", 99)])
        [('ann', 'buy on home')]
        >>> def enriched(gates, flights):
        ...     return flights.join(gates.to_table(), lambda tail, flight, gate: f"{tail}: {flight} at {gate}",
        ...     with_key=True)
        >>> try_out(enriched, [("N1", "A4")], [("N1", "UA1"), ("N2", "UA2")])
        [('N1', 'N1: UA1 at A4')]
        """
        call = JoinCall(
            "inner",
            joiner,
            with_key=with_key,
            windows=windows,
            stream_joined=stream_joined,
            key_selector=key_selector,
            key_serde=key_serde,
            value_serde=value_serde,
            other_value_serde=other_value_serde,
            grace=grace,
            name=name,
            on_error=on_error,
        )
        return joins.joined(self, other, call)

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2 | None], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        stream_joined: StreamJoined | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
        on_error: OnError | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2 | None], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        stream_joined: StreamJoined | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
        on_error: OnError | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], VR],
        *,
        with_key: Literal[False] = False,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2 | None], VR],
        *,
        with_key: Literal[True],
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[V, V2 | None], VR],
        *,
        with_key: Literal[False] = False,
        key_selector: Callable[[K, V], K2],
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[K2, V, V2 | None], VR],
        *,
        with_key: Literal[True],
        key_selector: Callable[[K, V], K2],
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, VR]: ...
    def left_join(
        self,
        other: KStream[K, V2] | KTable[K, V2] | GlobalKTable[Any, V2],
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        stream_joined: StreamJoined | None = None,
        key_selector: Callable[[K, V], Any] | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, Any]:
        """As `join`, but records without key or match are kept: the joiner gets None for the right side.
        (``KStream.leftJoin``, KIP-962)

        With a stream, a record without match comes out when its window is closed (timestamp + window + grace < stream
        time), with its own timestamp. A record without key comes out at once. With a table, at once. Records without
        value are dropped and counted.

        >>> from streamapp.testing import try_out
        >>> def enriched(gates, flights):
        ...     return flights.left_join(gates.to_table(), "{} at {}".format)
        >>> try_out(enriched, [("N1", "A4")], [("N1", "UA1"), ("N2", "UA2")])
        [('N1', 'UA1 at A4'), ('N2', 'UA2 at None')]
        """
        call = JoinCall(
            "left",
            joiner,
            with_key=with_key,
            windows=windows,
            stream_joined=stream_joined,
            key_selector=key_selector,
            key_serde=key_serde,
            value_serde=value_serde,
            other_value_serde=other_value_serde,
            grace=grace,
            name=name,
            on_error=on_error,
        )
        return joins.joined(self, other, call)

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V | None, V2 | None], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        stream_joined: StreamJoined | None = None,
        on_error: OnError | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V | None, V2 | None], VR],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        stream_joined: StreamJoined | None = None,
        on_error: OnError | None = None,
    ) -> JoinedKStream[K, VR, V, V2]: ...
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[..., Any],
        windows: JoinWindows,
        *,
        with_key: bool = False,
        stream_joined: StreamJoined | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, Any]:
        """As `join` with a stream, but the records of both sides are kept. (``KStream.outerJoin``, KIP-962)

        Records without match come out with None for the other side when their window is closed. Records without key
        come out at once.

        >>> from streamapp import JoinWindows
        >>> from streamapp.testing import try_out
        >>> near = JoinWindows.of_time_difference_with_no_grace(10)
        >>> def pairs(clicks, views):
        ...     return clicks.outer_join(views, "{} on {}".format, near)
        >>> try_out(pairs, [("ann", "buy", 5)], [("bob", "home", 8), ("eve", "home", 99)])
        [('ann', 'buy on None'), ('bob', 'None on home')]
        """
        call = JoinCall(
            "outer",
            joiner,
            with_key=with_key,
            windows=windows,
            stream_joined=stream_joined,
            on_error=on_error,
        )
        return joins.joined(self, other, call)

    # ------------------------------------------------------------------ several streams

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams, in no particular order between them. (``KStream.merge``)

        Serdes are kept if both streams have the same. The merge repartitions nothing; a later step does if either key
        may have changed.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda one, two: one.merge(two), [("a", 1)], [("b", 2)])
        [('a', 1), ('b', 2)]
        """
        if not isinstance(other, KStream):
            raise TopologyError(
                f"{self.name} merges with a KStream, not {other!r}; turn a table into one with to_stream()"
            )
        self._same_builder(other)
        node_name = self._context.names.given_or_new(name, "KSTREAM-MERGE-")
        node = ProcessorNode(node_name, Fixed(PassThrough()), merge=True)
        self._context.graph.add(node, self._node, other._node)
        return KStream(
            self._context,
            node_name,
            node,
            self._sources | other._sources,
            self.key_serde if self.key_serde is other.key_serde else None,
            self.value_serde if self.value_serde is other.value_serde else None,
            repartition_required=self.repartition_required or other.repartition_required,
        )

    def split(self, name: str | None = None, *, on_error: OnError | None = None) -> BranchedKStream[K, V]:
        """Begins to split the stream into branches. (``KStream.split``)

        ``on_error`` is for what the predicates raise.

        >>> from streamapp import StreamsBuilder, StringSerde
        >>> text = StringSerde()
        >>> flights = StreamsBuilder().stream("flights", key_serde=text, value_serde=text)
        >>> sorted(flights.split("by-").branch(lambda k, v: v == "late", "late").default_branch("other"))
        ['by-late', 'by-other']
        """
        return BranchedKStream(self, name, on_error)

    # ------------------------------------------------------------------ topics, tables and groups

    def to(
        self,
        topic: str | Callable[[K, V, Any], str],
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> None:
        """Writes the records to a topic, or to the topic that ``topic(key, value, context)`` names for each.

        ``context`` is a `RecordContext`. ``partitioner(topic, key, value, partitions)`` may choose the partition; None
        leaves it to the key's bytes, as Kafka's default partitioner does. Windowed keys go by the key without its
        window. A result that the serdes do not take is for ``on_error`` (default: ``production_exception_handler``).
        The topic has to exist. (``KStream.to``)

        >>> from streamapp import StreamsBuilder, StringSerde, TopologyTestDriver
        >>> text, builder = StringSerde(), StreamsBuilder()
        >>> flights = builder.stream("flights", key_serde=text, value_serde=text)
        >>> flights.to(lambda tail, origin, context: f"flights-{origin}")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("flights", text, text).pipe_input("N1", "JFK")
        ...     driver.create_output_topic("flights-JFK", text, text).read_key_value()
        ('N1', 'JFK')
        """
        stream_topics.written(self, topic, key_serde, value_serde, partitioner, name, on_error)

    def repartition(
        self,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Sends the records through an internal topic, ``<application id>-<name>-repartition``, by their key.

        ``partitions``: how many it has (default: as many as its input). The following operators are a sub-topology, and
        a task, of their own. Records without key are dropped unless a left or outer join reads them.
        (``KStream.repartition``, KIP-221)

        >>> from streamapp import StreamsBuilder, StringSerde
        >>> builder, text = StreamsBuilder(), StringSerde()
        >>> flights = builder.stream("flights", key_serde=text, value_serde=text)
        >>> flights.repartition(name="spread", partitions=8).to("out")
        >>> [(topic.name, topic.partitions) for topic in builder.build().plan().internal_topics]
        [('streamapp-spread-repartition', 8)]
        """
        return stream_topics.repartitioned(self, key_serde, value_serde, partitions, partitioner, name)

    def to_table(
        self,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The stream as a table: each record updates the row of its key, None deletes it.

        Records without key are dropped and counted. The table has a store with a changelog if ``materialized`` names
        one, or if a join or grouping needs it. If the key may have changed, a repartition topic comes first.
        (``KStream.toTable``, KIP-523)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda gates: gates.to_table(), [("A1", "open"), (None, "lost"), ("A1", None)])
        [('A1', 'open'), ('A1', None)]
        """
        return stream_topics.as_table(self, key_serde, value_serde, materialized, name)

    def group_by_key(
        self,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K, V]:
        """Groups by the key, to be aggregated. (``KStream.groupByKey``)

        Where the key may have changed before, the aggregation reads a repartition topic, which ``name`` names.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda flights: flights.group_by_key().count(), [("UA", 1), ("DL", 1), ("UA", 1)])
        [('UA', 1), ('DL', 1), ('UA', 2)]
        """
        if name is not None:
            check_name(name)
        return KGroupedStream(
            self._context,
            self.name,
            self._node,
            self._sources,
            key_serde or self.key_serde,
            value_serde or self.value_serde,
            repartition_required=self.repartition_required,
            repartition_name=name,
        )

    def group_by(
        self,
        fn: Callable[[K, V], K2],
        *,
        key_serde: Serde[K2] | None = None,
        value_serde: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]:
        """Groups by a new key ``fn(key, value)``, through a repartition topic that ``name`` names.
        (``KStream.groupBy``)

        Records that get None as their key are dropped.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda words: words.group_by(lambda key, word: word[0]).count(),
        ...     [("k", "to"), ("k", "the"), ("k", "be")])
        [('t', 1), ('t', 2), ('b', 1)]
        """
        require_function(
            fn, f"group_by() of {self.name}", "a function of key and value that returns the new key", 2
        )
        return self.select_key(fn, name=name).group_by_key(
            key_serde=key_serde, value_serde=value_serde, name=name
        )
