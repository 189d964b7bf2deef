"""Records that a handler sends in the transaction of its offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from streamapp.config import StreamsConfig
from streamapp.consumer.lanes import Item, PartitionLanes, Unit
from streamapp.errors import StreamsError
from streamapp.producer.core import Core
from streamapp.producer.face import TransactionFace
from streamapp.producer.options import ProducerOptions
from streamapp.producer.parcel import record_bytes
from streamapp.records import NO_HEADERS, Headers, OutputRecord, TopicPartition
from streamapp.serdes import Serde
from streamapp.serdes.base import check_serde

__all__ = ["HandlerOutputs", "KafkaOutput", "Letter", "Output", "OutputTransaction", "Step", "WaitingOutputs"]

K = TypeVar("K")
V = TypeVar("V")

_MOST_BYTES = 4 << 20
_MOST_RECORDS = 10_000


@dataclass(frozen=True, kw_only=True)
class KafkaOutput:
    """A setting of a consumer (``output=``): records that its handler sends are committed in one transaction with the
    offsets.

    So readers of committed records see the outputs of each input record exactly once, also after a failure (KIP-447).
    The setting needs ``guarantee="exactly_once"``. The handler gets an `OutputTransaction` as a second argument. The
    serdes encode keys and values of the outputs (default: the default serdes of the configuration, else bytes). Brokers
    abort a transaction that takes longer than the configuration's ``transaction_timeout_ms``. Raises `ConfigError` for
    a wrong serde.

    >>> from streamapp import JsonSerde
    >>> KafkaOutput(value_serde=JsonSerde()).key_serde is None
    True
    """

    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None

    def __post_init__(self) -> None:
        for name in ("key_serde", "value_serde"):
            if getattr(self, name) is not None:
                check_serde(getattr(self, name), name)


class OutputTransaction(TransactionFace[K, V]):
    """The outputs of one call of a handler, which are committed together with the offsets of the call's records.

    The outputs go to Kafka after the handler has returned. If the handler raises, none of the outputs is sent.

    >>> def bill(order, transaction: OutputTransaction) -> None:
    ...     transaction.send("invoices", key=order.key, value={"order": order.key})
    """

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._over = False

    def send(
        self,
        topic: str,
        *,
        key: K | None = None,
        value: V | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        partition: int | None = None,
    ) -> None:
        """Adds a record to the transaction. Records go out in the order of these calls.

        ``timestamp`` is in ms since the epoch (default: now). Raises `SerializationError` if the serde refuses key or
        value. A call after the handler has returned raises `StreamsError`.
        """
        if self._over:
            raise StreamsError(
                "the call of the handler is over, so its transaction takes no more records: send them before the "
                "handler returns"
            )
        super().send(topic, key=key, value=value, timestamp=timestamp, headers=headers, partition=partition)

    def end(self) -> list[OutputRecord]:
        """Closes the transaction for further records, and returns the outputs of the call."""
        self._over = True
        return self._records


class HandlerOutputs:
    """Makes an `OutputTransaction` for each call of one consumer's handler. Several threads may share a
    `HandlerOutputs`."""

    def __init__(self, name: str, output: KafkaOutput, config: StreamsConfig) -> None:
        options = ProducerOptions(
            name=name,
            bootstrap_servers=config.bootstrap_servers,
            client_properties=config.client_properties,
        )
        self._core = Core(
            options,
            output.key_serde or config.default_key_serde,
            output.value_serde or config.default_value_serde,
        )
        self.settings: Mapping[str, Any] = options.producer()
        """librdkafka's settings for the producer."""

    def begin(self) -> OutputTransaction[Any, Any]:
        """A new transaction, the second argument of a call of the handler."""
        return OutputTransaction(self._core)


class Letter(NamedTuple):
    """A dead letter of the record ``item``. ``cause`` is the failure of this record, in words."""

    record: OutputRecord
    item: Item
    cause: str


class Output(NamedTuple):
    """A record of a call that is over."""

    record: OutputRecord
    unit: Unit
    """The records of the call."""
    letter: Letter | None
    """None: the record is no dead letter."""

    @property
    def source(self) -> TopicPartition:
        return self.unit.partition.source


class Step(NamedTuple):
    """The content of one transaction: new positions of partitions, and the outputs of the calls whose records these
    positions include."""

    positions: dict[TopicPartition, tuple[int, str]]
    partitions: dict[TopicPartition, PartitionLanes]
    outputs: list[Output]


@dataclass(slots=True)
class WaitingOutputs:
    """The outputs of finished calls of the handler, until their transaction is committed.

    The dispatcher holds its lock whenever it uses a `WaitingOutputs`.
    """

    _by_partition: dict[TopicPartition, list[Output]] = field(default_factory=dict)
    _records: int = 0
    _bytes: int = 0

    @property
    def full(self) -> bool:
        """True if 10,000 records or 4 MiB of outputs wait. No further call of the handler then begins before the next
        commit."""
        return self._records >= _MOST_RECORDS or self._bytes >= _MOST_BYTES

    def add(self, unit: Unit, records: Collection[OutputRecord], letters: Collection[Letter] = ()) -> None:
        """Adds the outputs and the dead letters of a call that has returned."""
        for record in records:
            self._put(Output(record, unit, None))
        for letter in letters:
            self._put(Output(letter.record, unit, letter))

    def _put(self, output: Output) -> None:
        self._by_partition.setdefault(output.source, []).append(output)
        self._records += 1
        self._bytes += record_bytes(output.record)

    def of(self, sources: Collection[TopicPartition]) -> list[Output]:
        """The waiting outputs of these partitions, in the order of their calls."""
        return [output for source in sources for output in self._by_partition.get(source, ())]

    def committed(self, outputs: Collection[Output], owned: Collection[TopicPartition]) -> None:
        """Removes outputs that are committed. Outputs of partitions that this member does not own any more are already
        gone."""
        done = dict.fromkeys(owned, 0)
        for output in outputs:
            if output.source in done:
                done[output.source] += 1
        for source, count in done.items():
            self._remove(source, count)

    def replace(self, unit: Unit, letters: Collection[Letter]) -> None:
        """Replaces all outputs of a call by these dead letters, because brokers refuse one of the outputs."""
        source = unit.partition.source
        kept = [output for output in self._by_partition.get(source, ()) if output.unit is not unit]
        self.drop(source)
        for output in kept:
            self._put(output)
        self.add(unit, (), letters)

    def exchange(self, output: Output, record: OutputRecord) -> None:
        """Puts another record in the place of an output, unless the partition of the output is lost meanwhile."""
        waiting = self._by_partition.get(output.source, [])
        for index, each in enumerate(waiting):
            if each is output:
                waiting[index] = output._replace(record=record)

    def drop(self, source: TopicPartition) -> None:
        """Drops the outputs of a lost partition. Its new owner calls the handler again and makes the outputs again."""
        self._remove(source, len(self._by_partition.get(source, ())))

    def _remove(self, source: TopicPartition, count: int) -> None:
        waiting = self._by_partition.get(source)
        if waiting is None:
            return
        self._records -= count
        self._bytes -= sum(record_bytes(output.record) for output in waiting[:count])
        del waiting[:count]
        if not waiting:
            del self._by_partition[source]
