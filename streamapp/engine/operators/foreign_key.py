"""Foreign-key joins of tables (KIP-213). A function computes the *foreign key* from a left row. The foreign key is the
key of the right row.

The two rows are usually in different partitions. So each left row sends a *subscription* to the partition of its
foreign key. The answer is the right row, and comes again after each change of the right row.

    left table -> SubscriptionSend -> (subscription topic, by foreign key)
      -> SubscriptionReceive (store) -> SubscriptionJoin -> (response topic, by primary key) -> ResponseJoin -> result
    right table -> ForeignTableJoin (the same store) ----------^

The bytes in both topics and in the subscription store's changelog are Kafka Streams'.

Before a side of the join reads a row, the row's pending update is flushed out of the record cache
(`TableView.bind_flushed`). Otherwise an insertion and a deletion could cancel each other in the cache, and the result
would keep the deleted row. Here streamapp differs from Kafka Streams, which does not flush before it reads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

import mmh3
import msgspec

from streamapp._base.counted import counted
from streamapp.engine.operator import NodeContext, Operator, ProcessFn
from streamapp.engine.operators.table_answers import new_and_old
from streamapp.engine.operators.views import TableView
from streamapp.errors import SerializationError
from streamapp.on_error import Answer, Chooser
from streamapp.records import Headers
from streamapp.serdes.base import Serde
from streamapp.serdes.types import excerpt
from streamapp.state.last_written import LastWritten
from streamapp.topology.nodes import Partitioner

__all__ = [
    "ForeignTableJoin",
    "OtherPartition",
    "ResponseJoin",
    "Subscription",
    "SubscriptionJoin",
    "SubscriptionReceive",
    "SubscriptionResponse",
    "SubscriptionResponseSerde",
    "SubscriptionSend",
    "SubscriptionSerde",
    "response_partition",
]

_INT = struct.Struct(">i")
_NO_HASH = 0x80
_SUBSCRIPTION_VERSION, _RESPONSE_VERSION = 1, 0
_SEED = 104729

FOREIGN_KEY, PRIMARY_KEY, VALUE_HASH = "-fk", "-pk", "-vh"
"""Suffixes of the subscription topic's name, as in Kafka Streams. No topics have these names. Serdes of keys inside a
subscription, and of values that are hashed, are bound to these names as if they were topics."""

_HEADS = [
    [bytes((version, instruction)) for instruction in range(256)]
    for version in (_SUBSCRIPTION_VERSION, _SUBSCRIPTION_VERSION | _NO_HASH)
]
"""The first two bytes of a subscription, by "has no hash" and instruction."""
_HASH_HEAD, _NO_HASH_HEAD = bytes((_RESPONSE_VERSION,)), bytes((_RESPONSE_VERSION | _NO_HASH,))
"""The first byte of an answer, with and without a hash."""

_LEFT_OUT = object()
"""Stands for the foreign key of a row whose extractor has raised, so that the drop is not counted a second time."""


class Instruction(IntEnum):
    """A subscription's request to the right side (Kafka Streams' names)."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


class Subscription(msgspec.Struct, frozen=True, gc=False):
    """The request of a left row for the right row of its foreign key. ``instruction`` says if the subscription is
    stored or deleted, and if an answer is wanted (`Instruction`).

    ``hash`` (16 bytes) is the hash of the left row's value; None means that the row is deleted. The answer repeats the
    hash, so that an answer to an earlier value of the left row can be dropped.
    """

    hash: bytes | None
    instruction: int
    primary_key: Any
    primary_partition: int | None
    data: bytes | None = None
    """The bytes from which the subscription was read, which `SubscriptionSerde` writes again. None: the serde
    serializes the fields."""


class SubscriptionResponse(msgspec.Struct, frozen=True, gc=False):
    """The right side's answer to a subscription. ``value`` is the right row's value. ``value`` is None if there is no
    right row, or if the subscription was deleted and asks for an answer that deletes the result.

    ``primary_partition`` is the partition to which the answer goes, and is no part of the bytes. ``data`` has the bytes
    of the value if they are known. The sink then writes these bytes, and ``value`` may be None.
    """

    hash: bytes | None
    value: Any
    primary_partition: int | None = None
    data: bytes | None = None


def value_hash(data: bytes) -> bytes:
    """The hash of a serialized value: Murmur3 (128 bits, x64) with the seed of Kafka Streams, as two longs."""
    digest = mmh3.mmh3_x64_128_digest(data, _SEED)
    return digest[7::-1] + digest[:7:-1]  # Java writes longs big endian, the digest has them little endian


def response_partition(topic: str, key: Any, value: SubscriptionResponse, count: int) -> int | None:
    """The partitioner of the response topic, which sends an answer to the partition of its left row."""
    return value.primary_partition


@dataclass(frozen=True)
class OtherPartition:
    """The partitioner of the subscription topic of a foreign-key join, if the right (other) table has a partitioner of
    its own.

    A subscription goes to the partition of its right row. In a left join, a subscription without a foreign key may go
    to any partition.
    """

    partitioner: Partitioner

    def __call__(self, topic: str, key: Any, value: Subscription, count: int) -> int | None:
        if key is None:
            return None
        chosen = self.partitioner(topic, key, None, count)
        if isinstance(chosen, Collection):
            if len(chosen) != 1:
                raise ValueError(
                    f"other_partitioner of a foreign-key join gave {chosen!r}: a row of the other table is in one "
                    "partition"
                )
            (chosen,) = chosen
        return chosen


class SubscriptionSerde(Serde[Subscription]):
    """The bytes of a subscription, as in Kafka Streams (``SubscriptionWrapperSerde``).

    The first byte has the version, and a flag if no hash follows. The second byte is the instruction. Then come the
    hash of the left row's value (16 bytes), the primary key, and the primary partition (4 bytes).
    """

    persistent_name = "SubscriptionSerde"

    def __init__(self, primary_key: Serde[Any]) -> None:
        self.primary_key = primary_key
        self.immutable: bool = primary_key.immutable

    def serialize(self, value: Subscription) -> bytes:
        if value.data is not None:
            return value.data
        key = self.primary_key.serialize(value.primary_key)
        if value.primary_partition is None:
            raise SerializationError("a subscription needs the partition that its answer goes to")
        head = _HEADS[value.hash is None][value.instruction]
        return head + (value.hash or b"") + key + _INT.pack(value.primary_partition)

    def bind(self, topic: str, is_key: bool) -> SubscriptionSerde:
        """The serde with its primary keys bound to the name ``<subscription topic>-pk``."""
        return SubscriptionSerde(self.primary_key.bind(f"{topic}{PRIMARY_KEY}", True))

    def decoder(self) -> Callable[[bytes], Subscription]:
        key_of, number_at = self.primary_key.decoder(), _INT.unpack_from

        def decode(data: bytes) -> Subscription:
            if data[0] != _SUBSCRIPTION_VERSION or len(data) < 22:  # without hash, or of another version
                return self.deserialize(data)
            (partition,) = number_at(data, len(data) - 4)
            return Subscription(data[2:18], data[1], key_of(data[18:-4]), partition, data)

        return decode

    def deserialize(self, data: bytes) -> Subscription:
        if len(data) < 2:
            raise SerializationError(f"expected a subscription, got {excerpt(data)}")
        version = data[0] & ~_NO_HASH
        if version > _SUBSCRIPTION_VERSION:
            raise SerializationError(
                f"subscription of version {version}; this version of streamapp reads up to {_SUBSCRIPTION_VERSION}"
            )
        start = 2 if data[0] & _NO_HASH else 18
        end = len(data) - (_INT.size if version else 0)
        if end < start:
            raise SerializationError(
                f"expected a subscription of at least {counted(start, 'byte')}, got {excerpt(data)}"
            )
        return Subscription(
            data[2:18] if start == 18 else None,
            data[1],
            self.primary_key.deserialize(data[start:end]),
            _INT.unpack_from(data, end)[0] if version else None,
            data if version else None,
        )


class SubscriptionResponseSerde(Serde[SubscriptionResponse]):
    """The bytes of an answer to a subscription, as in Kafka Streams (``SubscriptionResponseWrapperSerde``).

    The first byte has the version, and a flag if no hash follows. Then come the hash of the left row's value (16 bytes)
    and the right row's value.
    """

    persistent_name = "SubscriptionResponseSerde"

    def __init__(self, inner: Serde[Any]) -> None:
        self.inner = inner
        self.immutable: bool = inner.immutable

    def serialize(self, value: SubscriptionResponse) -> bytes:
        data = value.data
        if data is None:
            data = b"" if value.value is None else self.inner.serialize(value.value)
        return _NO_HASH_HEAD + data if value.hash is None else _HASH_HEAD + value.hash + data

    def bind(self, topic: str, is_key: bool) -> SubscriptionResponseSerde:
        return SubscriptionResponseSerde(self.inner.bind(topic, is_key))

    def decoder(self) -> Callable[[bytes], SubscriptionResponse]:
        value_of = self.inner.decoder()

        def decode(data: bytes) -> SubscriptionResponse:
            if data[0] != _RESPONSE_VERSION or len(data) <= 17:  # without hash or value
                return self.deserialize(data)
            return SubscriptionResponse(data[1:17], value_of(data[17:]))

        return decode

    def deserialize(self, data: bytes) -> SubscriptionResponse:
        if not data:
            raise SerializationError("expected a subscription response, got no bytes")
        version = data[0] & ~_NO_HASH
        if version != _RESPONSE_VERSION:
            raise SerializationError(
                f"subscription response of version {version}; this version of streamapp reads {_RESPONSE_VERSION}"
            )
        start = 1 if data[0] & _NO_HASH else 17
        if len(data) < start:
            raise SerializationError(
                f"expected a subscription response of at least 17 bytes, got {excerpt(data)}"
            )
        value = self.inner.deserialize(data[start:]) if len(data) > start else None
        return SubscriptionResponse(data[1:17] if start == 17 else None, value)


class _CombinedKeys:
    """The keys of the subscription store: length of the foreign key, foreign key, primary key.

    So all subscriptions to a right row follow each other in the store. The serdes are bound.
    """

    def __init__(self, foreign: Serde[Any], primary: Serde[Any]) -> None:
        self._foreign, self._primary = foreign, primary

    def prefix(self, foreign_key: Any) -> bytes:
        data = self._foreign.serialize(foreign_key)
        return _INT.pack(len(data)) + data

    def encode(self, foreign_key: Any, primary_key: Any) -> bytes:
        data = self._foreign.serialize(foreign_key)
        return _INT.pack(len(data)) + data + self._primary.serialize(primary_key)


def _bound_keys(topic: str, foreign: Serde[Any], primary: Serde[Any]) -> tuple[Serde[Any], Serde[Any]]:
    """The serdes of the two parts of a combined key. ``topic`` is the full name of the subscription topic."""
    return foreign.bind(f"{topic}{FOREIGN_KEY}", True), primary.bind(f"{topic}{PRIMARY_KEY}", True)


class LeftSide:
    """The parts of the left side that `SubscriptionSend` and `ResponseJoin` of a task have for each other."""

    def __init__(self) -> None:
        self.last: LastWritten = LastWritten()
        """The left row that was written last, if its bytes are those that are hashed. `ResponseJoin`, which reads the
        left table, sets this field."""

    ask: Callable[[Any, Any, int, Headers], bool]
    """Subscribes for a left row (key, value, timestamp in ms, headers), with an instruction that is always answered.
    Returns False, and does nothing, if the row has no foreign key."""


@dataclass(frozen=True)
class SubscriptionSend(Operator):
    """Turns each change of the left table into subscriptions, whose key is the row's foreign key.

    If the foreign key changes, the old subscription is deleted and a new one is sent. An inner join drops a row without
    foreign key, and counts the drop as ``null_key``. If the row had a foreign key before, the inner join deletes its
    subscription and its result. A left join subscribes for a row without foreign key, too, and gets the answer None. If
    a left row is deleted, both kinds of join delete its subscription and its result.
    """

    persistent_name = "SubscriptionSend"
    drops: ClassVar[tuple[str, ...]] = (
        "null_key",
        "out_of_order",
    )

    extractor: Callable[[Any, Any], Any]
    left: bool
    topic: str
    foreign_key_serde: Serde[Any]
    value_serde: Serde[Any]
    versioned: bool = False
    on_error: Answer | Chooser | None = None

    def bound_serdes(self, application_id: str) -> tuple[Serde[Any], ...]:
        topic = f"{application_id}-{self.topic}"
        return (
            self.foreign_key_serde.bind(f"{topic}{FOREIGN_KEY}", True),
            self.value_serde.bind(f"{topic}{VALUE_HASH}", False),
        )

    def bind(self, ctx: NodeContext) -> ProcessFn:
        task, drop, forward = ctx.task, ctx.drop, ctx.forward
        extract, extract_old = new_and_old(ctx, self.extractor, self.on_error, _LEFT_OUT)
        foreign_keys, values = self.bound_serdes(task.application_id)
        key_bytes, value_bytes = foreign_keys.serialize, values.serialize
        left, versioned = self.left, self.versioned
        delete, delete_and_tell, ask_always, ask = map(int, Instruction)

        def ask_again(key: Any, value: Any, timestamp: int, headers: Headers) -> bool:
            foreign_key = extract_old(key, value)
            if foreign_key is None:
                return False
            digest = value_hash(value_bytes(value))
            forward(foreign_key, Subscription(digest, ask_always, key, task.partition), timestamp, headers)
            return True

        side: LeftSide = task.shared(self.topic, LeftSide)
        side.ask = ask_again

        def changed(new: Any, old: Any) -> bool:
            return new is None or key_bytes(new) != key_bytes(old)

        def send(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
            new, old, is_latest = change
            if versioned and not is_latest:
                drop("out_of_order")
                return
            if new is None:
                digest = None
            else:
                last = side.last
                digest = value_hash(last.data if last.value is new else value_bytes(new))

            old_key = None if old is None else extract_old(key, old)
            new_key = None if new is None else extract(key, new)
            if left_out := new_key is _LEFT_OUT:
                new_key = None
            instruction = ask
            if left:
                if new is None and old is None:
                    return
                instruction = ask_always
            elif new_key is None:
                if new is not None and not left_out:
                    drop("null_key")
                if old_key is None:
                    return
                # One message is enough: this one deletes the subscription, and its answer deletes the result.
                new_key, old_key, instruction = old_key, None, delete_and_tell
            if old_key is not None and changed(new_key, old_key):
                forward(old_key, Subscription(digest, delete, key, task.partition), timestamp, headers)
                instruction = ask_always
            forward(new_key, Subscription(digest, instruction, key, task.partition), timestamp, headers)

        return send


@dataclass(frozen=True)
class SubscriptionReceive(Operator):
    """Stores and deletes subscriptions to the right table's keys. Hands each on to `SubscriptionJoin`, which may
    answer."""

    persistent_name = "SubscriptionReceive"
    drops: ClassVar[tuple[str, ...]] = ("null_key",)

    store: str
    topic: str
    foreign_key_serde: Serde[Any]
    primary_key_serde: Serde[Any]

    def bound_serdes(self, application_id: str) -> tuple[Serde[Any], ...]:
        return _bound_keys(f"{application_id}-{self.topic}", self.foreign_key_serde, self.primary_key_serde)

    def bind(self, ctx: NodeContext) -> ProcessFn:
        put, drop, forward = ctx.store(self.store).subscriber(), ctx.drop, ctx.forward
        keys = _CombinedKeys(*self.bound_serdes(ctx.task.application_id))
        delete, delete_and_tell, ask_always, _ = map(int, Instruction)

        def receive(key: Any, subscription: Subscription, timestamp: int, headers: Headers) -> None:
            if key is None and subscription.instruction != ask_always:
                drop("null_key")
                return
            # The answer may flush an update of the right row, which goes to all stored subscriptions. So the
            # subscription is answered first and stored afterwards, otherwise it would be answered twice.
            forward(key, subscription, timestamp, headers)
            if key is not None:
                deleted = subscription.instruction in (delete, delete_and_tell)
                combined = keys.encode(key, subscription.primary_key)
                put(combined, None if deleted else subscription, timestamp, headers)

        return receive


@dataclass(frozen=True)
class SubscriptionJoin(Operator):
    """Answers a subscription with the current row of the right table, if the instruction asks for an answer."""

    persistent_name = "SubscriptionJoin"

    foreign_table: TableView
    response_topic: str
    value_serde: Serde[Any]

    def bind(self, ctx: NodeContext) -> ProcessFn:
        topic = f"{ctx.task.application_id}-{self.response_topic}"
        same_bytes = self.foreign_table.value_serde(ctx) is self.value_serde.bind(topic, False)
        get, forward = self.foreign_table.bind_with_bytes(ctx, decoded=not same_bytes), ctx.forward
        delete, delete_and_tell, _, ask = map(int, Instruction)

        def answer(key: Any, subscription: Subscription, timestamp: int, headers: Headers) -> None:
            instruction = subscription.instruction
            if instruction == delete:
                return
            row = None if key is None else get(key)
            if instruction == ask and row is None:
                return
            value = data = None
            if row is not None:
                if instruction != delete_and_tell:
                    value, _, data = row
                timestamp = max(timestamp, row[1])
            response = SubscriptionResponse(
                subscription.hash, value, subscription.primary_partition, data if same_bytes else None
            )
            forward(subscription.primary_key, response, timestamp, headers)

        return answer


@dataclass(frozen=True)
class ForeignTableJoin(Operator):
    """Sends each changed row of the right table to all left rows that have subscribed to its key."""

    persistent_name = "ForeignTableJoin"
    drops: ClassVar[tuple[str, ...]] = (
        "null_key",
        "out_of_order",
    )

    store: str
    topic: str
    response_topic: str
    foreign_key_serde: Serde[Any]
    primary_key_serde: Serde[Any]
    value_serde: Serde[Any]
    versioned: bool = False

    def bound_serdes(self, application_id: str) -> tuple[Serde[Any], ...]:
        return _bound_keys(f"{application_id}-{self.topic}", self.foreign_key_serde, self.primary_key_serde)

    def bind(self, ctx: NodeContext) -> ProcessFn:
        scan, drop, forward, versioned = (
            ctx.store(self.store).prefix_scan,
            ctx.drop,
            ctx.forward,
            self.versioned,
        )
        keys = _CombinedKeys(*self.bound_serdes(ctx.task.application_id))
        value_bytes = self.value_serde.bind(
            f"{ctx.task.application_id}-{self.response_topic}", False
        ).serialize

        def bytes_of(value: Any) -> bytes | None:
            if value is not None:
                with suppress(Exception):  # the sink serializes the value itself, and handles the exception
                    return value_bytes(value)
            return None

        def tell(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
            new, _, is_latest = change
            if key is None or (versioned and not is_latest):
                drop("null_key" if key is None else "out_of_order")
                return
            subscriptions = [found[0] for _, found in scan(keys.prefix(key))]
            data = bytes_of(new) if subscriptions else None
            for subscription in subscriptions:
                response = SubscriptionResponse(subscription.hash, new, subscription.primary_partition, data)
                forward(subscription.primary_key, response, timestamp, headers)

        return tell


@dataclass(frozen=True)
class ResponseJoin(Operator):
    """Joins an answer with the left row. An answer to an earlier value of the left row (another hash) is dropped.

    In an inner join, the dropped answer may say that the right row is gone, so that the result has to be deleted. If
    the right row is missing, the subscription of the left row's new value gets no answer, and the old result would stay
    for ever. Therefore, with ``foreign_key_join_recheck`` (and always on Spark), the inner join subscribes again after
    a dropped answer without a right row. The new subscription gets an answer even if the right row is missing.
    """

    persistent_name = "ResponseJoin"
    drops: ClassVar[tuple[str, ...]] = ("superseded",)

    table: TableView
    joiner: Callable[[Any, Any], Any]
    left: bool
    topic: str
    value_serde: Serde[Any]
    on_error: Answer | Chooser | None = None

    def bound_serdes(self, application_id: str) -> tuple[Serde[Any], ...]:
        return (self.value_serde.bind(f"{application_id}-{self.topic}{VALUE_HASH}", False),)

    def bind(self, ctx: NodeContext) -> ProcessFn:
        get, left = self.table.bind_with_bytes(ctx), self.left
        joiner, _ = new_and_old(ctx, self.joiner, self.on_error)
        (value_serde,) = self.bound_serdes(ctx.task.application_id)
        value_bytes = value_serde.serialize
        drop, forward = ctx.drop, ctx.forward
        recheck = ctx.task.foreign_key_join_recheck and not left
        side: LeftSide = ctx.task.shared(self.topic, LeftSide)
        if self.table.value_serde(ctx) is value_serde:
            side.last = self.table.last_written(ctx) or side.last

        def answers(response: SubscriptionResponse, row: tuple[Any, int, bytes | None] | None) -> bool:
            """True if the response answers the subscription of the present row."""
            if row is None:
                return response.hash is None
            value, _, data = row
            # The bytes of the row are hashed first, because to serialize the value again costs more. If the hashes
            # differ, the sender may have hashed other bytes of the same value, for example with another schema id.
            if data is not None and value_hash(data) == response.hash:
                return True
            return value_hash(value_bytes(value)) == response.hash

        def join(key: Any, response: SubscriptionResponse, timestamp: int, headers: Headers) -> None:
            row = get(key)
            if not answers(response, row):
                drop("superseded")
                if (
                    recheck
                    and response.value is None
                    and (row is None or not side.ask(key, row[0], row[1], headers))
                ):
                    forward(key, None, timestamp, headers)
                return
            if response.value is None and (not left or row is None):
                forward(key, None, timestamp, headers)
            else:
                forward(key, joiner(None if row is None else row[0], response.value), timestamp, headers)

        return join
