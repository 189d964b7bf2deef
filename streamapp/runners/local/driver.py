"""`TopologyTestDriver`: runs a topology in the test's own process, record by record, with a clock that the test moves.

The driver runs the same engine as workers and Spark, so a test tests the real code. Each topic has one partition, and
one task runs all sub-topologies. Each record is processed completely, through all repartition topics, before the next
one, as in Kafka Streams' TopologyTestDriver.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar, overload

from streamapp._base.durations import Duration, to_ms
from streamapp.config import StreamsConfig
from streamapp.engine.global_state import GlobalState
from streamapp.engine.operator import ParkedStatus
from streamapp.engine.runner_ports import InMemory, TaskEnvironment, TaskRules
from streamapp.engine.task_session import TaskSession
from streamapp.errors import SerializationError, StreamsError, TopologyError
from streamapp.query import Query, execute
from streamapp.records import (
    NO_HEADERS,
    Headers,
    OutputRecord,
    RecordBatch,
    TopicPartition,
    check_headers,
    check_timestamp,
)
from streamapp.runners.local.coroutines import Coroutines
from streamapp.runners.local.forgotten import watched
from streamapp.runners.local.typed_topics import TestInputTopic, TestOutputTopic
from streamapp.serdes.base import Serde, check_serde
from streamapp.state.spec import StoreSpec
from streamapp.topology import Plan, Topology
from streamapp.topology.plan import Subtopology

__all__ = ["TopologyTestDriver"]

S = TypeVar("S")
K = TypeVar("K")
V = TypeVar("V")


# Topics have one partition here. A user's partitioner is written for topics in production, so any number is allowed.
_RULES = TaskRules(any_partition=True, log_each_write=True, one_task=True)
_MOST_IN_LOOPS = 100_000
"""The number of results of one call that may go around a loop of topics. A topology that feeds itself never ends."""


class TopologyTestDriver:
    """Feeds records into a topology and reads its results, without a broker. A test takes milliseconds.

    Times are in ms. ``produced`` has all records that the topology has written, by topic, including internal topics and
    changelogs. The examples of the methods use the names of the example below.

    >>> from streamapp import Materialized, StreamsBuilder, StringSerde
    >>> text, builder = StringSerde(), StreamsBuilder()
    >>> words = builder.stream("words", key_serde=text, value_serde=text)
    >>> words.map_values(str.upper).to("loud", value_serde=text)
    >>> _ = words.group_by_key().count(materialized=Materialized("counts"))
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.create_input_topic("words", text, text).pipe_input("k", "hello", timestamp=5)
    ...     driver.create_output_topic("loud", text, text).read_key_value()
    ('k', 'HELLO')
    """

    __test__ = False  # pytest must not collect this class as a test

    def __init__(
        self, topology: Topology, config: StreamsConfig | None = None, *, initial_wall_clock_ms: int = 0
    ) -> None:
        if not isinstance(topology, Topology):
            raise TopologyError(
                f"TopologyTestDriver takes a Topology, such as StreamsBuilder.build() gives, not {topology!r}"
            )
        self.plan: Plan = topology.plan(config)
        self.produced: dict[str, list[OutputRecord]] = {}
        self._unread: defaultdict[str, deque[OutputRecord]] = defaultdict(deque)
        self._wall_clock = initial_wall_clock_ms
        self._fresh: deque[OutputRecord] = deque()
        self._rounds: dict[tuple[str, int], int] = {}
        """Topic and offset -> through how many topics a record of this call has come. Records that a test writes are
        left out."""
        self._in_loops = 0
        self._coroutines = Coroutines()
        self._offsets: dict[str, int] = {}
        # Kafka Streams' driver has one task, too, whose nodes have the order in which they were added.
        merged = Subtopology.merge(self.plan.subtopologies).in_order(topology.nodes)
        nodes, self._watches = watched(merged.nodes)
        self._merged = replace(merged, nodes=nodes)
        self._global = GlobalState(
            self.plan,
            wall_clock_ms=self.wall_clock_ms,
            letters=lambda source, offset, letter: self.send(*letter),
        )
        environment = TaskEnvironment(
            self.plan,
            self,
            self.wall_clock_ms,
            global_stores=self._global.stores,
            run_async=self._coroutines.run,
            rules=_RULES,
        )
        self._session = TaskSession(environment, self._merged, 0, InMemory())
        self._task = self._session.task
        self._session.start()

    # ------------------------------------------------------------------ the collector of its task

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        """Takes a record that a task writes. Tasks call this method, tests do not (the engine's `Collector`)."""
        for side, data in (("key", key), ("value", value)):
            if data is not None and not isinstance(data, bytes):
                raise SerializationError(
                    f"topic {topic}: serialize of the {side} serde gave {type(data).__name__}, not bytes"
                )
        self._fresh.append(OutputRecord(topic, key, value, timestamp, headers, partition))

    def partition_count(self, topic: str) -> int:
        """Every topic has one partition here."""
        return 1

    # ------------------------------------------------------------------ what a test uses

    def create_input_topic(
        self,
        topic: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        *,
        start_ms: int | None = None,
        auto_advance_ms: Duration = 0,
    ) -> TestInputTopic[K, V]:
        """A topic to write to.

        The first record that is written without a timestamp gets ``start_ms`` (default: the driver's wall clock now).
        Each further record without a timestamp gets ``auto_advance_ms`` more than the one before.

        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     words = driver.create_input_topic("words", text, text, start_ms=100, auto_advance_ms=10)
        ...     words.pipe_key_values([("a", "to"), ("a", "be")])
        ...     driver.store("counts").get("a")
        (2, 110)
        """
        start = self._wall_clock if start_ms is None else start_ms
        advance = to_ms(auto_advance_ms, "auto_advance_ms")
        if advance < 0:
            raise ValueError(f"time cannot go back: auto_advance_ms={advance}")
        check_serde(key_serde, f"key_serde of input topic {topic}")
        check_serde(value_serde, f"value_serde of input topic {topic}")
        return TestInputTopic(self.pipe_raw, topic, key_serde, value_serde, start, advance)

    def create_output_topic(
        self, topic: str, key_serde: Serde[K], value_serde: Serde[V]
    ) -> TestOutputTopic[K, V]:
        """A topic to read from. Several objects for the same topic share its records: a test reads each record only
        once.

        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("words", text, text).pipe_input("a", "to")
        ...     driver.create_output_topic("loud", text, text).read_value()
        'TO'
        """
        check_serde(key_serde, f"key_serde of output topic {topic}")
        check_serde(value_serde, f"value_serde of output topic {topic}")
        return TestOutputTopic(self._unread[topic], self.produced, topic, key_serde, value_serde)

    def pipe_raw(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = NO_HEADERS,
    ) -> None:
        """Writes one record as bytes and processes it completely.

        Raises `StreamsError` if the topology does not read the topic, or reads its own results without an end. Raises
        `TypeError` if the timestamp is not an int (ms), or if the headers are not pairs.

        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.pipe_raw("words", b"a", b"to", timestamp=5)
        ...     driver.produced["loud"][0].value
        b'TO'
        """
        check_timestamp(timestamp)
        check_headers(headers)
        if not self._deliver(topic, key, value, timestamp, headers):
            known = ", ".join(self.plan.source_topics) or "none"
            raise StreamsError(f"unknown topic: {topic}; the topology reads {known}")
        self._complete()

    def advance_wall_clock_time(self, ms: Duration) -> None:
        """Moves the wall clock forward by ``ms`` (milliseconds or a timedelta).

        Each wall-clock punctuator that is due is called once, also if several of its intervals have passed.

        >>> with TopologyTestDriver(builder.build(), initial_wall_clock_ms=1000) as driver:
        ...     driver.advance_wall_clock_time(500)
        ...     driver.wall_clock_ms()
        1500
        """
        milliseconds = to_ms(ms, "the time by which the clock moves")
        if milliseconds < 0:
            raise ValueError(f"time cannot go back: {ms} ms")
        self._wall_clock += milliseconds
        self._task.punctuate_wall_clock(self._wall_clock)
        self._commit()
        self._complete()

    def wall_clock_ms(self) -> int:
        """The time of the driver's wall clock in ms. Only the test moves this clock."""
        return self._wall_clock

    @overload
    def store(self, store: StoreSpec[S]) -> S: ...
    @overload
    def store(self, store: str) -> Any: ...
    def store(self, store: str | StoreSpec[Any]) -> Any:
        """A state store, by name or by its specification. Raises `InvalidStoreError` if there is none of that name.

        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     list(driver.store("counts").all())
        []
        """
        return self._task.store(store if isinstance(store, str) else store.name)

    def query(self, store: str, query: Query) -> Any:
        """Runs an interactive query (KIP-796) on a store; see `streamapp.query`.

        >>> from streamapp.query import KeyQuery
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("words", text, text).pipe_input("a", "to")
        ...     driver.query("counts", KeyQuery("a")).value
        1
        """
        return execute(self.store(store), query)

    @property
    def stores(self) -> dict[str, Any]:
        """All stores by name, including global stores.

        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     list(driver.stores)
        ['counts']
        """
        return {**self._task.own_stores, **self._global.stores}

    @property
    def dropped_records(self) -> int:
        """The number of drops, also of global stores, for example for a null key or as late.

        A record counts once for each operator that drops the record. Drops before a repartition topic do not count.

        Kafka Streams' metric ``dropped-records-total`` counts in the same way.

        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("words", text, text).pipe_input(None, "lost")
        ...     driver.dropped_records
        1
        """
        return self._task.metrics.dropped_records + self._global.dropped_records

    @property
    def drops(self) -> dict[tuple[str, str], int]:
        """The number of dropped records by (operator or store, reason), also of global stores.

        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("words", text, text).pipe_input(None, "lost")
        ...     driver.drops
        {('KSTREAM-AGGREGATE-0000000003', 'null_key'): 1}
        """
        return dict(self._task.metrics.drops + self._global.drops)

    @property
    def parked(self) -> list[ParkedStatus]:
        """The records that wait for a retry, by operator.

        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.parked
        []
        """
        return [parking.parked for parking in self._task.parkings.values()]

    @property
    def buffered(self) -> dict[str, int]:
        """For each topic that the topology reads, the number of its records that wait to be processed.

        Records wait while an earlier record needs a retry, or with ``max_task_idle_ms`` for a record of another input.

        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("words", text, text).pipe_input("a", "to")
        ...     driver.buffered
        {'words': 0}
        """
        return {partition.topic: count for partition, count in self._task.buffered.items()}

    def close(self) -> None:
        """Commits, and closes processors and stores.

        Warns of functions of operators such as `filter` and `aggregate` that always returned None, because their
        ``return`` may be missing.

        >>> import warnings
        >>> builder = StreamsBuilder()
        >>> builder.stream("words", key_serde=text, value_serde=text).filter(lambda key, word: print(word)).to("loud")
        >>> driver = TopologyTestDriver(builder.build())
        >>> driver.create_input_topic("words", text, text).pipe_input("a", "to")
        to
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     driver.close()
        >>> print(str(caught[0].message).split(") ")[1])
        gave None for each of 1 record, which drops each record; is a return missing?
        """
        with ExitStack() as stack:
            stack.callback(self._coroutines.close)
            stack.callback(self._global.close)
            stack.callback(self._session.close)
            stack.callback(self._commit)
            for watch in self._watches:
                watch.warn()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ inside

    def _deliver(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> bool:
        self.plan.check_patterns((topic,))
        is_global = topic in self._global.topics
        if not is_global and self._merged.source_of(topic) is None:
            return False
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        batch = RecordBatch([key], [value], [timestamp], [offset], [tuple(headers)])
        if is_global:
            self._global.process(TopicPartition(topic, 0), batch)
        else:
            self._task.enqueue(TopicPartition(topic, 0), batch)
        return True

    def _complete(self) -> None:
        self._rounds.clear()
        self._in_loops = 0
        self._redeliver()
        # A call without waiting records would let the wait of max_task_idle_ms begin before the first record is there.
        while not self._task.idle and self._task.process(1, self._task.buffered):
            self._commit()
            if self._fresh:
                # The processed record is the cause of all new records, also of those from punctuators and caches.
                cause = str(self._task.topic), self._task.offset
                self._redeliver(self._rounds.get(cause, 0) + 1)

    def _commit(self) -> None:
        while not self._task.drained():
            self._coroutines.wait()
            self._task.process(0)
        self._session.commit_alone()

    def _redeliver(self, rounds: int = 1) -> None:
        """Hands each newly written record to the test, and feeds back the records that the topology itself reads.

        The topology reads records of repartition topics, and of a sink's topic that is also a source. ``rounds`` is the
        number of topics through which the records have come.
        """
        while self._fresh:
            record = self._fresh.popleft()
            topic = record.topic
            self.produced.setdefault(topic, []).append(record)
            self._unread[topic].append(record)
            if not self._deliver(topic, record.key, record.value, record.timestamp or 0, record.headers):
                continue
            self._rounds[topic, self._offsets[topic] - 1] = rounds
            if rounds > len(self._offsets):
                # With more rounds than topics, the records have come through a topic twice.
                self._in_loops += 1
                if self._in_loops > _MOST_IN_LOOPS:
                    raise StreamsError(
                        f"in one call, more than {_MOST_IN_LOOPS:,} results have gone around a loop of topics, the "
                        f"last one through topic {topic}. The topology probably feeds itself without an end: let a "
                        "filter before the sink end the loop, or write to another topic"
                    )
