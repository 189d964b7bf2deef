"""Functions close a resource after an error too: by a ``with``, or by a ``try`` right behind the opening."""

from __future__ import annotations

import ast
import asyncio
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from streamapp import Processor, Record, StreamsBuilder, StreamsConfig, StringSerde, TopologyTestDriver
from streamapp.broker import broker_process
from streamapp.consumer.consume_options import ConsumeOptions
from streamapp.consumer.consuming import Consuming
from streamapp.producer import OutboxRelay, SqliteOutbox

from ..processes import until

ROOT = Path(__file__).parents[2] / "streamapp"
CLOSED = re.compile(r"\b(\w+)\.(?:close|aclose|abandon)\(")


def left_open(source: str) -> Iterator[str]:
    """Each local name that a function opens and closes, with something between the two that may raise."""
    if not (names := {*CLOSED.findall(source)}):
        return
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for block in _blocks(function):
                yield from _in_block(block, names)


def _blocks(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statements of a function, block by block, without those of functions inside."""
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(function, name, None):
            yield block
            for statement in block:
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield from _blocks(statement)
    for handler in getattr(function, "handlers", ()):
        yield from _blocks(handler)


def _in_block(block: list[ast.stmt], names: set[str]) -> Iterator[str]:
    for at, statement in enumerate(block):
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.targets[0], ast.Name)
            and statement.targets[0].id in names
            and isinstance(statement.value, ast.Call)
        ):
            name, behind = statement.targets[0].id, block[at + 1 :]
            if not any(_closes(each, name) for each in behind):
                continue
            for each in behind:
                if isinstance(each, ast.Expr) and _closes(each, name):
                    break
                if isinstance(each, ast.Try):
                    guards = [*each.finalbody, *(part for handler in each.handlers for part in handler.body)]
                    if not any(_closes(part, name) for part in guards):
                        yield f"{statement.lineno}: {name}"
                    break
                if _may_raise(each):
                    yield f"{statement.lineno}: {name}"
                    break


def _closes(statement: ast.AST, name: str) -> bool:
    return name in CLOSED.findall(ast.unparse(statement))


def _may_raise(statement: ast.stmt) -> bool:
    """True for a statement that calls something now; the clock does not fail."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    calls = [each.func for each in ast.walk(statement) if isinstance(each, ast.Call)]
    return any(ast.unparse(call) != "time.monotonic" for call in calls)


@pytest.mark.parametrize(
    ("body", "open_lines"),
    [
        ("c = f()\n try:\n  c.read()\n finally:\n  c.close()", []),
        ("with closing(f()) as c:\n  c.read()", []),
        ("c = f()\n c.close()", []),
        ("c = f()\n x = c.id()\n c.close()", ["2: c"]),
        ("c = f()\n c.read()\n c.close()", ["2: c"]),
        ("c = f()\n c.start()\n try:\n  c.read()\n finally:\n  c.close()", ["2: c"]),
        ("c = f()\n try:\n  c.read()\n except OSError:\n  pass\n c.close()", ["2: c"]),
        ("for x in y:\n  c = f()\n  while c.read():\n   pass\n  c.close()", ["3: c"]),
    ],
)
def test_the_check_sees_what_stays_open(body: str, open_lines: list[str]) -> None:
    assert [*left_open(f"def g():\n {body}\n")] == open_lines


def test_nothing_stays_open_after_an_error() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(ROOT.rglob("*.py"))
        for line in left_open(path.read_text())
    ]
    assert found == []


def test_a_server_whose_pid_cannot_be_written_is_ended(tmp_path: Path) -> None:
    (tmp_path / "broker.pid.partial").mkdir()
    process = broker_process.BrokerProcess(tmp_path)
    with pytest.raises(OSError, match="broker.pid"):
        process.start(["sleep", "5"], detached=True)
    assert broker_process._DETACHED.pop().poll() == -SIGKILL


class Failing:
    """Stands for the parts of a consumer; its work fails, and it notes what is closed."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.commits = self.sink = self

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.closed.append(name)

    def finish(self, *_: Any) -> None:
        raise OSError("no answer")


def test_a_consumer_whose_end_fails_closes_its_parts() -> None:
    consuming = Consuming(
        ConsumeOptions(
            name="orders",
            topics=["orders"],
            handler=lambda record: None,
            config=StreamsConfig("orders"),
            operator="orders",
        )
    )
    consuming.stop()
    parts: Any = Failing()
    consuming._run(parts, parts, parts, parts)
    assert parts.closed[-5:] == ["refuse", "stop", "close", "__exit__", "close"]
    assert str(consuming.failure) == "no answer"


class Odd(SqliteOutbox):
    """An outbox that fails in a way that the relay does not know."""

    def lead(self) -> bool:
        self.count()
        raise ValueError("no row")


def test_a_relay_that_ends_closes_its_connection(tmp_path: Path) -> None:
    database = Odd(tmp_path / "orders.db")
    database.create()
    relay = OutboxRelay("orders", database, bootstrap_servers="127.0.0.1:1")
    with pytest.raises(ValueError, match="no row"):
        relay.run()
    assert database._connection is None


class Closed(Processor[str, str, None, None]):
    """A processor that notes its close."""

    def __init__(self, closes: list[str]) -> None:
        self.closes = closes

    def process(self, record: Record[str, str]) -> None: ...

    def close(self) -> None:
        self.closes.append(self.context.task_id)


def test_a_driver_whose_close_fails_closes_its_parts() -> None:
    """A warning is an error in the tests of many applications."""
    closes: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def note(word: str) -> str:
        loops.append(asyncio.get_running_loop())
        return word

    text, builder = StringSerde(), StreamsBuilder()
    words = builder.stream("words", key_serde=text, value_serde=text)
    words.process(lambda: Closed(closes))
    words.map_values_async(note).filter(lambda key, word: None)  # type: ignore[arg-type, return-value]
    driver = TopologyTestDriver(builder.build())
    driver.pipe_raw("words", b"a", b"to", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="is a return missing"):
            driver.close()
    assert closes == ["0_0"]
    until(loops[0].is_closed, 30, lambda: loops)
