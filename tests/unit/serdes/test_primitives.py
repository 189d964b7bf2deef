"""Golden bytes are those of Kafka's serializers (org.apache.kafka.common.serialization)."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp.errors import ConfigError, SerializationError
from streamapp.records import Windowed
from streamapp.serdes import (
    BytesSerde,
    DoubleSerde,
    IntegerSerde,
    JsonSerde,
    LongSerde,
    Serde,
    SessionWindowedSerde,
    StringSerde,
    TimeWindowedSerde,
)

MAX_LONG = 2**63 - 1

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
    (BytesSerde(), b"\x00\xff", "00ff"),
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

    for serde in (TimeWindowedSerde(Bound(), 1), SessionWindowedSerde(Bound())):
        assert serde.bind("t", True).inner.topic == "t"  # type: ignore[attr-defined]
    plain = TimeWindowedSerde(StringSerde(), 1)
    assert plain.bind("t", True) is plain


def test_a_window_has_no_negative_size() -> None:
    with pytest.raises(ConfigError, match="negative"):
        TimeWindowedSerde(StringSerde(), -1)
