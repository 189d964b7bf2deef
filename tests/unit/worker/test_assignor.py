"""What a member tells its group, and hears from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.assignor.client_assignment import ClientAssignment

from streamapp import App, KStream, Materialized, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.runners.worker.agents.assignor import MemberMetadata
from streamapp.runners.worker.assignor import _candidate
from streamapp.runners.worker.membership import FaustMembership
from streamapp.runners.worker.placement import Candidate, TaskId, place


def describe(builder: StreamsBuilder) -> None:
    builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde()).to(
        "out", value_serde=StringSerde()
    )


def assigned(assignor: Any, url: str, **streams: Any) -> ConsumerProtocolMemberAssignment:
    """No partitions, to a member at that address."""
    metadata = MemberMetadata(
        assignment=ClientAssignment(actives={}, standbys={}),
        url=url,
        changelog_distribution={},
        external_topic_distribution={},
        topic_groups={},
        streams=streams,
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


def test_a_member_without_a_topology_tells_another_address_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The assignor failed: the assignment from before the restart has the earlier address."""
    app = App("agents")
    app.Table("rows")
    assignor: Any = app.assignor
    asked: list[None] = []
    monkeypatch.setattr(FaustMembership, "rejoin", lambda membership: asked.append(None))

    first = assignor.metadata({"in"}).user_data
    assignor.on_assignment(assigned(assignor, "http://elsewhere:6066"))
    assert asked == [None]
    assert assignor.metadata({"in"}).user_data != first
    assignor.on_assignment(assigned(assignor, str(assignor._url)))
    assert asked == [None]


def test_the_standbys_of_another_version_are_other_tasks() -> None:
    """A worker of a new version opened the state of a task twice and ended: its task 0_0 was another one than the
    leader's."""
    app = App("rolling", topology=describe)
    assignor: Any = app.assignor
    url, names = str(assignor._url), app.streams.plan.task_names
    told = {"standby": ["0_0"], "warmup": ["0_1"], "copies": {"0_0": ["http://elsewhere:6066"]}}
    for sender, standbys in ((names, {TaskId(0, 0): False, TaskId(0, 1): True}), ("other", {})):
        assignor.on_assignment(assigned(assignor, url, **told, names=sender))
        assert assignor.standbys == standbys
        assert assignor.copies_of(TaskId(0, 0)) == (("http://elsewhere:6066",) if standbys else ())
    assignor.on_assignment(assigned(assignor, url, **told))  # a leader of an earlier release
    assert assignor.standbys


def test_the_offsets_of_another_version_belong_to_other_tasks() -> None:
    task = TaskId(0, 0)
    for sender, lags in (("mine", {task: 5}), ("other", {}), (None, {task: 5})):
        metadata = MemberMetadata(
            assignment=ClientAssignment(actives={}, standbys={}),
            url="",
            changelog_distribution={},
            external_topic_distribution={},
            topic_groups={},
            streams={"offsets": {"0_0": 95}, "rack": "r"} | ({"names": sender} if sender else {}),
        )
        found = _candidate(metadata, "mine", {0: ["in"]}, {task: 100}, 0)
        assert (found.lags, found.rack, found.copies) == (lags, "r", bool(lags))


def test_members_of_another_version_get_no_copies() -> None:
    """They take none, so the copies would be nowhere, and the warm-ups of other members would wait for theirs."""
    tasks = [TaskId(0, number) for number in range(3)]
    ends = dict.fromkeys(tasks, 100)
    members = {
        "a": Candidate(frozenset(tasks), dict.fromkeys(tasks, 0)),
        "b": Candidate(copies=False),
        "c": Candidate(),
    }
    placement = place(tasks, ends, members, standby_replicas=1, acceptable_lag=0, max_warmups=1)
    assert placement.active["a"] == set(tasks)
    assert (placement.warmup["b"], placement.standby["b"]) == (set(), set())
    assert len(placement.warmup["c"]) == 1
    assert placement.standby["c"] | placement.warmup["c"] == set(tasks)


def test_a_member_whose_tasks_have_other_stores_is_told_apart() -> None:
    """The tables of one version would lack the records that the other version has processed."""
    assignor: Any = App("mixed", topology=describe).assignor
    url, roles = str(assignor._url), assignor.app.streams.plan.topic_roles
    for leader, topic in (
        ({"roles": roles}, None),
        ({"roles": {"in": "other"}}, "in"),
        ({"roles": {"elsewhere": "other"}}, None),
        ({}, None),  # a leader of an earlier release
    ):
        assignor.on_assignment(assigned(assignor, url, **leader))
        assert assignor.conflict == topic


def test_a_named_member_asks_again_before_it_believes_in_another_version() -> None:
    """Brokers give a member with a group_instance_id its assignment from before the restart, without a rebalance."""
    assignor: Any = App(
        "named", topology=describe, config=StreamsConfig("named", group_instance_id="a")
    ).assignor
    url, roles = str(assignor._url), assignor.app.streams.plan.topic_roles
    rejoins: list[int] = []
    assignor.app.streams.rejoin = lambda: rejoins.append(assignor._moved)
    for leader, outdated, asked in (
        ({"in": "other"}, True, [1]),
        ({"in": "other"}, False, [1]),  # the answer of a leader that runs
        (roles, False, [1]),
        ({"in": "other"}, True, [1, 2]),
    ):
        assignor.on_assignment(assigned(assignor, url, roles=leader))
        assert (assignor.outdated, rejoins) == (outdated, asked)


def test_the_roles_of_topics_follow_stores_and_repartition_topics() -> None:
    text = StringSerde()

    def roles(describe: Callable[[KStream[str, str]], Any], before: str | None = None) -> Mapping[str, str]:
        builder = StreamsBuilder()
        if before is not None:
            builder.stream(before, key_serde=text, value_serde=text).group_by_key().count(
                materialized=Materialized("before")
            )
        describe(builder.stream("in", key_serde=text, value_serde=text))
        return builder.build().plan(StreamsConfig("roles")).topic_roles

    def counted(name: str) -> Callable[[KStream[str, str]], Any]:
        return lambda stream: stream.group_by_key().count(materialized=Materialized(name))

    plain = roles(lambda stream: stream.to("out"))
    assert plain == roles(lambda stream: stream.filter(lambda key, value: True).to("elsewhere"))
    one = roles(counted("one"))
    assert one == roles(lambda stream: counted("one")(stream.filter(lambda key, value: True)))
    rekeyed = roles(
        lambda stream: (
            stream.select_key(lambda key, value: value)
            .group_by_key(name="re", key_serde=text, value_serde=text)
            .count(materialized=Materialized("one"))
        )
    )
    assert len({each["in"] for each in (plain, one, roles(counted("two")), rekeyed)}) == 4
    later = roles(counted("one"), before="first")  # the sub-topology has another number
    assert later["in"] == one["in"]


def test_the_names_of_tasks_follow_sub_topologies_and_stores() -> None:
    def names(*topics: str) -> str:
        builder = StreamsBuilder()
        for topic in topics:
            builder.stream(topic, key_serde=StringSerde(), value_serde=StringSerde()).foreach(print)
        return builder.build().plan().task_names

    assert names("a", "b") == names("a", "b")
    assert len({names("a"), names("a", "b"), names("b", "a")}) == 3
