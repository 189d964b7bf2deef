"""Each key that a listing shows can be asked for in the same form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from google.protobuf.duration_pb2 import Duration
from google.protobuf.source_context_pb2 import SourceContext
from pydantic import BaseModel

from streamapp.records import Windowed
from streamapp.serdes import (
    AvroSerde,
    BytesSerde,
    DoubleSerde,
    JsonSerde,
    ListSerde,
    ProtobufSerde,
    Serde,
    SessionWindowedSerde,
    StringSerde,
)
from streamapp.serdes.json_values import to_json
from streamapp.serdes.value_texts import as_document, text_form
from streamapp.web.connections import LimitedRunner
from streamapp.web.keys import parse_key
from streamapp.web.server import add_routes

from .fakes import FakeSource, key_value_stores

ONE, DAY = UUID(int=1), datetime(2013, 12, 1, 3, 4, 5, tzinfo=UTC)
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
RECORD = {
    "type": "record",
    "name": "Of",
    "fields": [
        {"name": "price", "type": ["null", CENTS]},
        {"name": "at", "type": {"type": "array", "items": MOMENT}},
        {"name": "day", "type": {"type": "map", "values": {"type": "int", "logicalType": "date"}}},
        {"name": "hour", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "other", "type": ["null", "Two"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}
WHOLE = {
    "price": Decimal("1.50"),
    "at": [DAY],
    "day": {"a": date(2013, 12, 1)},
    "hour": time(4, 5),
    "id": ONE,
    "raw": b"\0\xff",
    "local": datetime(2013, 12, 1, 0, 0, 0, 7),
    "other": b"ab",
    "kind": "B",
}


@dataclass(frozen=True)
class Of:
    price: Decimal
    at: datetime
    id: UUID
    raw: bytes


class Model(BaseModel):
    carrier: str
    number: int


OF = Of(Decimal("1.50"), DAY, ONE, b"\0\xff")

KEYS: list[tuple[Serde[Any], Any]] = [
    (AvroSerde("bytes"), b"a"),
    (AvroSerde(["string", "bytes"]), "61"),
    (AvroSerde(["string", "bytes"]), b"a"),
    (AvroSerde(["bytes", "string"]), "YQ=="),
    (AvroSerde(["null", "double"]), float("-inf")),
    (AvroSerde(CENTS), Decimal("1.50")),
    (AvroSerde(MOMENT), DAY),
    (AvroSerde(RECORD), WHOLE),
    (AvroSerde({"type": "map", "values": "string"}), {"$base64": "YQ=="}),
    (JsonSerde(), {"$base64": "YQ=="}),
    (JsonSerde(), {"$base64": "a"}),
    (JsonSerde(), {"seat": {"$int": "12F, by the window"}}),
    (JsonSerde(Of), OF),
    (AvroSerde(type=Model), Model(carrier="UA", number=1545)),
    (ProtobufSerde(Duration), Duration(seconds=3, nanos=5)),
    (ProtobufSerde(SourceContext, type=dict), {"file_name": "a"}),
    (DoubleSerde(), float("inf")),
    (DoubleSerde(), float("nan")),
    (ListSerde(DoubleSerde()), [float("inf"), 1.5]),
    (ListSerde(BytesSerde()), [b"a"]),
    (SessionWindowedSerde(AvroSerde(CENTS)), Windowed(Decimal("1.50"), 1, 2)),
]


@pytest.mark.parametrize(("serde", "key"), KEYS, ids=lambda each: type(each).__name__)
def test_a_shown_key_can_be_asked_for(serde: Serde[Any], key: Any) -> None:
    shown = as_document(serde, key)
    text = shown if isinstance(shown, str) and text_form(serde) != "json" else json.dumps(shown)
    assert parse_key(serde, text, "key")[1] == serde.serialize(key)


def test_bytes_do_not_look_like_text() -> None:
    either = AvroSerde(["string", "bytes"])
    assert as_document(either, b"a") != as_document(either, "61")
    assert as_document(BytesSerde(), b"a") == "61"


def test_items_whose_keys_have_the_same_text_are_pairs() -> None:
    assert to_json({1: "a", 2: "b"}) == {"1": "a", "2": "b"}
    assert to_json({1: "a", "1": {None: 0, "None": 1}}) == {
        "$items": [[1, "a"], ["1", {"$items": [[None, 0], ["None", 1]]}]]
    }
    assert to_json({b"a": 1, "{'$base64': 'YQ=='}": 2}) == {
        "$items": [[{"$base64": "YQ=="}, 1], ["{'$base64': 'YQ=='}", 2]]
    }


class LimitedServer(TestServer):
    """A server with the limits of a worker's."""

    async def _make_runner(self, **_: Any) -> LimitedRunner:
        return LimitedRunner(self.app)


async def large(serve: Any, *keys: str) -> Any:
    """A client of a table with these keys."""
    source = FakeSource(partitions=2)
    source.add_table("t", "key_value", key_value_stores(source, dict.fromkeys(keys, 1), StringSerde()))
    app = web.Application()
    add_routes(app, source)
    return await serve(source, LimitedServer(app))


async def test_pages_go_on_behind_large_keys(serve: Any) -> None:
    keys = ["a", "b" * 10_000, "c" * 30_000, "d"]
    client, path, found = await large(serve, *keys), "/tables/t?limit=1", []
    while path:
        response = await client.get(path)
        assert response.status == 200, await response.text()
        body = await response.json()
        found += [entry["key"] for entry in body["entries"]]
        path = body["next"]
    assert found == keys
    assert (await (await client.get(f"/tables/t?key={keys[2]}")).json())["key"] == keys[2]


async def test_a_page_that_ends_at_a_key_too_large_for_a_url_says_what_to_do(serve: Any) -> None:
    client = await large(serve, "a", "b" * 100_000, "c")
    response = await client.get("/tables/t?limit=2")
    body = await response.json()
    assert (response.status, body["parameter"]) == (400, "limit")
    assert "a key of 100,000 bytes" in body["error"]
    body = await (await client.get("/tables/t?limit=3")).json()
    assert [len(entry["key"]) for entry in body["entries"]] == [1, 100_000, 1]


async def test_odd_texts_are_keys(serve: Any) -> None:
    keys = [
        "a/b",
        "100%",
        "%2F",
        "new\nline",
        "\n",
        "nul\0x",
        "",
        "..",
        ".",
        "ü😀",
        "a b",
        "a+b",
        "a?b#c",
        "&k=v",
    ]
    source = FakeSource(partitions=2)
    source.add_table("t", "key_value", key_value_stores(source, dict.fromkeys(keys, 1), StringSerde()))
    client = await serve(source)
    listed = (await (await client.get("/tables/t?limit=100")).json())["entries"]
    assert sorted(entry["key"] for entry in listed) == sorted(keys)
    for key in keys:
        by_path = f"/tables/t/{quote(key, safe='')}" if key.strip(".") else None
        for path in filter(None, (by_path, f"/tables/t?key={quote(key, safe='')}")):
            body = await (await client.get(path)).json()
            assert body.get("key") == key, body
