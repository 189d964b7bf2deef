"""Golden bytes are those of Kafka's serializers (org.apache.kafka.common.serialization)."""

from __future__ import annotations

import math
import pickle
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp.errors import ConfigError, SerializationError
from streamapp.records import Windowed
from streamapp.serdes import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
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
    VoidSerde,
)

MAX_LONG = 2**63 - 1
SOME_UUID = UUID("123e4567-e89b-12d3-a456-426614174000")

GOLDEN: list[tuple[Serde[Any], Any, str]] = [
    (StringSerde(), "", ""),
    (StringSerde(), "Kafka é 😀", "4b61666b6120c3a920f09f9880"),
    (LongSerde(), 0, "0000000000000000"),
    (LongSerde(), -1, "ffffffffffffffff"),
    (LongSerde(), MAX_LONG, "7fffffffffffffff"),
    (LongSerde(), -(2**63), "8000000000000000"),
    (IntegerSerde(), 1, "00000001"),
    (IntegerSerde(), -(2**31), "80000000"),
    (DoubleSerde(), 1.0, "3ff0000000000000"),
    (DoubleSerde(), -0.1, "bfb999999999999a"),
    (DoubleSerde(), math.inf, "7ff0000000000000"),
    (ShortSerde(), 258, "0102"),
    (ShortSerde(), -2, "fffe"),
    (FloatSerde(), 1.5, "3fc00000"),
    (FloatSerde(), -math.inf, "ff800000"),
    (BooleanSerde(), True, "01"),
    (BooleanSerde(), False, "00"),
    (UUIDSerde(), SOME_UUID, str(SOME_UUID).encode().hex()),
    (BytesSerde(), b"\x00\xff", "00ff"),
    (ListSerde(IntegerSerde()), [1, None, 3], "00" + "0000000100000001" + "00000003" + "0000000100000003"),
    (ListSerde(IntegerSerde()), [], "00" + "00000000" + "00000000"),
    (
        ListSerde(LongSerde()),
        [1, None, None],
        "00" + "000000020000000100000002" + "00000003" + "0000000000000001",
    ),
    (ListSerde(ShortSerde()), [1], "00" + "00000000" + "00000001" + "0001"),
    (ListSerde(FloatSerde()), [1.5], "00" + "00000000" + "00000001" + "3fc00000"),
    (ListSerde(DoubleSerde()), [1.5], "00" + "00000000" + "00000001" + "3ff8000000000000"),
    (
        ListSerde(UUIDSerde()),
        [SOME_UUID, None],
        "00" + "0000000100000001" + "00000002" + str(SOME_UUID).encode().hex(),
    ),
    (
        ListSerde(StringSerde()),
        ["a", None, "", "bc"],
        "01" + "00000004" + "0000000161" + "ffffffff" + "00000000" + "000000026263",
    ),
    (ListSerde(StringSerde()), [], "0100000000"),
    (
        ListSerde(BooleanSerde()),
        [True, None, False],
        "01" + "00000003" + "0000000101" + "ffffffff" + "0000000100",
    ),
    (
        ListSerde(BytesSerde()),
        [b"\x01\x02", None, b""],
        "01" + "00000003" + "000000020102" + "ffffffff" + "00000000",
    ),
    (
        ListSerde(ListSerde(IntegerSerde())),
        [[1], None, []],
        "01"
        + "00000003"
        + "0000000d"
        + "00000000000000000100000001"
        + "ffffffff"
        + "00000009"
        + "000000000000000000",
    ),
    (TimeWindowedSerde(StringSerde(), 1000), Windowed("k", 256, 1256), "6b0000000000000100"),
    (
        TimeWindowedSerde(LongSerde(), 10),
        Windowed(1, MAX_LONG - 5, MAX_LONG),
        "0000000000000001" + "7ffffffffffffffa",
    ),
    (
        SessionWindowedSerde(StringSerde()),
        Windowed("k", 1, 2),
        "6b" + "0000000000000002" + "0000000000000001",
    ),
]


@pytest.mark.parametrize(("serde", "value", "hexadecimal"), GOLDEN)
def test_bytes_are_kafkas(serde: Serde[Any], value: Any, hexadecimal: str) -> None:
    again = pickle.loads(pickle.dumps(serde))

    assert serde.serialize(value).hex() == hexadecimal
    assert again.deserialize(bytes.fromhex(hexadecimal)) == value
    assert type(serde.deserialize(bytes.fromhex(hexadecimal))) is type(value)


@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)), st.lists(st.none() | st.binary()))
def test_lists_round_trip(numbers: list[int | None], texts: list[bytes | None]) -> None:
    for serde, items in ((ListSerde(IntegerSerde()), numbers), (ListSerde(BytesSerde()), texts)):
        assert serde.deserialize(serde.serialize(items)) == items  # type: ignore[attr-defined]


@given(st.binary())
def test_any_bytes_are_a_list_or_an_error(data: bytes) -> None:
    for serde in (ListSerde(ShortSerde()), ListSerde(StringSerde())):
        try:
            serde.deserialize(data)
        except SerializationError:
            continue


def test_a_float_becomes_the_nearest_single() -> None:
    assert FloatSerde().serialize(0.1).hex() == "3dcccccd"
    assert FloatSerde().serialize(-0.0).hex() == "80000000"


def test_the_size_of_a_window_is_a_duration() -> None:
    assert TimeWindowedSerde(StringSerde(), timedelta(minutes=1)).window_size_ms == 60_000
    for size in (-1, timedelta(microseconds=1), 1.5, True):
        with pytest.raises(ConfigError, match="window_size_ms"):
            TimeWindowedSerde(StringSerde(), size)  # type: ignore[arg-type]


@given(
    st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, MAX_LONG - 10), st.integers(0, MAX_LONG)
)
def test_windowed_keys_round_trip(key: str, start: int, end: int) -> None:
    timed = Windowed(key, start, start + 10)
    session = Windowed(key, start, end)

    assert (
        TimeWindowedSerde(StringSerde(), 10).deserialize(
            TimeWindowedSerde(StringSerde(), 10).serialize(timed)
        )
        == timed
    )
    assert (
        SessionWindowedSerde(StringSerde()).deserialize(
            SessionWindowedSerde(StringSerde()).serialize(session)
        )
        == session
    )


@pytest.mark.parametrize(
    ("serde", "data", "message"),
    [
        (LongSerde(), b"1234567", r"expected 8 bytes \(a long\), got 7 bytes: b'1234567'"),
        (LongSerde(), b"123456789", "got 9 bytes"),
        (LongSerde(), b"", "got 0 bytes"),
        (IntegerSerde(), bytes(8), "expected 4 bytes"),
        (DoubleSerde(), bytes(4), "expected 8 bytes"),
        (StringSerde(), b"\xff", "expected UTF-8 text"),
        (ShortSerde(), b"1", "expected 2 bytes"),
        (FloatSerde(), b"123", "expected 4 bytes"),
        (BooleanSerde(), b"\x02", "expected 1 byte, 1 or 0"),
        (BooleanSerde(), b"\x01\x01", "expected 1 byte"),
        (UUIDSerde(), b"1", "text of a UUID"),
        (UUIDSerde(), b"123e4567e89b12d3a456426614174000", "text of a UUID"),
        (UUIDSerde(), b"123e4567-e89b-12d3-a456-42661417400g", "text of a UUID"),
        (VoidSerde(), b"", "expected null"),
        (ListSerde(IntegerSerde()), b"", "expected a list"),
        (ListSerde(IntegerSerde()), b"\x00", "expected a list"),
        (ListSerde(IntegerSerde()), b"\x02", "begins with 0 or 1"),
        (ListSerde(StringSerde()), bytes(9), "StringSerde cannot read them"),
        (ListSerde(IntegerSerde()), bytes.fromhex("00000000010000000000000002"), "item 1 .* cut off"),
        (
            ListSerde(IntegerSerde()),
            bytes.fromhex("00ffffffff00000000"),
            r"a negative number of items \(-1\)",
        ),
        (ListSerde(StringSerde()), bytes.fromhex("01ffffffff"), r"a negative number of items \(-1\)"),
        (ListSerde(StringSerde()), bytes.fromhex("0100000001fffffffe"), "item 0 .* cut off"),
        (ListSerde(StringSerde()), bytes.fromhex("010000000100000005"), "item 0 .* cut off"),
        (TimeWindowedSerde(StringSerde(), 1), b"short", "8 bytes of window start"),
        (SessionWindowedSerde(StringSerde()), bytes(15), "16 bytes of session end and start"),
    ],
)
def test_wrong_bytes_are_named(serde: Serde[Any], data: bytes, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        serde.deserialize(data)


@pytest.mark.parametrize(
    ("serde", "value", "message"),
    [
        (LongSerde(), 2**63, "64 bits"),
        (LongSerde(), 1.5, r"got 1\.5 \(float\)"),
        (IntegerSerde(), 2**31, "32 bits"),
        (DoubleSerde(), "1", r"expected a float, got '1' \(str\)"),
        (StringSerde(), 5, r"expected a str .* got 5 \(int\)"),
        (StringSerde(), "\ud800", "UTF-8"),
        (BytesSerde(), "text", "expected bytes"),
        (ShortSerde(), 2**15, "16 bits"),
        (FloatSerde(), 1e39, "range of a single"),
        (BooleanSerde(), 1, "expected a bool, got 1"),
        (UUIDSerde(), str(SOME_UUID), r"expected a uuid.UUID, got .* \(str\)"),
        (VoidSerde(), 0, r"expected None, got 0 \(int\)"),
        (ListSerde(StringSerde()), "text", r"expected a list, got 'text' \(str\)"),
        (ListSerde(StringSerde()), [1], "expected a str"),
        (TimeWindowedSerde(StringSerde(), 1), "key", r"expected Windowed.*'key' \(str\)"),
        (SessionWindowedSerde(StringSerde()), Windowed("k", "1", 2), "expected Windowed"),
        (TimeWindowedSerde(LongSerde(), 1), Windowed("k", 1, 2), "64 bits"),
    ],
)
def test_wrong_values_are_named(serde: Serde[Any], value: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        serde.serialize(value)


def test_windowed_keys_are_as_immutable_as_their_key() -> None:
    assert TimeWindowedSerde(StringSerde(), 1).immutable
    assert SessionWindowedSerde(LongSerde()).immutable
    assert not TimeWindowedSerde(JsonSerde(), 1).immutable


def test_bind_reaches_the_inner_serde() -> None:
    class Bound(StringSerde):
        def bind(self, topic: str, is_key: bool) -> Bound:
            bound = Bound()
            bound.topic = topic  # type: ignore[attr-defined]
            return bound

    for serde in (TimeWindowedSerde(Bound(), 1), SessionWindowedSerde(Bound()), ListSerde(Bound())):
        assert serde.bind("t", True).inner.topic == "t"  # type: ignore[attr-defined]
    plain = TimeWindowedSerde(StringSerde(), 1)
    assert plain.bind("t", True) is plain


def test_a_window_has_no_negative_size() -> None:
    with pytest.raises(ConfigError, match="negative"):
        TimeWindowedSerde(StringSerde(), -1)
