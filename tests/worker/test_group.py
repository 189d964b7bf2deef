"""A worker comes into a group that members of another kind are in, as those of a Kafka Streams application are."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import (
    Cancelled,
    GroupAuthorizationFailedError,
    GroupLoadInProgressError,
    InconsistentGroupProtocolError,
    KafkaError,
    UnknownError,
)
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import LeaveGroupRequest, SyncGroupRequest
from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewTopic

from streamapp.broker import LocalKafka
from streamapp.errors import BrokerError, StreamsError
from streamapp.runners.worker import group
from streamapp.runners.worker.group import (
    ask_while_missing,
    close_while_joining,
    listen_to_heartbeats,
    missing_topics,
    wait_until_free,
    watch_membership,
)
from tests.brokers import create_topics

from .conftest import Cluster, until


def test_a_worker_waits_until_strangers_have_left_the_group(cluster: Cluster) -> None:
    stranger = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": cluster.id})
    stranger.subscribe([cluster.source])
    until(lambda: stranger.poll(0.2) is None and bool(stranger.assignment()), 30, cluster.story)
    worker = cluster.start()
    worker.wait_for("waiting until all of them have left")
    stranger.close()
    cluster.feed(100)
    cluster.counted()
    assert worker.terminate() == 0


async def test_a_member_gets_the_partitions_of_a_topic_that_comes_after_its_join(
    kafka: LocalKafka,
) -> None:
    """aiokafka alone would ask for the topic again after five minutes."""
    topic = f"late-{uuid4().hex[:8]}"
    servers = kafka.bootstrap_servers
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=topic)
    await consumer.start()
    consumer.subscribe([topic])
    try:
        ask_while_missing(consumer._client, raises, pause=0.05)
        await consumer._client.force_metadata_update()
        assert consumer.assignment() == set()
        assert missing_topics(consumer._client) == [topic]
        admin = AdminClient({"bootstrap.servers": servers})
        await asyncio.to_thread(create_topics, admin, [NewTopic(topic, 2, 1)])
        async with asyncio.timeout(60):
            while not consumer.assignment():
                await asyncio.sleep(0.05)
    finally:
        await consumer.stop()


def raises(error: StreamsError) -> None:
    raise error


class Admin:
    """Describes a group as it is told."""

    def __init__(self, assignor: str, state: ConsumerGroupState = ConsumerGroupState.STABLE) -> None:
        members = [SimpleNamespace(client_id="app-StreamThread-1-consumer")]
        self._group = SimpleNamespace(partition_assignor=assignor, state=state, members=members)

    def describe_consumer_groups(self, groups: list[str], **_: Any) -> dict[str, Any]:
        described: Future[Any] = Future()
        described.set_result(self._group)
        return {groups[0]: described}


def test_strangers_that_stay_are_named() -> None:
    admin: Any = Admin("stream")
    with pytest.raises(
        BrokerError, match=r"group app still has 1 member .*app-StreamThread-1-consumer.*Stop"
    ):
        wait_until_free("app", admin, patience=0)


@pytest.mark.parametrize(
    "admin", [Admin("faust"), Admin("stream", ConsumerGroupState.EMPTY), Admin("", ConsumerGroupState.STABLE)]
)
def test_workers_and_empty_groups_are_not_waited_for(admin: Any) -> None:
    wait_until_free("app", admin, patience=0)


class Coordinator:
    """Is refused in these ways, one after the other."""

    def __init__(self, *refusals: Exception | None) -> None:
        self.refusals = list(refusals)
        self._subscription = SubscriptionState()

    def check_errors(self) -> None:
        refusal = self.refusals.pop(0)
        if refusal is not None:
            raise refusal


async def _no_time(seconds: float) -> None:
    pass


async def test_a_member_that_is_refused_tries_again_while_strangers_are_there_and_the_group_is_loaded() -> (
    None
):
    failures: list[StreamsError] = []
    strangers, forbidden = InconsistentGroupProtocolError(), GroupAuthorizationFailedError("app")
    loading = GroupLoadInProgressError()
    coordinator = Coordinator(None, strangers, loading, strangers, None, forbidden)
    await watch_membership(coordinator, failures.append, _no_time)
    assert coordinator.refusals == []
    assert "has refused this worker: GroupAuthorizationFailedError" in str(failures[0])


async def test_brokers_that_fail_without_a_reason_leave_advice() -> None:
    """The worker ended with no more than KafkaError('UnknownError()')."""
    failures: list[StreamsError] = []
    error = KafkaError(
        repr(UnknownError())
    )  # as aiokafka passes on an error of a join that it does not expect
    await watch_membership(Coordinator(error), failures.append, _no_time)
    assert "has refused this worker: KafkaError('UnknownError()'). Brokers have failed" in str(failures[0])
    assert "log of the broker that coordinates the group" in str(failures[0])


async def test_a_refusal_does_not_fail_the_fetch_of_an_agent() -> None:
    """The fetch ended the worker with KafkaError('UnknownError()') before the worker had told the reason."""
    refusal = GroupAuthorizationFailedError("app")
    coordinator = Coordinator(refusal)
    fetch = asyncio.get_running_loop().create_future()
    coordinator._subscription.register_fetch_waiters({fetch})
    await watch_membership(coordinator, [].append, _no_time)
    coordinator._subscription.abort_waiters(refusal)
    assert not fetch.done()


async def test_strangers_that_stay_end_the_worker() -> None:
    failures: list[StreamsError] = []
    await watch_membership(
        Coordinator(InconsistentGroupProtocolError()), failures.append, _no_time, patience=0
    )
    assert "still has members of another kind" in str(failures[0])


async def test_strangers_of_a_later_join_have_the_whole_time_to_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[StreamsError] = []
    strangers, forbidden = InconsistentGroupProtocolError(), GroupAuthorizationFailedError("app")
    times = iter([0.0, 5.0, 3_600.0, 3_605.0])
    monkeypatch.setattr(group, "time", SimpleNamespace(monotonic=lambda: next(times)))
    coordinator = Coordinator(strangers, strangers, None, strangers, None, strangers, forbidden)
    await watch_membership(coordinator, failures.append, _no_time, patience=60)
    assert "has refused this worker: GroupAuthorizationFailedError" in str(failures[0])


async def test_heartbeats_count_from_their_sending_when_the_group_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session begins anew when the broker gets a heartbeat, and the process may be suspended before the answer."""
    answers = iter([True, False, True])
    heard: list[float] = []
    now = 0.0
    monkeypatch.setattr(group.time, "monotonic", lambda: now)

    class Coordinator:
        async def _do_heartbeat(self) -> bool:
            nonlocal now
            now += 60
            return next(answers)

    coordinator = Coordinator()
    listen_to_heartbeats(coordinator, heard.append)
    assert [await coordinator._do_heartbeat() for _ in range(3)] == [True, False, True]
    assert heard == [0.0, 120.0]


@pytest.mark.parametrize(("instance_id", "leaves"), [(None, True), ("a", False)])
async def test_a_member_that_is_closed_waits_for_no_assignment_but_for_its_commits(
    instance_id: str | None, leaves: bool
) -> None:
    sent: list[object] = []

    class Coordinator:
        group_id, member_id, coordinator_id, _group_instance_id = "app", "member-1", 0, instance_id

        def __init__(self) -> None:
            self._closing = asyncio.get_running_loop().create_future()
            self._client = SimpleNamespace(send=self._send)

        async def _send_req(self, request: object) -> str:
            if isinstance(request, SyncGroupRequest):
                await asyncio.Event().wait()  # for a leader that hangs
            await asyncio.sleep(0)
            return "answer"

        async def _send(self, node_id: int, request: object) -> None:
            sent.append(request)

        def reset_generation(self) -> None:
            self.member_id = ""

    coordinator = Coordinator()
    close_while_joining(coordinator)
    joining = asyncio.create_task(coordinator._send_req(SyncGroupRequest("app", 1, "member-1", "", [])))
    await asyncio.sleep(0)
    coordinator._closing.set_result(None)
    with pytest.raises(Cancelled):
        await joining
    assert [type(request) for request in sent] == [LeaveGroupRequest] * leaves
    assert await coordinator._send_req(OffsetCommitRequest("app", 1, "member-1", 0, [])) == "answer"
