"""`try_out`: runs operators on a few records in one line, for docstrings, notebooks and small tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamapp.config import StreamsConfig
from streamapp.dsl import KStream, KTable, StreamsBuilder
from streamapp.runners.local import TopologyTestDriver
from streamapp.serdes import JsonSerde, StringSerde

__all__ = ["try_out"]


def try_out(
    describe: Callable[..., KStream[Any, Any] | KTable[Any, Any]], *inputs: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Runs the operators of ``describe`` on a few records, and returns their results as (key, value) pairs, in order.

    Each input is a list of records, (key, value) or (key, value, timestamp in ms). ``describe`` gets one stream for
    each input and returns a stream or a table. All records of the first input are processed before those of the second,
    and so on. Keys are text and values are values of JSON, so no serde is needed. The results of a table are its
    changes, with None for a deletion.

    >>> try_out(lambda words: words.map_values(str.upper), [("a", "to"), ("b", "be")])
    [('a', 'TO'), ('b', 'BE')]
    """
    key, value = StringSerde(), JsonSerde()
    builder = StreamsBuilder(StreamsConfig(default_key_serde=key, default_value_serde=value))
    topics = [f"input-{number}" for number in range(len(inputs))]
    described = describe(*(builder.stream(topic) for topic in topics))
    stream = described.to_stream() if isinstance(described, KTable) else described
    results: list[Any] = []
    stream.foreach(lambda key, value: results.append((key, value)))
    with TopologyTestDriver(builder.build()) as driver:
        for topic, records in zip(topics, inputs, strict=True):
            written = driver.create_input_topic(topic, key, value)
            for record in records:
                written.pipe_input(*record)
    return results
