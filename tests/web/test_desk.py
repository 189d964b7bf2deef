"""The desk over HTTP, with letters that are in memory; tests/worker/test_desk.py has a real cluster."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import pytest

from streamapp import App, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.desk.filters import select
from streamapp.desk.letter_texts import LetterTexts
from streamapp.desk.letters import Letter
from streamapp.desk.marks import Marks
from streamapp.desk.trial import Trial
from streamapp.errors import AuthorizationError, BrokerError, ConfigError, StreamsError
from streamapp.records import OutputRecord
from streamapp.web import desk_views
from streamapp.web.desk_views import DeskViews
from streamapp.web.server import attempt

from .conftest import Serve
from .fakes import FakeSource

TEXT = StringSerde()


def letter(offset: int, cause: bytes = b"ValueError", key: bytes = b"N1") -> Letter:
    said = {
        "exception": cause,
        "message": b"?",
        "topic": b"flights",
        "partition": b"0",
        "offset": b"%d" % offset,
    }
    headers = tuple((f"__streams.errors.{name}", text) for name, text in said.items())
    return Letter(
        0, offset, 1_000 + offset, key, b"late", (*headers, ("__streamapp.errors.operator", b"look-up"))
    )


class MemoryDesk:
    topic = "dead"

    def __init__(self) -> None:
        self.texts = LetterTexts(StreamsConfig("flights"))
        self.all = [letter(0), letter(1, key=b"N2"), letter(2, b"KeyError")]
        self.marks = Marks()
        self.edits: list[tuple[str, bytes | None, bytes | None]] = []
        self.failure: Exception | None = None
        self.refusal: Exception | None = None
        """Ends a replay after its first transaction."""
        self.waits = threading.Event()

    def scan(self) -> tuple[Iterator[Letter], Marks]:
        if self.failure is not None:
            raise self.failure
        return iter(self.all), self.marks

    def letter(self, id: str) -> tuple[Letter, Marks]:
        for each in self.all:
            if each.id == id:
                return each, self.marks
        raise StreamsError(f"no letter {id}")

    def whole(self, letter: Letter) -> Letter:
        return letter

    def replay(
        self,
        matches: Callable[[Letter], bool],
        *,
        named: Collection[str],
        force: bool,
        only_group: bool,
        rate: float | None,
        progress: Callable[[int], None],
        wait: Callable[[float], object],
    ) -> None:
        if rate is not None:
            self.waits.set()
            wait(1 / rate)
        progress(self._mark(matches, "replayed", named, force))
        if self.refusal is not None:
            raise self.refusal

    def dry_run(
        self, matches: Callable[[Letter], bool], *, named: Collection[str], force: bool, only_group: bool
    ) -> Iterator[Letter]:
        return select(self.scan()[0], self.marks, matches, named, force=force)

    def discard(self, matches: Callable[[Letter], bool], why: str, *, named: Collection[str]) -> int:
        return self._mark(matches, "discarded", named, False)

    def edit(self, id: str, key: bytes | None, value: bytes | None) -> None:
        self.edits.append((id, key, value))

    def _mark(
        self, matches: Callable[[Letter], bool], state: str, named: Collection[str], force: bool
    ) -> int:
        chosen = list(select(self.all, self.marks, matches, named, force=force))
        for each in chosen:
            self.marks.marked(each.id, state, 5)
        return len(chosen)


async def desk_of(serve: Serve) -> tuple[MemoryDesk, Any]:
    desk = MemoryDesk()
    views = DeskViews(
        lambda: desk, lambda record: Trial((OutputRecord("out", record.key, b"ok", 1),), {}, ())
    )  # type: ignore[arg-type, return-value]
    return desk, await serve(FakeSource(), desk=views)


async def test_letters_are_grouped_listed_and_shown(serve: Serve) -> None:
    _, client = await desk_of(serve)
    body = await (await client.get("/dlq")).json()
    assert [(group["cause"], group["count"]) for group in body["groups"]] == [
        ("ValueError", 2),
        ("KeyError", 1),
    ]
    body = await (await client.get("/dlq?each=true&cause=ValueError&limit=1")).json()
    assert (body["letters"], [each["letter"] for each in body["last"]]) == (2, ["0-1"])
    body = await (await client.get("/dlq/0-2")).json()
    assert (body["cause"], body["key"], body["state"]) == ("KeyError", "N1", "open")
    assert (await client.get("/dlq/0-9")).status == 404


async def test_letters_are_replayed_once_and_discarded(serve: Serve) -> None:
    _, client = await desk_of(serve)
    assert (await client.post("/dlq/replay")).status == 400
    assert await (await client.post("/dlq/replay?key=N1&dry_run=true")).json() == {"would_replay": 2}
    assert await (await client.post("/dlq/replay?key=N1")).json() == {"replayed": 2}
    assert await (await client.post("/dlq/replay?key=N1")).json() == {"replayed": 0}
    assert await (await client.post("/dlq/replay?letter=0-0&force=true")).json() == {"replayed": 1}
    assert await (await client.post("/dlq/discard?all=true&why=drill")).json() == {"discarded": 1}
    assert (await (await client.get("/dlq")).json())["letters"] == 0


async def test_a_replay_that_ends_early_tells_how_many_letters_it_has_replayed(serve: Serve) -> None:
    desk, client = await desk_of(serve)
    desk.refusal = BrokerError("letter 0-2: a record for flights cannot be sent")
    answer = await client.post("/dlq/replay?key=N1")
    body = await answer.json()
    assert (answer.status, body["replayed"]) == (503, 2)
    assert "letter 0-2" in body["error"]


async def test_named_letters_that_are_not_there_or_not_open_are_said(serve: Serve) -> None:
    """The answer was 200 with {"replayed": 0}."""
    desk, client = await desk_of(serve)
    for request in ("replay?letter=0-9", "replay?letter=0-9&dry_run=true", "discard?letter=0-0&letter=0-9"):
        answer = await client.post(f"/dlq/{request}")
        assert (answer.status, "there is no letter 0-9" in (await answer.json())["error"]) == (404, True)
    assert desk.marks.by_letter == {}
    assert await (await client.post("/dlq/replay?letter=0-0")).json() == {"replayed": 1}
    for request in ("replay?letter=0-0", "replay?letter=0-0&dry_run=true", "discard?letter=0-0"):
        answer = await client.post(f"/dlq/{request}")
        assert (answer.status, "0-0 (replayed)" in (await answer.json())["error"]) == (404, True)


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("discard?all=true&dry_run=true", "dry_run"),
        ("discard?key=N1&caus=KeyError", "caus"),
        ("discard?key=N1&key=N2", "key"),
        ("replay?key=N1&operater=look-up", "operater"),
        ("replay?key=N1&cause=KeyError&cause=ValueError", "cause"),
        ("0-0/try?dry_run=true", "dry_run"),
    ],
)
async def test_a_parameter_that_would_not_count_is_refused(serve: Serve, path: str, parameter: str) -> None:
    """The parameter was passed over, so more letters than the caller meant were replayed or discarded."""
    desk, client = await desk_of(serve)
    answer = await client.post(f"/dlq/{path}")
    assert (answer.status, (await answer.json())["parameter"]) == (400, parameter)
    assert desk.marks.by_letter == {}
    assert (await client.get("/dlq?oprator=look-up")).status == 400


async def test_a_letter_is_edited_and_tried(serve: Serve) -> None:
    desk, client = await desk_of(serve)
    assert (await client.post("/dlq/0-0", json={"value": None})).status == 200
    assert desk.edits == [("0-0", b"N1", None)]
    for body in (
        "?", "[]", "{}", '{"colour": "red"}', '{"value": 3}', "[" * 100_000, '{"value": ' * 100_000, '{"value": "\\ud800"}',
        b'{"value": "\xff"}', '{"value": ' + "9" * 5_000 + "}", "null",
    ):  # fmt: skip
        answer = await client.post("/dlq/0-0", data=body)
        assert answer.status == 400, body[:50]
        assert "the body is wrong" in (await answer.json())["error"]
    kind = {"Content-Type": "application/json; charset=no-such"}
    assert (await client.post("/dlq/0-0", data=b'{"value": "x"}', headers=kind)).status == 200
    body = await (await client.post("/dlq/0-0/try")).json()
    assert body["outputs"] == [{"topic": "out", "key": "N1", "value": "ok"}]
    assert (body["exception"], body["stops"]) == (None, False)


async def test_a_trial_shows_the_exception_and_what_a_worker_does(serve: Serve) -> None:
    def look_up(value: str) -> str:
        raise ValueError(f"{value} is not known")

    def described(builder: StreamsBuilder) -> None:
        flights = builder.stream("flights", key_serde=TEXT, value_serde=TEXT)
        flights.map_values(look_up, on_error=answer, name="look-up").to("out", value_serde=TEXT)

    def tried(**more: Any) -> Callable[[OutputRecord], Trial]:
        config = StreamsConfig("app", dead_letter_queue_topic="dead", **more)
        return partial(attempt, App("app", topology=described, config=config))

    async def answered(run: Callable[[OutputRecord], Trial]) -> Any:
        client = await serve(FakeSource(), desk=DeskViews(MemoryDesk, run))  # type: ignore[arg-type]
        response = await client.post("/dlq/0-0/try")
        assert response.status == 200
        return await response.json()

    answer: Any = "dead_letter"
    body = await answered(tried())
    assert "ValueError: late is not known" in body["exception"]
    assert "Raised in test_a_trial_shows" in body["exception"]
    assert "look_up" in body["exception"]
    assert "To run it again" not in body["exception"]  # the offset is that of the test driver
    assert (body["stops"], body["outputs"]) == (False, [{"topic": "dead", "key": "N1", "value": "late"}])
    assert body["drops"] == [{"operator": "look-up", "reason": "dead_letter", "count": 1}]

    body = await answered(tried(show_record=lambda key, value: "a flight"))
    assert "late" not in body["exception"]
    assert "ValueError (its text is hidden, because show_record is set)" in body["exception"]
    assert "Record: a flight" in body["exception"]

    answer = "fail"
    body = await answered(tried())
    assert "ValueError: late is not known" in body["exception"]
    assert (body["stops"], body["outputs"], body["drops"]) == (True, [], [])


async def test_what_is_wrong_is_said(serve: Serve) -> None:
    desk, client = await desk_of(serve)
    assert (await client.get("/dlq?each=perhaps")).status == 400
    assert (await client.get("/dlq?each=true&limit=-1")).status == 400
    desk.failure = BrokerError("no broker answers")
    assert (await client.get("/dlq")).status == 503
    desk.failure = AuthorizationError("dead cannot be read. Grant this client READ on the topic")
    response = await client.get("/dlq")
    assert (response.status, "Retry-After" in response.headers) == (403, False)
    assert "Grant this client READ" in (await response.json())["error"]
    desk.failure = ConfigError("dead_letter_queue_topic is not set")
    response = await client.get("/dlq")
    assert response.status == 404
    assert "dead_letter_queue_topic" in (await response.json())["error"]
    assert (
        await client.post("/dlq/discard?all=true", headers={"Origin": "http://evil.example"})
    ).status == 403


async def test_a_limit_of_nothing_is_nothing(serve: Serve) -> None:
    _, client = await desk_of(serve)
    body = await (await client.get("/dlq?each=true&limit=0")).json()
    assert (body["letters"], body["last"]) == (3, [])
    body = await (await client.get("/dlq?each=true&limit=5")).json()
    assert len(body["last"]) == 3


async def test_a_replay_at_no_speed_is_refused(serve: Serve) -> None:
    _, client = await desk_of(serve)
    for rate in ("1e-300", "0.001"):
        assert (await client.post(f"/dlq/replay?all=true&rate={rate}")).status == 400
    assert (await client.post("/dlq/replay?all=true&rate=50")).status == 200


async def test_only_some_requests_read_letters_at_the_same_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_views, "_WAIT_SECONDS", 0.2)
    desk, client = await desk_of(serve)
    go_on, inside, most = threading.Event(), 0, 0
    letters = desk.scan

    def slowly() -> tuple[Iterator[Letter], Marks]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        go_on.wait(60)
        inside -= 1
        return letters()

    monkeypatch.setattr(desk, "scan", slowly)
    asked = [asyncio.create_task(client.get("/dlq")) for _ in range(8)]
    done, _ = await asyncio.wait(asked, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    assert {each.result().status for each in done} == {503}
    go_on.set()
    statuses = sorted([(await each).status for each in asked])
    assert (statuses[0], statuses[-1], most) == (200, 503, 2)
    assert (await client.get("/dlq")).status == 200


async def test_a_slow_replay_keeps_no_worker_from_its_end(serve: Serve) -> None:
    """The thread of the replay went on, until the worker was ended with exit code 70."""
    desk, client = await desk_of(serve)
    replay = asyncio.create_task(client.post("/dlq/replay?all=true&rate=0.01"))
    assert await asyncio.to_thread(desk.waits.wait, 60)
    await client.server.app.shutdown()
    answer = await asyncio.wait_for(replay, 60)
    assert (answer.status, "the other letters stay open" in (await answer.json())["error"]) == (503, True)
    assert desk.marks.by_letter == {}


async def test_a_change_waits_for_a_slow_replay_only_for_a_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_views, "_WAIT_SECONDS", 0.2)
    desk, client = await desk_of(serve)
    replay = asyncio.create_task(client.post("/dlq/replay?all=true&rate=0.01"))
    assert await asyncio.to_thread(desk.waits.wait, 60)
    for change in ("/dlq/discard?all=true", "/dlq/replay?all=true"):
        assert (await asyncio.wait_for(client.post(change), 60)).status == 503
    assert (await client.post("/dlq/0-0", json={"value": "x"})).status == 503
    await client.server.app.shutdown()
    await replay


@pytest.mark.parametrize("path", ["/dlq", "/dlq?each=true&limit=5", "/dlq/replay?all=true&dry_run=true"])
async def test_a_look_at_many_letters_keeps_few_in_memory(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """60,000 letters took 580 MB of a worker's memory."""
    desk, client = await desk_of(serve)
    alive, most = weakref.WeakSet[Letter](), 0

    def many() -> Iterator[Letter]:
        nonlocal most
        for offset in range(1_000):
            each = letter(offset)
            alive.add(each)
            most = max(most, len(alive))
            yield each

    monkeypatch.setattr(desk, "scan", lambda: (many(), desk.marks))
    answer = await (client.post(path) if "replay" in path else client.get(path))
    body = await answer.json()
    assert (body.get("letters", body.get("would_replay")), most < 20) == (1_000, True)
