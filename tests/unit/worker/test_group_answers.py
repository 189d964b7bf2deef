"""aiokafka asks again for the offsets of a group whose coordinator has an error."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import GroupAuthorizationFailedError
from aiokafka.protocol.commit import OffsetFetchResponse_v3

from streamapp.runners.worker.agents.group_answers import refuse_failed_offsets

ASKED = TopicPartition("asked", 0)
LOADS, MOVED, FORBIDDEN = 14, 16, 30


def failed(code: int) -> Any:
    return OffsetFetchResponse_v3(0, [], code)


class Client:
    """A client with answers of a broker."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers, OffsetFetchResponse_v3(0, [("asked", [(0, 56, "", 0)])], 0)]

    async def send(self, *_: Any, **__: Any) -> Any:
        return self.answers.pop(0)


class Coordinator(GroupCoordinator):  # type: ignore[misc]
    """aiokafka's coordinator, with a broker that is always found."""

    def __init__(self, client: Client) -> None:
        self._client, self.group_id, self.coordinator_id, self._retry_backoff_ms = client, "group", 1, 1

    async def ensure_coordinator_known(self) -> None:
        self.coordinator_id = 1

    def coordinator_dead(self) -> None:
        self.coordinator_id = None


async def test_aiokafka_takes_a_failed_answer_for_no_offsets() -> None:
    assert await Coordinator(Client(failed(LOADS))).fetch_committed_offsets([ASKED]) == {}


@pytest.mark.parametrize("errors", [[], [LOADS], [MOVED, LOADS, LOADS]])
async def test_the_offsets_of_a_group_that_is_loaded_are_waited_for(errors: list[int]) -> None:
    """After a broker's kill, agents of the group began at the beginning: 300 records were repeated."""
    client = Client(*map(failed, errors))
    refuse_failed_offsets(client)
    found = await Coordinator(client).fetch_committed_offsets([ASKED])
    assert {tp: at.offset for tp, at in found.items()} == {ASKED: 56}


async def test_an_error_that_does_not_pass_is_raised() -> None:
    client = Client(failed(FORBIDDEN))
    refuse_failed_offsets(client)
    with pytest.raises(GroupAuthorizationFailedError):
        await Coordinator(client).fetch_committed_offsets([ASKED])
