"""Records to which a timestamp extractor gives no time."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp import StreamsBuilder, StreamsConfig, StringSerde, TopologyTestDriver
from streamapp.errors import StreamsError

TEXT = StringSerde()


def departed(record: Any, partition_time: int) -> Any:
    return int(record.value.split("@")[1])


def no_number(record: Any, partition_time: int) -> Any:
    return "soon"


def failed(extractor: Any, **config: Any) -> str:
    builder = StreamsBuilder(StreamsConfig("app", processing_exception_handler="continue", **config))
    builder.stream("in", key_serde=TEXT, value_serde=TEXT, timestamp_extractor=extractor).foreach(print)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        with pytest.raises(StreamsError) as caught:
            topic.pipe_input("JFK", "a secret", timestamp=1)
    return str(caught.value)


@pytest.mark.parametrize(
    ("extractor", "why"),
    [
        (departed, "list index out of range"),
        (no_number, "it has to give an int, ms since 1970 in at most 64 bits, and gave 'soon'"),
        (lambda record, partition_time: 2**63, "in at most 64 bits, and gave 9223372036854775808"),
    ],
)
def test_the_error_names_the_record_and_the_way_on(extractor: Any, why: str) -> None:
    text = failed(extractor)
    assert "record of in-0 at offset 0 has no time: the extractor failed" in text
    assert why in text
    assert "let the extractor return a negative number" in text
    assert "--topic in --partition 0 --offset 0" in text


def test_the_error_masks_the_record() -> None:
    """The error had the whole record, also with show_record."""
    text = failed(departed, show_record=lambda key, value: "a flight")
    assert "a flight" in text
    assert "secret" not in text
