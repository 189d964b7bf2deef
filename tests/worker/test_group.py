"""A worker comes into a group that members of another kind are in, as those of a Kafka Streams application are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState

from streamapp.errors import BrokerError
from streamapp.runners.worker.group import wait_until_free

from .conftest import Cluster, until


def test_a_worker_waits_until_strangers_have_left_the_group(cluster: Cluster) -> None:
    stranger = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": cluster.id})
    stranger.subscribe([cluster.source])
    until(lambda: stranger.poll(0.2) is None and bool(stranger.assignment()), 30, cluster.story)
    worker = cluster.start()
    worker.wait_for("waiting until they have left")
    stranger.close()
    cluster.feed(100)
    cluster.counted()
    assert worker.terminate() == 0


class Admin:
    """Describes a group as it is told."""

    def __init__(self, assignor: str, state: ConsumerGroupState = ConsumerGroupState.STABLE) -> None:
        members = [SimpleNamespace(client_id="app-StreamThread-1-consumer")]
        self._group = SimpleNamespace(partition_assignor=assignor, state=state, members=members)

    def describe_consumer_groups(self, groups: list[str], **_: Any) -> dict[str, Any]:
        return {groups[0]: SimpleNamespace(result=lambda: self._group)}


def test_strangers_that_stay_are_named() -> None:
    admin: Any = Admin("stream")
    with pytest.raises(
        BrokerError, match=r"group app still has 1 members .*app-StreamThread-1-consumer.*Stop"
    ):
        wait_until_free("app", admin, patience=0)


@pytest.mark.parametrize(
    "admin", [Admin("faust"), Admin("stream", ConsumerGroupState.EMPTY), Admin("", ConsumerGroupState.STABLE)]
)
def test_workers_and_empty_groups_are_not_waited_for(admin: Any) -> None:
    wait_until_free("app", admin, patience=0)
