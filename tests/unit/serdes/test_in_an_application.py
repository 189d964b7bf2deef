"""Serdes where an application meets them: in stores, in its web API, as columns of SQL."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from streamapp import (
    BooleanSerde,
    BytesSerde,
    FloatSerde,
    IntegerSerde,
    JsonSerde,
    ListSerde,
    Materialized,
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    StreamsBuilder,
    StringSerde,
    TopologyTestDriver,
    UUIDSerde,
    VoidSerde,
    Windowed,
)
from streamapp.runners.spark.typed import _converter
from streamapp.serdes.value_texts import as_document, serde_name
from streamapp.web.keys import parse_key
from streamapp.web.problem import BadParameter

ONE = UUID(int=1)


@pytest.mark.parametrize("store_type", ["rocksdb", "in_memory"])
def test_a_table_of_lists_by_uuid(store_type: str) -> None:
    builder = StreamsBuilder()
    numbers = ListSerde(IntegerSerde())

    def append(key: UUID, value: int | None, items: list[int | None]) -> list[int | None]:
        items.append(value)
        return items

    (
        builder.stream("in", key_serde=UUIDSerde(), value_serde=ShortSerde())
        .group_by_key()
        .aggregate(
            list,
            append,
            materialized=Materialized(
                "seen", key_serde=UUIDSerde(), value_serde=numbers, store_type=store_type
            ),
        )
        .to_stream()
        .map_values(lambda items: len(items) > 1)
        .to("out", key_serde=UUIDSerde(), value_serde=BooleanSerde())
    )
    with TopologyTestDriver(builder.build()) as driver:
        given = driver.create_input_topic("in", UUIDSerde(), ShortSerde())
        for value in (1, 2):
            given.pipe_input(ONE, value)
        assert driver.store("seen").get(ONE)[0] == [1, 2]
        assert [numbers.deserialize(r.value) for r in driver.produced[driver_changelog(driver)]] == [
            [1],
            [1, 2],
        ]
        read = driver.create_output_topic("out", UUIDSerde(), BooleanSerde()).read_key_values()
        assert read == [(ONE, False), (ONE, True)]


def driver_changelog(driver: TopologyTestDriver) -> str:
    return next(topic for topic in driver.produced if topic.endswith("-changelog"))


def test_keys_that_are_null_have_a_serde() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde=VoidSerde(), value_serde=StringSerde()).to(
        "out", key_serde=VoidSerde(), value_serde=StringSerde()
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", VoidSerde(), StringSerde()).pipe_input(None, "v")
        assert driver.create_output_topic("out", VoidSerde(), StringSerde()).read_key_values() == [
            (None, "v")
        ]


@pytest.mark.parametrize(
    ("serde", "key", "text", "name"),
    [
        (ShortSerde(), 5, "5", "short"),
        (FloatSerde(), 0.5, "0.5", "float"),
        (BooleanSerde(), True, "true", "boolean"),
        (UUIDSerde(), ONE, str(ONE), "uuid"),
        (ListSerde(BytesSerde()), [b"a", None], '["61", null]', "list(bytes)"),
        (ListSerde(UUIDSerde()), [ONE], f'["{ONE}"]', "list(uuid)"),
        (
            SessionWindowedSerde(UUIDSerde()),
            Windowed(ONE, 1, 2),
            f'{{"key": "{ONE}", "start": 1, "end": 2}}',
            "session_windowed(uuid)",
        ),
    ],
)
def test_keys_in_the_web_api(serde: Serde[Any], key: Any, text: str, name: str) -> None:
    assert parse_key(serde, text, "key") == (key, serde.serialize(key))
    shown = as_document(serde, key)
    assert (shown if isinstance(shown, str) else json.dumps(shown)) == text
    assert serde_name(serde) == name


@pytest.mark.parametrize(
    ("serde", "text"), [(UUIDSerde(), "1"), (ListSerde(UUIDSerde()), '["1"]'), (BooleanSerde(), "1")]
)
def test_wrong_keys_in_the_web_api(serde: Serde[Any], text: str) -> None:
    with pytest.raises(BadParameter, match="expected a key of this table"):
        parse_key(serde, text, "key")


@pytest.mark.parametrize(
    ("serde", "value", "column"),
    [
        (ShortSerde(), 5, pa.array([5, None], pa.int16())),
        (FloatSerde(), 0.5, pa.array([0.5, None], pa.float32())),
        (BooleanSerde(), True, pa.array([True, None])),
        (UUIDSerde(), ONE, pa.array([str(ONE), None])),
        (ListSerde(UUIDSerde()), [ONE, None], pa.array([[str(ONE), None], None])),
        (ListSerde(JsonSerde()), [{"a": 1}], pa.array(['[{"a":1}]', None])),
    ],
)
def test_columns_of_sql(serde: Serde[Any], value: Any, column: pa.Array) -> None:
    assert _converter(serde)([serde.serialize(value), None]) == column
