"""`KStream`: a stream of independent records.

This module has only the signatures and the documentation of the methods. The functions in `stateless`, `asynchronous`,
`joins` and `stream_topics` check the arguments and add the nodes.
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
from streamapp.dsl.graph_nodes import ProcessorNode, RepartitionNode
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
from streamapp.topology.nodes import Partitioner
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
    """A stream of records with keys of type K and values of type V. (Kafka Streams: ``KStream``.)

    Most methods add one operator and return a new stream. The stream itself does not change, so several operators may
    read the same stream. Keys and values may be None unless a method says otherwise. A result has the timestamp and the
    headers of its record, unless a method says otherwise. A method creates a topic or a store only if its documentation
    says so, or for a `Retry`.

    ``name`` is the name of the operator (default: a generated name, the same as in Kafka Streams). ``on_error`` decides
    about a record for which the function raises: an `OnError`, see docs/failures.md. Its default is
    ``processing_exception_handler`` of the configuration. ``key_serde`` and ``value_serde`` encode the records in the
    topic or store of a method; the default is the stream's serdes, then those of the configuration. ``materialized``
    has the settings of a table's store (`Materialized`).

    Wrong arguments raise `TopologyError` or `ConfigError` at once. `StreamsBuilder.build` finds the other mistakes, for
    example a name that is used twice.

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
        """True if an operator may have changed the key. A record may then be outside of the partition of its key, so a
        grouping or join first sends the records through a repartition topic."""
        self._repartitioned: RepartitionNode | None = None

    # ------------------------------------------------------------------ one record at a time

    def filter(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K, V]:
        """Keeps the records for which ``predicate(key, value)`` is true. (``KStream.filter``)

        The predicate is also called for null keys and null values.

        >>> from streamapp.testing import try_out
        >>> try_out(lambda delays: delays.filter(lambda flight, delay: delay > 15), [("UA1", 20), ("UA2", 3)])
        [('UA1', 20)]
        """
        return stateless.filtered(self, predicate, name, on_error)

    def filter_not(
        self, predicate: Callable[[K, V], bool], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K, V]:
        """Drops the records for which ``predicate(key, value)`` is true. (``KStream.filterNot``)

        >>> from streamapp.testing import try_out
        >>> try_out(lambda delays: delays.filter_not(lambda flight, delay: delay > 15), [("UA1", 20), ("UA2", 3)])
        [('UA2', 3)]
        """
        return stateless.filtered(self, predicate, name, on_error, negate=True)

    def map(
        self, fn: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K2, V2]:
        """Replaces key and value of each record by the pair that ``fn(key, value)`` returns. (``KStream.map``)

        Because the key may change, a later grouping or join needs a repartition topic. If the key stays, use
        `map_values`, which needs none.

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
        """Replaces the value of each record by ``fn(value)``, or with ``with_key`` by ``fn(key, value)``.
        (``KStream.mapValues``)

        The function is also called for null values. The key stays, so unlike `map`, this operator gives later
        groupings and joins no repartition topic.

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
        """Replaces each record by the (key, value) pairs that ``fn(key, value)`` returns. (``KStream.flatMap``)

        If the function returns no pairs, the record gives no result. Because the key may change, a later grouping or
        join needs a repartition topic. If the key stays, use `flat_map_values`, which needs none.

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
        """Turns each record into several with the same key: one for each value that ``fn(value)`` returns.
        (``KStream.flatMapValues``)

        With ``with_key`` the call is ``fn(key, value)``.

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
        """Replaces the key of each record by ``fn(key, value)``. (``KStream.selectKey``)

        A later grouping or join needs a repartition topic. Records without a key are not written to this topic, unless
        a left or outer join reads them (KIP-962).

        >>> from streamapp.testing import try_out
        >>> try_out(lambda flights: flights.select_key(lambda tail, flight: flight["to"]), [("N1", {"to": "JFK"})])
        [('JFK', {'to': 'JFK'})]
        """
        return stateless.with_key_selected(self, fn, name, on_error)

    def peek(
        self, fn: Callable[[K, V], object], *, name: str | None = None, on_error: OnError | None = None
    ) -> KStream[K, V]:
        """Calls ``fn(key, value)`` for each record, then hands the record on unchanged. (``KStream.peek``)

        After a failure, the records since the last commit are processed again, and the function is called for them
        again.

        >>> from streamapp.testing import try_out
        >>> _ = try_out(lambda words: words.peek(print), [("a", "to be")])
        a to be
        """
        return stateless.peeked(self, fn, name, on_error)

    def foreach(
        self, fn: Callable[[K, V], object], *, name: str | None = None, on_error: OnError | None = None
    ) -> None:
        """Calls ``fn(key, value)`` for each record. No operator can follow. (``KStream.foreach``)

        After a failure, the records since the last commit are processed again, and the function is called for them
        again.

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
        """Runs a `Processor`, and hands on the records that it forwards. (``KStream.process``, KIP-820)

        ``supplier`` is the processor's class, or a function that returns a new processor, because each task needs its
        own. ``store_names`` are the stores that the processor uses. Instead, the supplier or the processor may have an
        attribute ``stores``, a list of specifications (`Stores`), whose stores are added, too. The processor may change
        the key, so a later grouping or join needs a repartition topic.

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
        """As `process`, with a `FixedKeyProcessor`, which must not change the key. (``KStream.processValues``, KIP-820)

        Because the key stays, later groupings and joins need no repartition topic, unless an earlier operator changed
        the key. The processor may keep records, and forward them later. If ``process`` forwards a record with another
        key of its own, the processor gets a `StreamsError`.

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
        """Replaces key and value of each record by the pair that the coroutine ``fn(key, value)`` returns.

        All else is as in `map_values_async`. If the key stays, use `map_values_async`, because after `map_async` a
        later grouping or join needs a repartition topic.

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
        """Replaces the value of each record by ``await fn(value)``, or with ``with_key`` by ``await fn(key, value)``.

        Many calls run at the same time. On a worker the coroutines run on Faust's event loop, up to ``concurrency``
        calls for each task. A task with ``concurrency`` records whose calls or results are pending takes no further
        record, while other tasks go on. Two calls for the same key may overlap.

        With ``order="key"``, the results of each key come out in the order of its records. A slow call then delays the
        results of its key, and other records only at the next commit or at the limit of ``concurrency``. With
        ``order="partition"``, all results of a task come out in the order of its records. When a commit is due, the
        task takes no record until all open calls have ended. After a crash, some calls are made again, even with
        ``exactly_once_v2``.

        A call that takes longer than ``timeout`` (default: 5 s) is cancelled, and raises a ``TimeoutError``. After any
        ``TimeoutError`` of the call, ``on_timeout`` gives the result instead, if it is given. ``on_timeout`` is a plain
        function with the same arguments as ``fn``. Other exceptions are handled as in all other operators
        (``on_error``, or `StreamsConfig.processing_exception_handler`), but a `Retry` is not possible. The function is
        also called for null values. Kafka Streams has no such operator, and Spark refuses this one.

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
        joiner: Callable[[K, V, V2], VR],
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
        """Joins each record with matching records of another stream, or with a row of a table. (``KStream.join``)

        The result has the key of the record and the value ``joiner(left, right)``, or with ``with_key``
        ``joiner(key, left, right)``.

        - With a stream: each pair of records with the same key whose timestamps are as close as ``windows`` says. A
          result has the larger timestamp of the two, and the headers of the record that came last. Both sides are kept
          in window stores, by default with changelogs. ``stream_joined`` gives names to the join and its stores.
        - With a table: the row that the table has for the key when the record is processed. A versioned table gives the
          row that was valid at the record's timestamp. Updates of the table cause no results. A result has the
          timestamp of the record. With ``grace``, which is for versioned tables (KIP-923), each record waits until
          stream time is ``grace`` past the record. So updates of the table that come in the meantime count, too.
        - With a global table: the row of the key ``key_selector(key, value)``. Every process has the whole table, so
          the stream may have any number of partitions.

        Records without a match are dropped. Records without a value, or without the key by which they are joined, are
        dropped and counted. The two sides must have equally many partitions. If the key of a stream may have changed, a
        repartition topic comes first. Records without a key are dropped there: ``drops`` of ``/status`` counts them,
        the metric ``dropped_records`` does not. A join with a global table needs neither equal partitions nor a
        repartition topic. For records that come too late for a join of two streams, see `JoinedKStream.late_records`.

        ``key_serde`` and ``value_serde``, and ``other_value_serde`` for the values of the other stream, encode the
        records in repartition topics and stores. The default is the serdes of the streams. A serde may also stand in
        ``stream_joined``, but not in both places. A join with a table ignores ``other_value_serde``, and a
        join with a global table ignores all three, as in Kafka Streams.

        ``on_error`` decides about exceptions of the joiner and the key selector. A `Retry` is possible for a join with
        a table without ``grace``, or with a global table. Each attempt looks the row up again. A join of two streams
        takes ``on_error`` only if it is an inner join. A record makes pairs with the records that are already there. If
        the joiner raises for one of these pairs, none of them comes out. Later records still join the record.

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
        joiner: Callable[[K, V, V2 | None], VR],
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
        """As `join`, but a record of this stream without a match, or without a key, also gives a result.
        (``KStream.leftJoin``, KIP-962)

        The joiner then gets None for the right side. In a join with a stream, a match may still come. So a record
        without a match gives its result when its window is closed (timestamp + window + grace < stream time). The
        result has the record's timestamp, and the headers of the later record that closed the window. The result comes
        at once if the record has no key, if the record arrives after the end of its own window, or with
        `JoinWindows.of`. In a join with a table, each record gives its result at once. With ``grace``, each record
        waits as in `join`, and a record without a key raises `StreamsError`. Records without a value are dropped and
        counted.

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
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
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
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
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
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[V2] | None = None,
        on_error: OnError | None = None,
    ) -> KStream[K, Any]:
        """As `join` with a stream, but records of both sides without a match give results, too.
        (``KStream.outerJoin``, KIP-962)

        A record without a match comes out when its window is closed, with None for the other side. The result has the
        headers of the later record that closed the window. A record comes out at once if it has no key, or if it
        arrives after the end of its own window. With `JoinWindows.of`, every record without a match comes out at once.
        Records without a value are dropped and counted.

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
            key_serde=key_serde,
            value_serde=value_serde,
            other_value_serde=other_value_serde,
            on_error=on_error,
        )
        return joins.joined(self, other, call)

    # ------------------------------------------------------------------ several streams

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """One stream with the records of both streams, in no particular order between the two. (``KStream.merge``)

        The result has the serdes of the two streams if both have the same serde object; otherwise later operators need
        a serde of their own. If the key of either stream may have changed, a later grouping or join needs a repartition
        topic.

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
        """Begins to split the stream; the methods of the result add the branches. (``KStream.split``)

        ``name`` is the beginning of the branches' names. ``on_error`` decides about exceptions of the predicates.

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
        """Writes the records to a topic, which must exist. (``KStream.to``)

        ``topic`` is a name, or a function ``topic(key, value, context)`` that returns a name for each record;
        ``context`` is a `RecordContext`. ``partitioner(topic, key, value, partitions)`` may return the partition of a
        record. If it returns a collection of numbers, each of these partitions gets the record. An empty collection
        drops the record, and the drop is counted as ``no_partition`` (KIP-837). Without a ``partitioner``, or if it
        returns None, Kafka's default partitioner chooses by the bytes of the key. A record without a key goes to any
        partition. For a `Windowed` key without a ``partitioner``, the key without its window decides, so all windows of
        a key are in one partition. ``on_error`` decides about a record that the serdes cannot serialize, or that
        brokers refuse (default: ``production_exception_handler``).

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
        """Sends the records through an internal topic, which has all records of a key in one partition.
        (``KStream.repartition``, KIP-221)

        The topic is ``<application id>-<name>-repartition``. ``partitioner`` may choose the partition instead of the
        key (see `to`). ``partitions`` is the number of partitions. The default is the number of a topic with which this
        topic is joined or co-grouped. Otherwise the default is the largest number among the input topics of the stream.
        Each partition has its own task for the operators behind the topic, so more partitions give more parallelism.
        Records without a key are dropped, unless a left or outer join reads them.

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
        """The stream as a table: each record updates the row of its key, and the value None deletes the row.
        (``KStream.toTable``, KIP-523)

        Records without a key are dropped, and ``drops`` of ``/status`` counts them. If the key may have changed, a
        repartition topic comes first. As in Kafka Streams, the metric ``dropped_records`` leaves out drops before this
        topic. The table has a store with a changelog only if ``materialized`` has a name or a ttl, or for a later
        method such as `KTable.join`.

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
        """Groups the records by their key, for an aggregation such as ``count()``. (``KStream.groupByKey``)

        If the key may have changed, the aggregation reads a repartition topic, whose name contains ``name``.

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
        """Groups the records by a new key, ``fn(key, value)``, for an aggregation such as ``count()``.
        (``KStream.groupBy``)

        The records go through a repartition topic, whose name contains ``name``. Records whose new key is None are
        dropped.

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
