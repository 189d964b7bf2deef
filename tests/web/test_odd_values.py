"""Values that nobody expects: a listing shows each, or says that it cannot, and the rows around it."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from streamapp.errors import SerializationError
from streamapp.records import RecordBatch
from streamapp.serdes import JsonSerde, LongSerde, Serde, StringSerde
from streamapp.serdes.json_values import MAX_DEPTH, to_json
from streamapp.state.backend import MemoryBackend, WriteSet
from streamapp.state.open import open_store
from streamapp.state.spec import StoreSpec
from tests.store_kinds import kind_of, split

from .fakes import FakeSource, StoreTask


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Failing(dict[str, Any]):
    def items(self) -> Any:
        raise LookupError("no")


class Pairs(Serde[Any]):
    """JSON text in which half of a pair may be."""

    def serialize(self, value: Any) -> bytes:
        return str(value).encode("utf-8", "surrogatepass")

    def deserialize(self, data: bytes) -> Any:
        return data.decode("utf-8", "surrogatepass")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def opened(
    kind: Any, values: Serde[Any], rows: dict[bytes, bytes], keys: Serde[Any] | None = None, **spec: Any
) -> Any:
    """A store whose backend has rows that no serde has written."""
    backend = MemoryBackend()
    writes = WriteSet()
    writes.puts["t"] = list(rows.items())
    backend.write(writes)
    parameters, spec = split(spec)
    store_spec = StoreSpec(
        name="t",
        kind=kind_of(kind, **parameters),
        key_serde=keys or StringSerde(),
        value_serde=values,
        logged=False,
        **spec,
    )
    return open_store(store_spec, backend.table("t"), StoreTask())


async def listed(
    serve: Any, kind: str, store: Any, path: str = "/tables/t?limit=10", status: int = 200, **info: Any
) -> Any:
    source = FakeSource(partitions=1)
    source.add_table("t", kind, {0: store}, **info)
    client = await serve(source)
    response = await client.get(path)
    body = await response.json()
    assert response.status == status, body
    return body


@pytest.mark.parametrize("values", [JsonSerde(), LongSerde()])
async def test_rows_that_cannot_be_read_are_among_the_others(serve: Any, values: Serde[Any]) -> None:
    good = values.serialize(7)
    rows = {b"a": good, b"b": b"{no", b"c\xff": good, b"d": good}
    body = await listed(serve, "key_value", opened("key_value", values, rows))
    shown = [(entry["key"], entry["value"]) for entry in body["entries"]]
    assert [shown[0], shown[3]] == [("a", 7), ("d", 7)]
    assert shown[1][0] == "b"
    assert shown[1][1]["$base64"] == "e25v"
    assert "SerializationError" in shown[1][1]["$unreadable"]
    assert shown[2][0]["$base64"] == "Y/8="
    assert shown[2][1] == 7


VERSION = struct.pack(">qi", 5, 8) + bytes(8)
TIMES = {"session": struct.pack(">qq", 20, 10), "window": struct.pack(">qi", 10, 0)}


def of_key(store: Any, kind: str) -> list[Any]:
    """The rows of key b, as an operator reads them."""
    if kind == "versioned":
        return list(store.history("b"))
    return list(store.fetch("b") if kind == "session" else store.fetch("b", 0, 100))


@pytest.mark.parametrize("kind", ["window", "timestamped_window", "session", "versioned"])
async def test_a_listing_of_a_key_leaves_no_unreadable_row_in_the_store(serve: Any, kind: str) -> None:
    """Reads by key keep their rows in memory."""
    prefix = b"\0" + b"b" if kind == "versioned" else bytes(8) + b"b" + TIMES.get(kind, TIMES["window"])
    bad = struct.pack(">qi", 7, 3) + b"{no" if kind == "versioned" else b"{no"
    stamped = struct.pack(">q", 3) if kind == "timestamped_window" else b""
    rows = {prefix: VERSION + bad if kind == "versioned" else stamped + bad}
    observed = {} if kind == "versioned" else {b"\xff": struct.pack(">qiq", 20, 0, 60_000)}
    store = opened(kind, LongSerde(), rows | observed, retention_ms=1000, size_ms=10)
    sizes = {} if kind == "versioned" else {"size_ms": 10, "segment_interval_ms": 1000}
    body = await listed(serve, kind, store, "/tables/t?key=b&from=0&to=100", **sizes)
    assert body["entries"][-1]["value"]["$base64"] == "e25v"
    assert [entry["value"] for entry in body["entries"][:-1]] == [0] * (kind == "versioned")
    with pytest.raises(SerializationError):
        of_key(store, kind)


async def test_pages_go_on_behind_keys_that_cannot_be_read(serve: Any) -> None:
    rows = dict.fromkeys((b"a", b"b\xff", b"b\xff\xff", b"c"), b"1")
    source = FakeSource(partitions=1)
    source.add_table("t", "key_value", {0: opened("key_value", JsonSerde(), rows)})
    client = await serve(source)
    path, found = "/tables/t?limit=1", 0
    while path:
        body = await (await client.get(path)).json()
        found += len(body["entries"])
        path = body["next"]
    assert found == 4
    (table,) = (await (await client.get("/tables/")).json())["tables"]
    assert table["entries"] == {"count": 4, "exact": True}


@pytest.mark.parametrize("kind", ["key_value", "timestamped"])
async def test_a_key_whose_value_cannot_be_read_says_so_with_its_bytes(serve: Any, kind: str) -> None:
    time = b"\0" * 8 if kind == "timestamped" else b""
    store = opened(kind, JsonSerde(), {b"b": time + b"{no"})
    body = await listed(serve, kind, store, "/tables/t/b")
    assert "SerializationError" in body["value"]["$unreadable"]
    assert base64.b64decode(body["value"]["$base64"]) == b"{no"
    with pytest.raises(SerializationError):  # a record that needs the value still gets the error
        store.get("b")


async def test_a_listing_leaves_the_store_as_it_was(serve: Any) -> None:
    store = opened("key_value", LongSerde(), {b"b": b"short"})
    await listed(serve, "key_value", store)
    with pytest.raises(SerializationError):
        list(store.all())
    with pytest.raises(SerializationError):
        store.get("b")


@pytest.mark.parametrize("kind", ["window", "timestamped_window", "session", "versioned"])
async def test_stores_with_times_show_theirs(serve: Any, kind: Any) -> None:
    """Rows that were restored from a changelog whose records somebody else wrote."""
    backend = MemoryBackend()
    spec = StoreSpec(
        name="t",
        kind=kind_of(kind, retention_ms=1000, size_ms=10),
        key_serde=StringSerde(),
        value_serde=JsonSerde(),
        logged=False,
    )
    store = open_store(spec, backend.table("t"), StoreTask())
    times = {"session": struct.pack(">qq", 20, 10), "versioned": b""}.get(kind, struct.pack(">qi", 10, 0))
    writes = WriteSet()
    values = [b"1", b"{no", b"3"]
    store.restore(
        RecordBatch([key + times for key in (b"a", b"b", b"c")], values, [1, 2, 3], [10, 11, 12]),
        writes,
    )
    backend.write(writes)
    if kind == "versioned":
        body = await listed(serve, kind, store, "/tables/t?key=b&from=0&to=100")
        assert "$unreadable" in body["entries"][0]["value"]
        return
    body = await listed(serve, kind, store, size_ms=10, segment_interval_ms=1000)
    shown = [entry["value"] for entry in body["entries"]]
    assert shown[::2] == [1, 3]
    assert shown[1]["$base64"] == "e25v"


async def test_deep_values_are_shown_to_a_level(serve: Any) -> None:
    levels = JsonSerde().serialize(nested(700))
    body = await listed(serve, "key_value", opened("key_value", JsonSerde(), {b"a": levels, b"b": b"1"}))
    value = body["entries"][0]["value"]
    for _ in range(MAX_DEPTH):
        (value,) = value
    assert value == {"$deep": "[[[[[...]]]]]"}
    assert body["entries"][1]["value"] == 1


async def test_half_of_a_pair_is_shown(serve: Any) -> None:
    rows = {
        b"a": "x\ud800".encode("utf-8", "surrogatepass"),
        "k\udfff".encode("utf-8", "surrogatepass"): b"v",
    }
    body = await listed(
        serve, "key_value", opened("key_value", Pairs(), rows, keys=Pairs()), key_serde=Pairs()
    )
    assert [(entry["key"], entry["value"]) for entry in body["entries"]] == [
        ("a", "x\ud800"),
        ("k\udfff", "v"),
    ]


async def test_digits_that_python_does_not_print_are_shown(serve: Any) -> None:
    class Digits(Pairs):
        def deserialize(self, data: bytes) -> Any:
            return int.from_bytes(data, "big")

    body = await listed(serve, "key_value", opened("key_value", Digits(), {b"a": b"\x10" * 4000}))
    assert body["entries"][0]["value"] == {"$int": "0x" + "10" * 4000}


def cursor(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


@pytest.mark.parametrize("kind", ["key_value", "window", "session", "versioned"])
@pytest.mark.parametrize(
    "parameters",
    [
        {"limit": "9" * 5000},
        {"from": "9" * 5000, "to": "1"},
        {"from": "-" + "9" * 30},
        {"from": "0", "to": "9" * 30},
        {"key": "a", "from": "9" * 30},
        {"key": "a", "as_of": "9" * 30},
        {"cursor": base64.urlsafe_b64encode(b"[" * 5000).decode()},
        {"cursor": cursor(1, "YQ==", 10**30, 0, 0, 0)},
        {"cursor": cursor(1, "YQ==", 0, 10**30, -5, 10**30)},
        {"newest": "true", "from": "9" * 19},
    ],
    ids=str,
)
async def test_odd_parameters_are_answered(serve: Any, kind: Any, parameters: dict[str, str]) -> None:
    store = opened(kind, JsonSerde(), {}, retention_ms=1000, size_ms=10)
    source = FakeSource(partitions=1)
    source.add_table("t", kind, {0: store}, size_ms=10, segment_interval_ms=1000)
    client = await serve(source)
    response = await client.get("/tables/t", params=parameters)
    assert response.status in (200, 400, 404), await response.text()


@dataclass
class Point:
    x: Any


@dataclass
class Lazy:
    near: int

    def __getattribute__(self, name: str) -> Any:
        if name == "near":
            raise LookupError("no")
        return super().__getattribute__(name)


FAILED = {"$unreadable": "LookupError: LookupError('no')"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), {"$float": "nan"}),
        ({1: float("-inf")}, {"1": {"$float": "-inf"}}),
        (Decimal("1E+999999999"), "1E+999999999"),
        (Broken(), {"$repr": "<Broken whose repr fails: RuntimeError>"}),
        (Point(b"x"), {"x": {"$base64": "eA=="}}),
        (Failing(), FAILED),
        ({"a": 1, "m": Failing()}, {"a": 1, "m": FAILED}),
        ([1, Point(Failing()), 2], [1, {"x": FAILED}, 2]),
        ([Lazy(1), 2], [{"near": FAILED}, 2]),
    ],
    ids=[
        "NaN",
        "infinity",
        "decimal",
        "broken",
        "dataclass",
        "failing",
        "failing item",
        "failing field",
        "failing attribute",
    ],
)
def test_odd_objects_have_a_form(value: Any, shown: Any) -> None:
    assert to_json(value) == shown


def test_a_value_that_contains_itself_has_a_form() -> None:
    value: list[Any] = []
    value.append(value)
    assert "$deep" in str(to_json(value))
