"""Failures of agents. The exception handlers of the application decide about the record, as for a topology."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal

import faust
from faust.exceptions import ImproperlyConfigured, PartitionsMismatch
from faust.streams import current_event
from faust.types import Message
from mode.utils.objects import shortlabel

from streamapp._base.cancellation import own_cancellation
from streamapp._base.counted import counted
from streamapp.config import ErrorContext, ExceptionHandler, StreamsConfig
from streamapp.engine.judging import (
    PASSES,
    ProcessingFailed,
    dead_letter,
    going_on,
    judge,
    letter_refused,
    no_fault_of_the_record,
    record_at,
    said,
    without_loss,
)
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import OutputRecord
from streamapp.runners.worker.agents.flow import TopicQueue
from streamapp.runners.worker.agents.sends import PARTITIONS_OF_TABLE, ms_of, pairs_of, seconds_of
from streamapp.runners.worker.agents.taken_batches import batch_under_work, moved

__all__ = ["WatchedAgent", "WatchedTopic", "watched_task"]

logger: logging.Logger = logging.getLogger(__name__)
_MISTAKES = (ImproperlyConfigured, PartitionsMismatch)
"""Errors of the code of an application. A new start of the agent would have the same error."""
_RESTARTS_PER_SECOND = 100.0
_WAKE_SECONDS = 0.02


class WatchedAgent(faust.Agent):  # type: ignore[misc]
    """An agent whose exceptions go to ``processing_exception_handler``.

    Some exceptions end the worker without a question to the handler. Examples are an exception for a batch (``take``),
    behind ``group_by`` or ``through``, or in a stream with ``noack``. Another example is an exception for which the
    record is not the cause.

    Requests (`ask`, `map`, `join`) go out at once, also with exactly_once_v2. The answer to a request in a transaction
    would come after the commit, and the commit waits for the agent that waits for the answer.
    """

    async def ask_nowait(self, *args: Any, **kwargs: Any) -> Any:
        return await super().ask_nowait(*args, **{**kwargs, "force": True})

    async def on_stop(self) -> None:
        """Stops the agent. If the application stops only this agent, the records in work count as unfinished.

        Faust interrupts the agent, and would count these records as done.
        """
        if self.app.started and not self.app.should_stop:
            for actor in self._actors:
                event = actor.stream.get_active_stream().current_event
                if event is not None:
                    event.message.acked = True  # as at a rebalance, a later end of the work does not count
            logger.warning("agent %s was stopped: %s", self.name, self._nobody_reads)
        await super().on_stop()

    @property
    def _nobody_reads(self) -> str:
        return f"nobody processes the further records of {self.channel} until the next start of this worker"

    async def _execute_actor(self, coro: Any, aref: Any) -> None:
        supervisor = self.supervisor
        await super()._execute_actor(self._watched(coro, aref), aref)
        # Faust's supervisor does not notice a wake-up that comes while it starts another actor. The failed actor would
        # then stand still for seconds.
        while (
            aref.crashed and aref in supervisor._services and not (self.should_stop or self.app.should_stop)
        ):
            supervisor.wakeup()
            await asyncio.sleep(_WAKE_SECONDS)

    async def _watched(self, coro: Coroutine[Any, Any, None], aref: Any) -> None:
        try:
            await coro
        except asyncio.CancelledError as exc:
            failure, event = own_cancellation(exc), current_event()
            if failure is None or moved(exc, None if event is None else event.message, self.app.consumer):
                raise
            await self._failed(failure, aref)
            raise failure from exc
        except GeneratorExit:
            raise
        except Exception as exc:
            await self._failed(exc, aref)
            raise  # Faust calls on_error and starts the agent anew
        except BaseException as exc:  # SystemExit, for example, would end the event loop, but not the worker
            await self._failed(exc, aref)
            raise ProcessingFailed(f"agent {self.name} raised {said(exc, self.app.config)}") from exc
        else:
            if not (self.should_stop or self.app.should_stop or self._let_go(aref)):
                logger.warning("the function of agent %s has returned: %s", self.name, self._nobody_reads)

    def _let_go(self, aref: Any) -> bool:
        """True if Faust has ended the actor of a partition that was revoked (``isolated_partitions``).

        The partition gets a new actor as soon as this worker has the partition again.
        """
        assigned = self.isolated_partitions and self._first_assignment_done
        return assigned and aref not in self._actor_by_partition.values()

    async def _failed(self, exc: BaseException, aref: Any) -> None:
        try:
            await self._judge(exc, aref)
        except Exception as defect:
            await _end_without_judgement(self.app, f"agent {self.name} failed", exc, defect)

    async def _judge(self, exc: BaseException, aref: Any) -> None:
        if batch := batch_under_work():
            await self.app.consumer.fail(self._failed_batch(batch, exc), None)
            return
        event = current_event()
        record = None if event is None else event.message
        if record is None and not aref.stream.get_active_stream().events_total:
            story = f"agent {self.name} failed before its first record: {said(exc, self.app.config)}"
            remedy = (
                ""
                if no_fault_of_the_record(exc)
                else "; no handler is asked, because there is no record to leave out"
            )
            await self.app.consumer.fail(ProcessingFailed(story.rstrip() + remedy), None)
            return
        if cannot := _no_restart(aref.stream):
            story = (
                f"agent {self.name}: {_where(self.app, record)} failed {cannot}: {said(exc, self.app.config)}"
            )
            remedy = "a worker cannot go on without this record: handle the exception in the agent"
            if isinstance(exc, PartitionsMismatch):
                remedy = PARTITIONS_OF_TABLE
            end = "" if no_fault_of_the_record(exc) else f"; {remedy}"
            await self.app.consumer.fail(ProcessingFailed(story.rstrip() + end), record)
            return
        await _decide(
            self.app,
            self.app.config.processing_exception_handler,
            exc,
            f"agent {self.name}",
            record,
            "failed",
            "processing_exception_handler",
        )
        await self._finish_record(aref)

    async def _finish_record(self, aref: Any) -> None:
        """Counts the record of a failed agent as finished, if Faust has not done so.

        Faust leaves the record open if a sink or an operator of the stream has raised (`filter`, for example). No later
        record of the partition could then be committed.
        """
        stream = aref.stream
        # An open iterator of the stream acknowledges the record when the iterator is closed.
        await stream.stop()
        if isinstance(aref.it, AsyncGenerator):
            await aref.it.aclose()
        # The event loop needs two rounds to close an iterator that the failure has left behind.
        for _ in range(2):
            await asyncio.sleep(0)
        event, stream.current_event = stream.current_event, None
        if event is not None:
            await stream.ack(event)

    async def _replace_actor(self, service: Any, index: int) -> Any:
        """Starts a failed agent anew, with a new stream from the same channel.

        Faust's own method keeps the stream. The agent's function would add its operators to this stream once more, and
        Faust allows no operators on a stream that has begun.
        """
        if self.app.should_stop:
            return service
        await service.stream.stop()
        # Otherwise the agent keeps each failed actor and its stream for ever.
        self.beacon.discard(service.beacon)
        self.beacon.discard(service.stream.beacon)
        channel = service.stream.channel
        own = [tp for tp, actor in self._actor_by_partition.items() if actor is service]
        if own:  # with isolated_partitions, the stream's end has taken its channel off
            self.app.topics.add(channel)
        actor = await self._start_one(
            index=index, active_partitions=service.active_partitions, channel=channel
        )
        self._actor_by_partition.update(dict.fromkeys(own, actor))
        actor.supervisor = self.supervisor
        await actor.maybe_start()
        return actor

    def _new_supervisor(self) -> Any:
        """A supervisor that starts failed actors anew at a limited rate.

        Faust's own supervisor ends the event loop with ``SystemExit`` if two actors fail within 10 ms.
        """
        return self._get_supervisor_strategy()(
            max_restarts=_RESTARTS_PER_SECOND,
            over=1.0,
            raises=None,
            replacement=self._replace_actor,
            loop=self.loop,
            beacon=self.beacon,
        )

    def _failed_batch(self, batch: Sequence[Message], exc: BaseException) -> ProcessingFailed:
        """The error for a batch, which ends the worker.

        No handler is asked, because Faust would start the agent anew. The restart may lose the record that Faust has
        already taken for the next batch.
        """
        first = record_at(batch[0].topic, batch[0].partition, batch[0].offset)
        return ProcessingFailed(
            f"agent {self.name}: a batch of {counted(len(batch), 'record')}, with the {first}, failed: "
            f"{said(exc, self.app.config)}; a worker cannot go on without a batch: handle the exception in the agent, "
            "or take the records one by one"
        )


def _no_restart(stream: Any) -> str | None:
    """The words for a stream on which an agent that has raised cannot go on without its record. None: the agent can."""
    active = stream.get_active_stream()
    if active.channel is not stream.channel:
        # Faust reads the first stream beside the agent, and would read on without the agent.
        return "behind group_by or through"
    # Nobody but the agent knows if it has acknowledged the record.
    return None if active.enable_acks else "in a stream with noack"


class WatchedTopic(faust.Topic):  # type: ignore[misc]
    """A topic whose undecodable records go to ``deserialization_exception_handler``.

    A topic that Faust creates, and that has no ``replicas`` of its own, gets `App.topic_replicas` replicas. This number
    is Faust's setting ``topic_replication_factor``, otherwise the configuration's ``replication_factor``.
    """

    replicas: int | None
    _queue: TopicQueue | None

    def __init__(self, *arguments: Any, pattern: Any = None, **options: Any) -> None:
        if pattern:
            raise ConfigError(
                f"app.topic(pattern={getattr(pattern, 'pattern', pattern)!r}): Faust reads no topic of a pattern. Name "
                "the topics, as in app.topic(a, b), or read the pattern in a topology: "
                "builder.stream(re.compile(...))"
            )
        super().__init__(*arguments, **options)

    @property
    def queue(self) -> TopicQueue:
        if self._queue is None:
            most = self.app.conf.stream_buffer_maxsize if self.maxsize is None else self.maxsize
            self._queue = TopicQueue(most, flow_control=self.app.flow_control, clear_on_resume=True)
        return self._queue

    async def declare(self) -> None:
        """Creates the topic if the topic does not exist."""
        self.replicas = self.replicas or self.app.topic_replicas
        await super().declare()

    def as_future_message(self, *arguments: Any, **options: Any) -> Any:
        """A message, before it is sent. Raises `TypeError` if the serializer has made no bytes of its key or value."""
        future = super().as_future_message(*arguments, **options)
        for part in ("key", "value"):
            made = getattr(future.message, part)
            if not isinstance(made, bytes | bytearray | memoryview | str | None):
                raise TypeError(
                    f"the {part} of a message for {self} has the type {type(made).__name__}, and its serializer makes "
                    f'no bytes of it. Give the topic a {part}_serializer that does, for example "json"'
                )
        return future

    async def on_key_decode_error(self, exc: Exception, message: Any) -> None:
        await self._on_undecodable(exc, message, "key")

    async def on_value_decode_error(self, exc: Exception, message: Any) -> None:
        await self._on_undecodable(exc, message, "value")

    async def _on_undecodable(self, exc: Exception, message: Any, part: Literal["key", "value"]) -> None:
        what = "could not be deserialized"
        try:
            await self.on_decode_error(exc, message)
            if message.topic in self.app.tables.changelog_topics:
                await self.app.consumer.fail(_unreadable_row(message, exc, self.app.config), None)
                return
            await _decide(
                self.app,
                self.app.config.deserialization_exception_handler,
                exc,
                f"topic {message.topic}",
                message,
                what,
                "deserialization_exception_handler",
                _no_json(self, exc, part),
            )
        except Exception as defect:
            await _end_without_judgement(self.app, f"topic {message.topic}: a record {what}", exc, defect)


def _unreadable_row(row: Any, exc: Exception, config: StreamsConfig) -> ProcessingFailed:
    """The error for a row of a table. No handler is asked, because the table would be wrong without the row."""
    where = record_at(row.topic, row.partition, row.offset)
    return ProcessingFailed(
        f"a table of agents cannot be restored, because the {where} could not be deserialized: {said(exc, config)}. "
        "If key_type or value_type of the table has changed, go back to the former type, or give the table a new name"
    )


def watched_task(app: Any, task: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """A task (``@app.task``, a timer or a crontab) whose failure ends the worker, and loses no record.

    In Faust, a record that a task reads from ``app.stream`` counts as done even if the task raises. A task that raises
    ``CancelledError`` on its own account would end without a word.
    """

    @functools.wraps(task)
    async def run(*arguments: Any) -> Any:
        failure: Exception
        try:
            return await task(*arguments)
        except asyncio.CancelledError as exc:
            own = own_cancellation(exc)
            if own is None:
                raise
            failure = own
        except Exception as exc:
            failure = exc
        event, batch = current_event(), batch_under_work()
        if event is None or not app.topics.acks_enabled_for(event.message.topic):
            raise failure
        story = f"the task {shortlabel(task)}: {_where(app, event.message)} failed"
        if moved(failure.__cause__ or failure, event.message, app.consumer):
            story += ": the record belongs to another worker now"
        else:
            story += f": {said(failure, app.config)}"
        remedy = "the worker ends, because Faust starts no task anew: handle the exception in the task"
        await app.consumer.fail(ProcessingFailed(f"{story}; {remedy}"), None if batch else event.message)
        return None

    return run


async def _end_without_judgement(app: Any, failure: str, exc: BaseException, defect: Exception) -> None:
    """Ends the worker if the judgement of a failure raises itself. Faust would count the record as done."""
    logger.error("the judgement of a failure has raised", exc_info=defect)
    why = f"nothing was decided, because the judgement raised {said(defect, app.config)}"
    await app.consumer.fail(ProcessingFailed(f"{failure}: {said(exc, app.config)}; {why}"), None)


def _no_json(topic: Any, exc: Exception, part: Literal["key", "value"]) -> str:
    """The advice for a key or value that is no JSON. Empty for other errors.

    JSON is Faust's default for values, so an application may have this serializer without naming it.
    """
    if not isinstance(exc.__cause__, (json.JSONDecodeError, UnicodeDecodeError)):
        return ""
    serializer = f"{part}_serializer"
    if (getattr(topic.schema, serializer) or getattr(topic.app.serializers, serializer)) != "json":
        return ""
    default = " (Faust's default)" if part == "value" else ""
    return (
        f'the {part} is no JSON, but the {serializer} of the topic is "json"{default}. If {part}s are text or bytes, '
        f'give the topic {serializer}="raw" and {part}_type=str or bytes. Or else '
    )


async def _decide(
    app: Any,
    handler: ExceptionHandler,
    exc: BaseException,
    who: str,
    record: Any,
    what: str,
    setting: str,
    advice: str = "",
) -> None:
    """Asks ``handler`` about a failed record. If the record is not the cause, ends the worker without a question.

    An exception that is no `Exception`, such as ``SystemExit``, ends the worker, too.

    After "skip", "continue" or "dead_letter", the worker logs a warning and continues with the next record. "continue"
    sends the record to the dead-letter topic, if such a topic is set; "dead_letter" requires the topic. A handler's
    `Response` brings letters of its own. Any other answer, or an exception of the handler, ends the worker after a
    commit of the finished records. In its error, ``advice`` stands in front of the hint to the handler.
    """
    known = record is not None and app.topics.acks_enabled_for(record.topic)
    where, cause = f"{who}: {_where(app, record)}", f"{what}: {said(exc, app.config)}"
    failure = f"{where} {cause}"
    if isinstance(exc, PartitionsMismatch):
        failure = f"{failure.rstrip()}; {PARTITIONS_OF_TABLE}"
    context, topic = _context(record if known else None, who), app.config.dead_letter_queue_topic
    answer: str = "fail"
    letters: tuple[OutputRecord, ...] = ()
    if isinstance(exc, Exception) and not (no_fault_of_the_record(exc) or isinstance(exc, _MISTAKES)):
        kept = without_loss(handler, exc)
        remedy = f'set {setting} to "continue" to drop such records (to the dead-letter topic, if one is set)'
        remedy = advice + (remedy if kept == handler else PASSES)
        try:
            answer, own = judge(kept, lambda: context, exc, f"{failure}; {remedy}", topic)
        except ProcessingFailed as fatal:
            await app.consumer.fail(fatal, record if known else None)
            return
        failure += f"; {remedy}" if answer == "fail" else ""
        if own is not None:
            letters = own
        elif topic is not None and known and answer in ("continue", "dead_letter"):
            letters = (dead_letter(topic, context, exc, what, app.config, int(time.time() * 1000)),)
    for letter in letters:
        try:
            await _send(app, letter, record if known else None, cause)
        except BrokerError as refused:
            lost = letter_refused(where, letter.topic, refused, cause, app.config)
            await app.consumer.fail(lost, record if known else None)
            return
    if answer == "fail":
        await app.consumer.fail(ProcessingFailed(failure), record if known else None)
        return
    if known:
        counts = app.consumer.dead if letters else app.consumer.skipped
        counts[record.topic] += 1
    logger.warning(
        "%s; %s",
        failure,
        going_on(letters),
        extra={"kind": f"{who} {what} {type(exc).__name__}"},
    )


def _where(app: Any, record: Any) -> str:
    if record is None or not app.topics.acks_enabled_for(record.topic):
        return "it"
    return record_at(record.topic, record.partition, record.offset)


def _context(record: Any, who: str) -> ErrorContext:
    if record is None:
        return ErrorContext("", -1, -1, -1, (), who, "", None, None)
    timestamp = ms_of(record.timestamp)
    return ErrorContext(
        record.topic,
        record.partition,
        record.offset,
        -1 if timestamp is None else timestamp,
        pairs_of(record.headers),
        who,
        "",
        record.key,
        record.value,
    )


async def _send(app: Any, letter: OutputRecord, record: Any, cause: str) -> None:
    """Sends a letter. With exactly-once, the letter of a record goes out with the record's commit. ``cause`` is the
    failure of the record."""
    if record is None or not app.config.exactly_once:
        await app.producer.send_letter(letter)
        return
    app._attachments.put(
        record,
        app.topic(letter.topic, key_serializer="raw", value_serializer="raw"),
        letter=cause,
        key=letter.key,
        value=letter.value,
        partition=letter.partition,
        timestamp=seconds_of(letter.timestamp),
        headers=list(letter.headers),
    )
