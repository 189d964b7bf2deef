"""An application whose schemas the tests change by a variable."""

from __future__ import annotations

import os
from typing import Any

from streamapp import (
    AvroSerde,
    JsonSchemaSerde,
    Materialized,
    StreamsBuilder,
    StringSerde,
)
from tests.registry.environment import application

NAME = os.environ["ORDERS_NAME"]
FIELDS: list[dict[str, Any]] = [{"name": "id", "type": "string"}]
MORE: dict[str, list[dict[str, Any]]] = {
    "": [],
    "compatible": [{"name": "cents", "type": "long", "default": 0}],
    "incompatible": [{"name": "cents", "type": "long"}],
}
ORDER = {"type": "record", "name": "Order", "fields": FIELDS + MORE[os.environ.get("ORDERS_CHANGE", "")]}
SUMMARY = {"title": "Summary", "type": "object", "properties": {"count": {"type": "integer"}}}

orders: AvroSerde[Any] = AvroSerde(ORDER)
summaries: JsonSchemaSerde[Any] = JsonSchemaSerde(SUMMARY)


def describe(builder: StreamsBuilder) -> None:
    stream = builder.stream(f"{NAME}-in", key_serde=StringSerde(), value_serde=orders)
    stream.to(f"{NAME}-out", key_serde=StringSerde(), value_serde=orders)
    counted = stream.group_by_key().aggregate(
        lambda: {"count": 0},
        lambda key, value, sums: {"count": sums["count"] + 1},
        materialized=Materialized("sums", value_serde=summaries),
    )
    stream.group_by_key().reduce(
        lambda old, new: new, materialized=Materialized("latest", value_serde=orders)
    )
    counted.to_stream().to(f"{NAME}-sums", key_serde=StringSerde(), value_serde=summaries)


app = application("ORDERS", describe)
