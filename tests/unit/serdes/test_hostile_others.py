"""Any bytes in the other formats: refused, or a value that is written again as a value that equals it; in bounded memory."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamapp import Materialized, StreamsBuilder, TimeWindows
from streamapp.engine.failures import error_headers
from streamapp.engine.operators.change import ChangeSerde
from streamapp.engine.operators.foreign_key import SubscriptionResponseSerde, SubscriptionSerde
from streamapp.errors import ProcessorStateError, SerializationError
from streamapp.records import RecordBatch
from streamapp.runners.spark.typed import _converter
from streamapp.serdes import (
    BooleanSerde,
    DoubleSerde,
    IntegerSerde,
    JsonSerde,
    ListSerde,
    LongSerde,
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    StringSerde,
    TimeWindowedSerde,
    UUIDSerde,
)
from streamapp.state.formats import BufferedChange, LeftOrRightSerde, unpack_headers, unpack_list
from tests.unit.engine.support import TEXTS, task_of
from tests.unit.serdes.hostile_avro import deep


class Refusing(msgspec.Struct):
    """A type of an application whose own check raises any error."""

    x: int = 0

    def __post_init__(self) -> None:
        raise LookupError("no")


SERDES: dict[str, Serde[Any]] = {
    "text": StringSerde(),
    "short": ShortSerde(),
    "boolean": BooleanSerde(),
    "UUID": UUIDSerde(),
    "JSON": JsonSerde(),
    "typed JSON": JsonSerde(dict[str, list[int]]),
    "list of text": ListSerde(StringSerde()),
    "list of numbers": ListSerde(IntegerSerde()),
    "list of lists": ListSerde(ListSerde(ShortSerde())),
    "window": TimeWindowedSerde(StringSerde(), 10),
    "session": SessionWindowedSerde(LongSerde()),
    "either side": LeftOrRightSerde(StringSerde(), LongSerde()),
    "change": ChangeSerde(StringSerde()),
    "subscription": SubscriptionSerde(StringSerde()),
    "response": SubscriptionResponseSerde(StringSerde()),
}


@pytest.mark.parametrize("name", SERDES)
@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80) | st.integers(0, 4).flatmap(lambda n: st.just(b"\0\0\0\1" * n)))
@example(b"")
@example(b"\x01\x7f\xff\xff\xff")
@example(b"\x00\x00\x00\x00\x00\x7f\xff\xff\xff")
@example(b"[" * 5000)
@example(b"1" * 5000)
@example(b'"\\ud800"')
@example(b"\xff" * 60)
def test_any_bytes_are_refused_or_a_value(name: str, data: bytes) -> None:
    serde = SERDES[name]
    try:
        value = serde.deserialize(data)
    except SerializationError as error:
        if len(str(error)) > 500:
            raise AssertionError("the message is long") from error
        return
    if getattr(value, "primary_partition", 0) is not None:  # of a response nobody writes it
        again = serde.deserialize(serde.serialize(value))
        if name == "change":  # whether it is the latest is read, and not written
            again, value = again[:2], value[:2]
        assert again == value or value != value


_HASH_AND_KEY = bytes(range(16)) + b"key"


@pytest.mark.parametrize("name", SERDES)
@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
@example(b"")
@example(b"\x01\x02" + _HASH_AND_KEY + bytes(4))
@example(b"\x01\x02" + _HASH_AND_KEY[:16] + bytes(3))
@example(b"\x01\x02" + _HASH_AND_KEY[:16] + b"\xff" + bytes(4))
@example(b"\x81\x02key" + bytes(4))
@example(b"\x00\x02" + _HASH_AND_KEY)
@example(b"\x00" + _HASH_AND_KEY)
@example(b"\x00" + _HASH_AND_KEY[:16])
@example(b"\x00" + _HASH_AND_KEY[:16] + b"\xff")
@example(b"\x80value")
def test_the_fast_decoder_takes_the_same_bytes(name: str, data: bytes) -> None:
    serde = SERDES[name]
    try:
        value = serde.deserialize(data)
    except SerializationError:
        with pytest.raises(Exception):  # noqa: B017, PT011 - the caller asks `deserialize` for the error
            serde.decoder()(data)
    else:
        decoded = serde.decoder()(data)
        assert decoded == value or value != value


@pytest.mark.parametrize(
    "serde", [IntegerSerde(), DoubleSerde(), StringSerde(), UUIDSerde(), JsonSerde(str), SERDES["window"]]
)
@pytest.mark.parametrize(
    "make", [lambda: 10**5000, lambda: deep(200_000, lambda inner: [inner], 1)], ids=["digits", "deep"]
)
def test_a_value_that_cannot_even_be_shown_is_refused(serde: Serde[Any], make: Any) -> None:
    with pytest.raises(SerializationError):
        serde.serialize(make())


def test_a_type_of_the_application_may_raise_anything() -> None:
    with pytest.raises(SerializationError, match="no"):
        JsonSerde(Refusing).deserialize(b"{}")


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (SERDES["list of text"], b"\x01\x00\x00\x00\x00more"),
        (SERDES["list of numbers"], struct.pack(">Biii", 0, 1, -1, 0)),
        (SERDES["list of numbers"], struct.pack(">Biii", 0, 1, 5, 0)),
        (UUIDSerde(), b"0x000000-0000-0000-0000-00000_000000"),
        (SERDES["change"], b"\xff" * 400_000 + b"\x02"),
        (SERDES["change"], b"\x7fshort\x02"),
    ],
)
def test_bytes_that_were_read_wrong_are_refused(serde: Serde[Any], data: bytes) -> None:
    with pytest.raises(SerializationError):
        serde.deserialize(data)


@pytest.mark.parametrize("unpack", [unpack_list, unpack_headers, BufferedChange.unpack])
@pytest.mark.parametrize("data", [b"", b"\x01\x7f\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x01\xff\xff\xff\xff"])
def test_entries_that_are_not_there_are_not_made_up(unpack: Any, data: bytes) -> None:
    with pytest.raises(SerializationError):
        unpack(data)


def test_a_changelog_of_other_records_is_named() -> None:
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_with_no_grace(10)
    builder.stream("in", **TEXTS).group_by_key().windowed_by(windows).count(materialized=Materialized("s"))
    task, _ = task_of(builder, init=False)
    with pytest.raises(ProcessorStateError, match="app-s-changelog has records between the offsets 3 and 3"):
        task.restore("s", RecordBatch([b"short"], [b"12345678"], [0], [3]))


def test_dead_letters_have_headers_that_fit() -> None:
    def recurse(n: int) -> None:
        try:
            recurse(n - 1) if n else None
            raise ValueError("x" * 50_000)
        except ValueError as error:
            raise LookupError("y" * 50_000) from error

    with pytest.raises(LookupError) as caught:
        recurse(100)
    headers = dict(error_headers(caught.value))
    assert sum(len(value or b"") for value in headers.values()) < 40_000
    assert (headers["__streams.errors.message"] or b"").startswith(b"yyy")


def test_columns_of_sql_show_what_has_no_type_and_name_what_does_not_fit() -> None:
    rows = [b"[" * 400 + b"]" * 400, b'{"a":1}', b"1" * 400]
    shown = _converter(JsonSerde())(rows).to_pylist()
    assert shown[1] == '{"a":1}'
    with pytest.raises(SerializationError, match="SQL has no int64"):
        _converter(JsonSerde(int))([b"1" * 40])
