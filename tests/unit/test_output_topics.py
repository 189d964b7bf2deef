"""Output topics of the `TopologyTestDriver` read as those of Kafka Streams' driver do."""

from __future__ import annotations

import pytest

from streamapp import BytesSerde, StreamsBuilder, StringSerde, TopologyTestDriver

TEXT = StringSerde()


def test_objects_of_one_topic_read_each_record_once_between_them() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        early = driver.create_output_topic("out", TEXT, TEXT)
        driver.create_input_topic("in", TEXT, TEXT).pipe_key_values([("a", "1"), ("a", "2"), ("a", "3")])
        late = driver.create_output_topic("out", TEXT, BytesSerde())
        assert early.queue_size == late.queue_size == 3
        assert (early.read_value(), late.read_value(), early.read_value()) == ("1", b"2", "3")
        assert late.is_empty
        with pytest.raises(LookupError, match="no record left"):
            late.read_value()
        assert [record.value for record in driver.produced["out"]] == [b"1", b"2", b"3"]
