"""A row that is no record gets the answer that the engine gives to a record that cannot be decoded."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from streamapp import (
    BytesSerde,
    JsonSerde,
    OutputRecord,
    Response,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Topology,
    TopologyTestDriver,
)
from streamapp._base.partitioning import partition_for
from streamapp.errors import BrokerError, StreamsError
from streamapp.runners.spark import columns
from streamapp.runners.spark.columns import RAW, _Encoder
from streamapp.runners.spark.partitioning import PartitionCounts
from streamapp.topology.nodes import SourceNode

pytestmark = pytest.mark.spark

BYTES = BytesSerde()
OWN = OutputRecord("own", b"N1", b"mine", 7, (("why", b"far"),), 1)


class Departure(msgspec.Struct, frozen=True):
    delay: int


def breaks(*_: Any) -> Any:
    raise LookupError("no answer")


ANSWERS: dict[str, Any] = {
    "fail": "fail",
    "continue": "continue",
    "skip": "skip",
    "dead_letter": lambda *_: "dead_letter",
    "resume": lambda *_: Response.resume(),
    "own letter": lambda *_: Response.resume(OWN, OWN._replace(partition=None)),
    "fail with a letter": lambda *_: Response.fail(OWN),
    "no answer": lambda *_: "ignore",
    "broken": breaks,
}


def config(answer: Any, letters: str | None) -> StreamsConfig:
    return StreamsConfig("columns", deserialization_exception_handler=answer, dead_letter_queue_topic=letters)


def topology() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("flights", key_serde=StringSerde(), value_serde=JsonSerde(Departure), name="read")
    stream.to("out", key_serde=StringSerde(), value_serde=JsonSerde(Departure))
    return builder.build()


def of_the_engine(settings: StreamsConfig) -> list[tuple[Any, ...]] | None:
    """Dropped records and letters without their traceback and value; None: the task ends."""
    with TopologyTestDriver(topology(), settings) as driver:
        source = driver.create_input_topic("flights", BYTES, BYTES)
        try:
            source.pipe_input(None, b"far", 5_000)
        except StreamsError:
            return None
        return [
            (topic, record.key, *names(record.headers))
            for topic in ("letters", "own")
            for record in driver.create_output_topic(topic, BYTES, BYTES).read_records()
        ]


def names(headers: Any) -> list[str]:
    return [name for name, _ in headers]


def encoded(settings: StreamsConfig, delay: str | int = "far") -> list[dict[str, Any]]:
    plan = topology().plan(settings)
    node = plan.subtopologies[0].source_of("flights")
    assert isinstance(node, SourceNode)
    rows = pa.RecordBatch.from_pylist(
        [{"key": "N1", "value": {"delay": delay}, "timestamp": 5_000, RAW: None}],
        pa.schema(
            [
                ("key", pa.string()),
                ("value", pa.struct([("delay", pa.array([delay]).type)])),
                ("timestamp", pa.int64()),
                (RAW, pa.string()),
            ]
        ),
    )
    encoder = _Encoder("flights", node, settings, 7, PartitionCounts({"own": 31}, 40), False)
    return [row for batch in encoder(iter([rows])) for row in batch.to_pylist()]


def of_spark(settings: StreamsConfig) -> list[tuple[Any, ...]] | None:
    try:
        rows = encoded(settings)
    except StreamsError:
        return None
    assert [row["rejected"] for row in rows] == [True] * len(rows)
    assert [row["topic"] for row in rows].count(None) == 1  # the dropped row
    return [
        (row["topic"], row["key"], *(each["key"] for each in row["headers"]))
        for row in sorted(rows, key=lambda row: row["topic"] or "")
        if row["topic"] is not None
    ]


@pytest.mark.parametrize("letters", ["letters", None])
@pytest.mark.parametrize("answer", ANSWERS)
def test_spark_gives_the_answer_of_the_engine(answer: str, letters: str | None) -> None:
    settings = config(ANSWERS[answer], letters)
    assert of_spark(settings) == of_the_engine(settings)


def test_a_letter_of_a_handler_is_kept_as_made() -> None:
    rows = encoded(config(ANSWERS["own letter"], None))
    chosen, by_key = (row for row in rows if row["topic"] == "own")
    assert (chosen["task"], chosen["key"], chosen["value"], chosen["timestamp"]) == (1, b"N1", b"mine", 7)
    assert chosen["headers"] == [{"key": "why", "value": b"far"}]
    assert {**by_key, "task": 1} == chosen
    assert by_key["task"] == partition_for(b"N1", 31)


def test_a_letter_for_a_topic_that_is_not_known_counts_on_the_widest_source() -> None:
    own = OutputRecord("elsewhere", b"N1", None, 7)
    rows = encoded(config(lambda *_: Response.resume(own), None))
    assert [row["task"] for row in rows if row["topic"] == "elsewhere"] == [partition_for(b"N1", 40)]


def test_a_record_is_in_the_partition_of_its_source() -> None:
    (row,) = encoded(config("fail", None), delay=5)
    assert (row["task"], row["topic"]) == (partition_for(b"N1", 7), None)


def test_no_handler_is_asked_about_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(value: Any) -> bytes:
        raise BrokerError("the registry does not answer")

    monkeypatch.setattr(columns, "_writer", lambda serde: refuse)
    with pytest.raises(BrokerError, match="the registry does not answer"):
        encoded(config("continue", "letters"))


def test_show_record_masks_the_row() -> None:
    settings = config("fail", None).replace(show_record=lambda key, value: f"{len(value or b'')} bytes")
    with pytest.raises(
        StreamsError, match="is no record: 15 bytes: ValidationError .its text is hidden"
    ) as caught:
        encoded(settings)
    assert "far" not in str(caught.value)
    assert caught.value.__cause__ is None
