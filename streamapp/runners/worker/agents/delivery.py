"""Gives each record to the agents that read its topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Set
from typing import Any

from faust.exceptions import KeyDecodeError, ValueDecodeError
from faust.serializers.schemas import Schema
from faust.types import TP

__all__ = ["delivery"]


def delivery(app: Any, tp: TP, channels: Set[Any]) -> Callable[[Any], Awaitable[None]]:
    """The function that decodes a record of a partition for each of ``channels``, and fills their queues.

    Channels with equal types and serializers share one decoded record. Faust compares the types alone, so one agent
    would get what the serializer of another agent has made. If one channel could not decode a record, Faust would also
    leave out the other channels.

    A record that several channels cannot decode is one failure, and so becomes one dead letter.
    """
    consumer, sensors = app.consumer, app.sensors
    flow, ebb = app.flow_control.acquire, app.producer.buffer.wait_until_ebb

    def pause() -> None:
        sensors.on_topic_buffer_full(tp)
        consumer.on_buffer_full(tp)

    def resume() -> None:
        consumer.on_buffer_drop(tp)

    async def deliver(message: Any) -> None:
        await flow()
        await ebb()
        readers = list(channels)
        if not readers:
            return
        message.incref(len(readers))
        events: dict[Hashable, Any] = {}
        failed: list[tuple[Any, Exception]] = []
        for channel in readers:
            form = _form(channel)
            try:
                event = events.get(form) or await channel.decode(message, propagate=True)
            except (KeyDecodeError, ValueDecodeError) as exc:
                failed.append((channel, exc))
                continue
            events[form] = event
            channel.queue.put_nowait_enhanced(event, on_pressure_high=pause, on_pressure_drop=resume)
        if failed:
            channel, error = failed[0]
            of_key = isinstance(error, KeyDecodeError)
            await (channel.on_key_decode_error if of_key else channel.on_value_decode_error)(error, message)
            # Not earlier, or a commit could pass the record before its letter.
            message.ack(consumer, n=len(failed))

    return deliver


def _form(channel: Any) -> Hashable:
    """The settings with which a channel decodes a record.

    A schema of another class may have more settings than Faust's own.
    """
    schema = channel.schema
    if type(schema) is not Schema:
        return schema  # type: ignore[no-any-return]
    return (
        schema.key_type,
        schema.value_type,
        schema.key_serializer,
        schema.value_serializer,
        schema.allow_empty,
    )
