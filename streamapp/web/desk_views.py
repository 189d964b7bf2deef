"""`/dlq`: the failure desk over HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from streamapp.desk.desk import FailureDesk
from streamapp.desk.filters import LetterFilter
from streamapp.desk.letter_texts import TextRefused
from streamapp.desk.letters import Letter, grouped
from streamapp.desk.shown import described, shown
from streamapp.desk.trial import Trial
from streamapp.errors import AuthorizationError, BrokerError, StreamsError
from streamapp.records import OutputRecord
from streamapp.web.problem import (
    BadParameter,
    NotFound,
    Problem,
    Unavailable,
    check_parameters,
    json_response,
)

__all__ = ["DeskViews"]

R = TypeVar("R")

_FIELDS = ("application", "group", "operator", "cause", "topic", "key", "since", "until")
_MOST = 1_000
_AT_ONCE = 2
"""The most requests that use a desk at the same time. Each may read the whole dead-letter topic."""
_WAIT_SECONDS = 5.0
_LEAST_RATE = 0.01
"""The lowest rate of a replay, in records a second, because other changes wait for the end of a replay."""


class _Edit(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an edit."""

    key: str | msgspec.UnsetType | None = msgspec.UNSET
    value: str | msgspec.UnsetType | None = msgspec.UNSET


class DeskViews:
    """The handlers of `/dlq`. Each request opens a `FailureDesk` in another thread. At most one desk of a worker writes
    at a time. `stop` ends a replay, because a thread that goes on would keep a stopped worker alive.

    ``open_desk`` raises `StreamsError` if the application has no dead-letter topic. ``try_record`` runs a record
    through the topology, in the test driver.
    """

    def __init__(
        self, open_desk: Callable[[], FailureDesk], try_record: Callable[[OutputRecord], Trial]
    ) -> None:
        self._open, self._try = open_desk, try_record
        self._writing = asyncio.Lock()
        self._stopping = threading.Event()
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def stop(self, _app: web.Application) -> None:
        """Ends a replay after its present transaction. The letters that are left stay open."""
        self._stopping.set()

    async def listing(self, request: web.Request) -> web.Response:
        """The number of open letters by consumer group, operator, cause and topic; with ``each=true``, single letters.

        Parameters such as ``topic`` or ``since`` choose letters. Single letters are the last ``limit`` ones (default
        100, at most 1,000) in the order of partition and offset in the dead-letter topic. With ``all=true``, replayed
        and discarded letters count, too.
        """
        matches = _filter(request, "all", "each", "limit").matches
        everything, each = _flag(request, "all"), _flag(request, "each")
        limit = int(_number(request, "limit", 100))

        def look(desk: FailureDesk) -> dict[str, Any]:
            letters, marks = desk.scan()
            chosen = (
                letter
                for letter in letters
                if matches(letter) and (everything or marks.state(letter.id) == "open")
            )
            if not each:
                groups = grouped(chosen)
                return {
                    "letters": sum(group.count for group in groups),
                    "groups": [dataclasses.asdict(group) for group in groups],
                }
            count, last = 0, deque[Letter](maxlen=min(limit, _MOST))
            for letter in chosen:
                count += 1
                last.append(letter)
            return {"letters": count, "last": [described(letter, marks) for letter in last]}

        return json_response(await self._ask(look))

    async def letter(self, request: web.Request) -> web.Response:
        """One letter with its stack trace."""
        check_parameters(request, ())

        def show(desk: FailureDesk) -> dict[str, Any]:
            letter, marks = desk.letter(request.match_info["letter"])
            return described(letter, marks, desk.texts) | {"stacktrace": letter.said("stacktrace")}

        return json_response(await self._ask(show))

    async def attempt(self, request: web.Request) -> web.Response:
        """Runs the letter's record through the topology, with empty stores. Nothing is written to Kafka.

        The answer has the exception that a function has raised, the results, the dropped records, and the records that
        wait for a retry.
        """
        check_parameters(request, ())

        def run(desk: FailureDesk) -> Trial:
            letter, _ = desk.letter(request.match_info["letter"])
            return self._try(desk.whole(letter).replayed(desk.topic))

        trial = await self._ask(run)
        return json_response(
            {
                "exception": trial.exception,
                "stops": trial.stops,
                "outputs": [
                    {"topic": each.topic, "key": shown(each.key), "value": shown(each.value, 2_000)}
                    for each in trial.outputs
                ],
                "drops": [
                    {"operator": operator, "reason": reason, "count": count}
                    for (operator, reason), count in trial.drops.items()
                ],
                "parked": [dataclasses.asdict(each) for each in trial.parked],
            }
        )

    async def replay(self, request: web.Request) -> web.Response:
        """Replays the letters of a filter; ``dry_run=true`` only counts the letters."""
        chosen = _chosen(request, "force", "only_group", "rate", "dry_run")
        force = _flag(request, "force")
        only_group = _flag(request, "only_group")
        rate = _number(request, "rate", 0) or None
        if rate is not None and rate < _LEAST_RATE:
            raise BadParameter("rate", f"rate={rate}: expected {_LEAST_RATE} or more", example="100")
        if _flag(request, "dry_run"):

            def count_letters(desk: FailureDesk) -> int:
                letters = desk.dry_run(chosen.matches, named=chosen.ids, force=force, only_group=only_group)
                return sum(1 for _ in letters)

            return json_response({"would_replay": await self._ask(count_letters)})
        written = 0

        def note(count: int) -> None:
            nonlocal written
            written = count

        async with self._alone():
            try:
                await self._ask(
                    lambda desk: desk.replay(
                        chosen.matches,
                        named=chosen.ids,
                        force=force,
                        only_group=only_group,
                        rate=rate,
                        progress=note,
                        wait=self._pause,
                    )
                )
            except Problem as problem:
                problem.details["replayed"] = written
                raise
        return json_response({"replayed": written})

    async def discard(self, request: web.Request) -> web.Response:
        """Marks the letters of a filter as discarded, with the note ``why``."""
        chosen, why = _chosen(request, "why"), request.query.get("why", "")
        async with self._alone():
            count = await self._ask(lambda desk: desk.discard(chosen.matches, why, named=chosen.ids))
        return json_response({"discarded": count})

    async def edit(self, request: web.Request) -> web.Response:
        """Gives a letter another key or value: ``{"key": "N1", "value": "..."}``, null or a text in the form of
        `letter`."""
        check_parameters(request, ())
        new = _edit(await request.read())
        id = request.match_info["letter"]

        def edit(desk: FailureDesk) -> None:
            letter = desk.letter(id)[0]
            if len(new) == 1:
                letter = desk.whole(letter)
            given = {
                name: None if text is None else desk.texts.bytes_of(letter, name == "key", text)
                for name, text in new.items()
            }
            desk.edit(id, given.get("key", letter.key), given.get("value", letter.value))

        async with self._alone():
            await self._ask(edit)
        return json_response({"edited": id})

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise Unavailable(
                "this worker stops, so the replay has ended early; the other letters stay open: replay them with "
                "another worker, or after the restart",
                retry_after=2,
            )

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """The only change of letters in this worker, for a block."""
        try:
            await asyncio.wait_for(self._writing.acquire(), _WAIT_SECONDS)
        except TimeoutError:
            raise Unavailable(
                "this worker replays, discards or edits other letters: ask again when this change has ended. A replay "
                "with a low rate takes long",
                retry_after=10,
            ) from None
        try:
            yield
        finally:
            self._writing.release()

    async def _ask(self, question: Callable[[FailureDesk], R]) -> R:
        try:
            await asyncio.wait_for(self._asking.acquire(), _WAIT_SECONDS)
        except TimeoutError:
            raise Unavailable(
                "this worker is busy with other requests for dead letters: ask again later", retry_after=2
            ) from None
        try:
            return await asyncio.to_thread(lambda: question(self._open()))
        except AuthorizationError as error:
            raise Problem(403, str(error)) from error
        except BrokerError as error:
            raise Unavailable(str(error)) from error
        except TextRefused as error:
            raise Problem(400, str(error)) from error
        except StreamsError as error:
            raise NotFound(str(error)) from error
        finally:
            self._asking.release()


def _edit(body: bytes) -> dict[str, str | None]:
    """The new key, value or both, of the body of a request. Raises `Problem`."""
    try:
        given = msgspec.structs.asdict(msgspec.json.decode(body, type=_Edit))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        given = {}
    new = {name: text for name, text in given.items() if text is not msgspec.UNSET}
    if not new:
        raise Problem(
            400,
            'the body is wrong: send JSON with key, value or both, as text or null, such as {"value": "late"}',
        )
    return new


def _filter(request: web.Request, *others: str) -> LetterFilter:
    """The filter of a request, which may have the parameters ``others``, too."""
    check_parameters(request, [*_FIELDS, "letter", *others], several=["letter"])
    fields: dict[str, Any] = {name: request.query[name] for name in _FIELDS if name in request.query}
    for name in ("since", "until"):
        if name in fields:
            fields[name] = _number(request, name, 0)
    return LetterFilter(**fields, ids=tuple(request.query.getall("letter", [])))


def _chosen(request: web.Request, *others: str) -> LetterFilter:
    chosen = _filter(request, "all", *others)
    if not chosen and not _flag(request, "all"):
        raise BadParameter(
            "all", "no letters are chosen: give letter, operator, cause ..., or all=true", example="true"
        )
    return chosen


def _flag(request: web.Request, name: str) -> bool:
    text = request.query.get(name, "false")
    if text not in ("true", "false"):
        raise BadParameter(name, f"{name}={text!r:.20}: expected true or false", example="true")
    return text == "true"


def _number(request: web.Request, name: str, default: float) -> float:
    text = request.query.get(name)
    try:
        number = default if text is None else float(text)
    except ValueError:
        number = -1
    if not 0 <= number < 2**63:
        raise BadParameter(name, f"{name}={text!r:.20}: expected a number, 0 or more", example="100")
    return number
