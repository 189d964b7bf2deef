"""What a member tells its group, and hears from it."""

from __future__ import annotations

from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.assignor.client_assignment import ClientAssignment

from streamapp import App, StreamsBuilder, StringSerde
from streamapp.runners.worker.assignor import _Metadata


def describe(builder: StreamsBuilder) -> None:
    builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde()).to(
        "out", value_serde=StringSerde()
    )


def assigned(assignor: Any, url: str) -> ConsumerProtocolMemberAssignment:
    """Nothing, to a member at that address."""
    metadata = _Metadata(
        assignment=ClientAssignment(actives={}, standbys={}),
        url=url,
        changelog_distribution={},
        external_topic_distribution={},
        topic_groups={},
    )
    return ConsumerProtocolMemberAssignment(0, [], assignor._compress(metadata.dumps()))


def test_a_member_under_another_address_says_something_new() -> None:
    """A broker that hears the same again from a static member assigns nothing anew (KIP-345)."""
    app = App("moving", topology=describe)
    assignor: Any = app.assignor
    asked: list[None] = []
    app.streams.rejoin = lambda: asked.append(None)  # type: ignore[method-assign]

    first = assignor.metadata({"in"}).user_data
    assert assignor.metadata({"in"}).user_data == first
    assignor.on_assignment(assigned(assignor, "http://elsewhere:6066"))
    assert asked == [None]
    second = assignor.metadata({"in"}).user_data
    assert second != first
    assignor.on_assignment(assigned(assignor, str(assignor._url)))
    assert asked == [None]
    assert assignor.metadata({"in"}).user_data == second
