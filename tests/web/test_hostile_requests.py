"""Whatever is sent to the web server, the answer is never an internal error, and the next request is answered."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote

import faust
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamapp.serdes import (
    BytesSerde,
    DoubleSerde,
    IntegerSerde,
    JsonSerde,
    ListSerde,
    LongSerde,
    Serde,
    SessionWindowedSerde,
    ShortSerde,
    StringSerde,
    TimeWindowedSerde,
    UUIDSerde,
)
from streamapp.web import connections
from streamapp.web.server import install
from streamapp.web.table_request import Position
from tests.processes import free_port

from .fakes import FakeSource, open_empty

EXAMPLES = int(os.environ.get("EXAMPLES", "150"))
"""A run by hand may have more: EXAMPLES=20000."""


@dataclasses.dataclass
class Trip:
    carrier: str
    number: int


SERDES: dict[str, Serde[Any]] = {
    "string": StringSerde(),
    "long": LongSerde(),
    "integer": IntegerSerde(),
    "short": ShortSerde(),
    "double": DoubleSerde(),
    "uuid": UUIDSerde(),
    "bytes": BytesSerde(),
    "json": JsonSerde(),
    "typed": JsonSerde(Trip),
    "list": ListSerde(StringSerde()),
    "windowed": TimeWindowedSerde(StringSerde(), 10),
    "session-windowed": SessionWindowedSerde(JsonSerde()),
}
KEYS: dict[str, list[Any]] = {
    "string": ["JFK", "ü/ %", ""],
    "long": [-5, 2**62],
    "bytes": [b"\x00\xff"],
    "json": [{"id": 1}, [1, "a"]],
}
KINDS = {
    "key_value": {},
    "timestamped": {},
    "lru": {"max_entries": 10},
    "window": {"retention_ms": 1_000, "size_ms": 10, "segment_interval_ms": 60},
    "timestamped_window": {"retention_ms": 1_000, "size_ms": 10, "segment_interval_ms": 60},
    "session": {"retention_ms": 1_000, "segment_interval_ms": 60},
    "versioned": {"retention_ms": 1_000},
}


def everything() -> FakeSource:
    """A table of each kind, and one of each serde."""
    source = FakeSource(2)
    for kind, options in KINDS.items():
        stores = {p: open_empty(kind, kind, **options) for p in range(2)}  # type: ignore[arg-type]
        for n, key in enumerate(["JFK", "ü/ %"]):
            store = stores[source.partition_for(kind, key.encode())]
            arguments = {
                "key_value": (key, n), "timestamped": (key, n, 5), "lru": (key, n), "window": (key, n, 20),
                "timestamped_window": (key, n, 20, 25), "session": (key, 10, 20, n), "versioned": (key, n, 20),
            }[kind]  # fmt: skip
            store.put(*arguments)
        source.add_table(kind, kind, stores, size_ms=10, segment_interval_ms=60)
    for name, serde in SERDES.items():
        stores = {p: open_empty(name, "key_value", serde) for p in range(2)}
        for key in KEYS.get(name, ()):
            stores[source.partition_for(name, serde.serialize(key))].put(key, 1)
        source.add_table(name, "key_value", stores, key_serde=serde)
    source.add_table("internal", "suppress_buffer", {0: object(), 1: object()})
    source.add_table("elsewhere", "key_value", {}, owners={0: None, 1: "http://127.0.0.1:9"})
    return source


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """A server with the views and Faust's pages, in a thread of its own."""
    patched = pytest.MonkeyPatch()
    patched.setattr(connections, "HEAD_SECONDS", 0.5)
    loop = asyncio.new_event_loop()
    app = faust.App("t", broker="kafka://localhost:1", debug=True, web_port=free_port(), web_bind="127.0.0.1")
    install(app, everything())

    async def start() -> int:
        app.web.init_server()
        await app.web.start_server()
        return int(app.web._runner.addresses[0][1])

    port = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield "127.0.0.1", port
    asyncio.run_coroutine_threadsafe(app.web.stop_server(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()
    patched.undo()


def sent(address: tuple[str, int], data: bytes, method: str = "GET") -> tuple[int, bytes]:
    """Status and body of the answer; 0: the server has closed without one."""
    with socket.create_connection(address, timeout=60) as connection:
        try:
            connection.sendall(data)
            response = HTTPResponse(connection, method=method)
            response.begin()
            return response.status, response.read()
        except (ConnectionError, HTTPException):
            return 0, b""


NESTED = 5_000
NUMBERS = st.sampled_from(
    [
        "0",
        "-1",
        "²",
        "٣",
        "9" * 19,
        "9" * 30,
        "9" * 4_400,
        "-" + "9" * 4_400,
        "1e999",
        "nan",
        "inf",
        "0x1",
        "1_0",
        "+1",
    ]
)
TEXTS = st.one_of(
    NUMBERS,
    st.text(max_size=20),
    st.text(st.characters(codec=None), max_size=5),
    st.sampled_from(
        [
            "null", "true", "[]", "{}", "[null]", '{"id": 1}', '{"key": null, "start": 1}', '{"key": "a", "start": "x"}',
            '{"key": "a", "start": 1e999, "end": 1}', '{"key": {"a": []}, "start": 0, "end": 9}', '"\\ud800"', "[1e400]",
            "[" * NESTED, "[" * NESTED + "]" * NESTED, '{"a":' * NESTED + "1" + "}" * NESTED, "00ff", "0", "%", "\x00",
            "2013-12-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T24:00",
            "2013-12-01T00:00:00+99:99", "JFK", "ü/ %",
        ]
    ),
)  # fmt: skip
BIG = st.sampled_from([0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**70, 10**400])
CURSORS = st.one_of(
    TEXTS,
    st.builds(lambda *position: Position(*position).cursor(), BIG, st.binary(max_size=12), BIG, BIG, BIG),
    st.recursive(
        st.none() | st.booleans() | st.floats() | BIG | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ).map(lambda document: base64.urlsafe_b64encode(json.dumps(document).encode()).decode()),
    st.builds(lambda data: base64.urlsafe_b64encode(data).decode(), st.binary(max_size=40)),
    st.just(base64.urlsafe_b64encode(b"[" * 9_000).decode()[:8_000]),
)
NAMES = st.sampled_from(
    ["from", "to", "prefix", "limit", "cursor", "newest", "stale", "as_of", "key", "partitions", "x"]
)
TABLES = st.sampled_from([*KINDS, *SERDES, "internal", "elsewhere", "none", "²", ""])
PARAMETERS = st.lists(
    NAMES.flatmap(
        lambda name: st.tuples(
            st.just(name),
            CURSORS
            if name == "cursor"
            else st.sampled_from(["true", "false"]) | TEXTS
            if name in ("newest", "stale")
            else TEXTS,
        )
    ),
    max_size=4,
)


def escaped(text: str) -> str:
    return quote(text.encode(errors="surrogatepass"), safe="")


def query_of(parameters: list[tuple[str, str]]) -> str:
    return "&".join(f"{name}={escaped(value)}" for name, value in parameters)


PATHS = st.one_of(
    st.builds(lambda table, query: f"/tables/{escaped(table)}/?{query_of(query)}", TABLES, PARAMETERS),
    st.builds(
        lambda table, key, query: f"/tables/{escaped(table)}/{escaped(key)}?{query_of(query)}", TABLES, TEXTS, PARAMETERS
    ),
    st.builds(
        lambda path, query: f"{path}?{query_of(query)}",
        st.sampled_from(
            ["/", "/status", "/health/ready", "/health/live", "/metrics", "/topology", "/pause", "/resume", "/tables",
             "/faust/", "/graph", "/static/page.js", "/static/../server.py", "/static/%2e%2e/server.py", "*", "//", "/%00"]
        ),
        PARAMETERS | st.lists(st.tuples(st.sampled_from(["task", "format", "workers"]), TEXTS), max_size=2),
    ),
)  # fmt: skip
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            ["Host", "Origin", "Sec-Fetch-Site", "X-Streamapp-Forwarded", "Cookie", "Authorization", "Range", "If-None-Match",
             "If-Modified-Since", "Accept", "Accept-Encoding", "Content-Type", "Transfer-Encoding", "Content-Length", "Expect",
             "Upgrade", "Connection", "X-Request-Id"]
        ),
        st.sampled_from(
            ["", "null", "http://[", "http://[::1", "http://a:99999", "²", "a b", "bytes=-1", "bytes=9-1", "bytes=x", "*", "chunked",
             "-1", "9" * 4_400, "100-continue", "websocket", "upgrade", "gzip", "localhost", "same-site", "0,1", "\xff"]
        )
        | st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=20),
    ),
    max_size=3,
)  # fmt: skip
METHODS = st.sampled_from(
    ["GET"] * 6 + ["POST", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "X", "get"]
)


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(method=METHODS, path=PATHS, headers=HEADERS, body=st.binary(max_size=30))
@example("GET", f"/tables/window/?from={'9' * 4_400}", [], b"")
@example("GET", f"/tables/key_value/?limit={'9' * 4_400}", [], b"")
@example("GET", f"/tables/json/{quote('[' * 1_000)}", [], b"")
@example("GET", "/tables/list/null", [], b"")
@example("GET", f"/tables/long/?cursor={Position(2**70, b'x').cursor()}", [], b"")
@example("GET", "/tables/long/?cursor=" + Position(0, b"short").cursor(), [], b"")
@example("GET", "/tables/key_value/?limit=5", [("X-Streamapp-Forwarded", "²")], b"")
@example("GET", "/status", [("Expect", "\x80")], b"")
@example("POST", "/pause", [("Origin", "http://[::1")], b"")
def test_no_request_is_an_internal_error(
    address: tuple[str, int], method: str, path: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    named = {name for name, _ in headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    lines += [] if "Host" in named else ["Host: localhost"]
    lines += [] if named & {"Content-Length", "Transfer-Encoding"} else [f"Content-Length: {len(body)}"]
    status, answer = sent(
        address, "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1") + body
    )
    assert status < 500 or status == 503, (path, answer)
    if status == 503:  # another worker's, or nobody's, and said so
        assert "elsewhere" in path, (path, answer)
    assert sent(address, b"GET /health/ready HTTP/1.0\r\n\r\n")[0] == 200


@settings(max_examples=EXAMPLES // 3, suppress_health_check=list(HealthCheck))
@given(
    data=st.binary(max_size=200),
    start=st.sampled_from([b"", b"GET ", b"GET / HTTP/1.1\r\n", b"GET /\xff HTTP/1.1\r\nHost: "]),
)
def test_bytes_that_are_no_request_are_no_internal_error(
    address: tuple[str, int], data: bytes, start: bytes
) -> None:
    status, answer = sent(address, start + data + b"\r\n\r\n")
    assert status < 500, answer
    assert sent(address, b"GET /health/ready HTTP/1.0\r\n\r\n")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        f"/tables/window/?from={'9' * 4_400}",
        "/tables/window/?from=99999999999999999999",
        "/tables/window/?from=²",
        "/tables/key_value/?limit=²",
        f"/tables/long/{'9' * 4_400}",
        "/tables/long/²",
        "/tables/list/null",
        "/tables/windowed/null",
        "/tables/typed/null",
        f"/tables/json/{'[' * 1_000}",
        "/tables/window/?cursor=" + Position(2**70, b"x").cursor(),
    ],
)  # fmt: skip
def test_a_bad_request_says_which_parameter_is_wrong(address: tuple[str, int], path: str) -> None:
    target = quote(path, safe="/?=[&")
    status, answer = sent(
        address, f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    assert status == 400, answer
    body = json.loads(answer)
    assert body["parameter"] in path or body["parameter"] == "key"
    assert len(body["error"]) < 1_000
