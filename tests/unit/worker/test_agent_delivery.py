"""The delivery of records to the agents that read a topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from faust.exceptions import DecodeError
from faust.types import TP

from streamapp import App
from streamapp.runners.worker.agents.delivery import delivery

IN = TP("in", 0)


class Message(SimpleNamespace):
    """A record, and how many agents still have it."""

    refcount = 0
    topic, partition, offset, headers, timestamp = "in", 0, 7, (), 1.0

    def incref(self, n: int) -> None:
        self.refcount += n

    def ack(self, consumer: Any, n: int = 1) -> None:
        self.refcount -= n


async def delivered(value: bytes, *settings: dict[str, Any]) -> tuple[list[Any], list[Exception], int]:
    """Delivers a record to readers with these settings.

    Returns the event of each reader (None: no event), the failures, and the number of readers that still have the record.
    """
    app = App("delivering", datadir="unused")
    app._producer = SimpleNamespace(buffer=SimpleNamespace(wait_until_ebb=_at_once))
    app._consumer = SimpleNamespace(on_buffer_full=None, on_buffer_drop=None)
    app.flow_control.resume()
    failures: list[Exception] = []

    async def note(error: Exception, message: Any) -> None:
        failures.append(error)

    readers = [app.topic("in", **each).clone(is_iterator=True) for each in settings]
    for reader in readers:
        reader.on_key_decode_error = reader.on_value_decode_error = note
    message = Message(tp=IN, key=None, value=value)
    await delivery(app, IN, dict.fromkeys(readers).keys())(message)
    queues = [reader.queue for reader in readers]
    found = [None if queue.empty() else queue.get_nowait() for queue in queues]
    return found, failures, message.refcount


async def _at_once() -> None: ...


async def test_each_agent_gets_what_its_own_serializer_makes() -> None:
    """Faust compared the types only, so both agents got what one of the serializers had made."""
    raw, json = {"value_serializer": "raw"}, {"value_serializer": "json"}
    for order in ([raw, json], [json, raw]):
        found, failures, agents = await delivered(b"[1]", *order)
        assert [event.value for event in found] == [b"[1]" if each is raw else [1] for each in order]
        assert (failures, agents) == ([], 2)


async def test_agents_with_equal_settings_share_the_decoded_record() -> None:
    (one, two), _, _ = await delivered(b"[1]", {}, {})
    assert one is two


async def test_a_record_that_some_agents_cannot_decode_is_one_failure_and_reaches_the_others() -> None:
    """Each agent that could not decode a record left a dead letter. An agent that came later got no record."""
    raw, json = {"value_serializer": "raw"}, {"value_serializer": "json"}
    found, failures, agents = await delivered(b"no json", json, raw, json)
    assert [event and event.value for event in found] == [None, b"no json", None]
    assert [isinstance(error, DecodeError) for error in failures] == [True]
    assert agents == 1
