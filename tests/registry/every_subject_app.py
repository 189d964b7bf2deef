"""An application that registers subjects in each way: topics, stores, a foreign-key join, global tables, retries."""

from __future__ import annotations

import os

from streamapp import AvroSerde, Materialized, Retry, Serde, StreamsBuilder, TimeWindows
from tests.registry.environment import application

NAME = os.environ["SUBJECTS_NAME"]
TEXT: Serde[str] = AvroSerde("string")


def fails(value: str) -> str:
    raise ValueError(value)


def describe(builder: StreamsBuilder) -> None:
    both = {"key_serde": TEXT, "value_serde": TEXT}
    left = builder.table(f"{NAME}-left", **both)
    right = builder.table(f"{NAME}-right", **both)
    left.join(right, "{}{}".format, foreign_key=lambda value: value, name="fk").to_stream().to(
        f"{NAME}-out", **both
    )
    left.group_by(lambda key, value: (value, key), name="again", **both).reduce(
        lambda old, new: new, lambda old, new: old, materialized=Materialized("grouped")
    )
    stream = builder.stream(f"{NAME}-stream", **both)
    grouped = stream.group_by_key()
    grouped.reduce(lambda old, new: new, materialized=Materialized("unlogged", logging=False))
    grouped.windowed_by(TimeWindows.of_size_with_no_grace(10)).reduce(
        lambda old, new: new, materialized=Materialized("windows")
    )
    rows = builder.global_table(f"{NAME}-global", **both)
    stream.join(rows, "{}{}".format, key_selector=lambda key, _: key).to(f"{NAME}-joined", **both)
    stream.map_values(fails, name="parked", on_error=Retry.by_key(then="skip"))
    stream.map_values(fails, name="staged", on_error=Retry.topics(1, then="skip"))


app = application("SUBJECTS", describe)
