"""What a member tells its group, and hears from it."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.assignor.client_assignment import ClientAssignment

from streamapp import App, KStream, Materialized, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.records import TopicPartition
from streamapp.runners.worker.agents.assignor import MemberMetadata
from streamapp.runners.worker.assignor import _candidate, _twins
from streamapp.runners.worker.membership import FaustMembership
from streamapp.runners.worker.placement import Candidate, TaskId, place
from streamapp.runners.worker.topics import Topics


def describe(builder: StreamsBuilder) -> None:
    builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde()).to(
        "out", value_serde=StringSerde()
    )


def assigned(assignor: Any, url: str, **streams: Any) -> ConsumerProtocolMemberAssignment:
    """No partitions, to a member at that address, after its last subscription."""
    metadata = MemberMetadata(
        assignment=ClientAssignment(actives={}, standbys={}),
        url=url,
        changelog_distribution={},
        external_topic_distribution={},
        topic_groups={},
        streams={"reads": assignor._reads, **streams},
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


def test_of_members_with_one_process_id_the_member_with_tasks_stays() -> None:
    def member(url: str, process: str | None, *partitions: int) -> MemberMetadata:
        return MemberMetadata(
            assignment=ClientAssignment(actives={"in": list(partitions)} if partitions else {}, standbys={}),
            url=url,
            changelog_distribution={},
            external_topic_distribution={},
            topic_groups={},
            streams={"process": process},
        )

    copy, runs, other = (
        member("http://copy", "A1"),
        member("http://runs", "A1", 0, 1),
        member("http://o", "B2"),
    )
    earlier = [member(f"http://{name}", None) for name in "xy"]
    members = dict(zip("abcde", [copy, runs, other, *earlier], strict=True))
    assert _twins(members) == {"a": "http://runs"}


def test_a_static_member_that_had_a_copied_id_asks_anew() -> None:
    """Its assignment may be from before its restart, and so from before its folder was put right."""
    app = App("static", topology=describe, config=StreamsConfig("static", group_instance_id="one"))
    assignor: Any = app.assignor
    asked: list[None] = []
    app.streams.rejoin = lambda: asked.append(None)  # type: ignore[method-assign]
    told = assigned(assignor, str(assignor._url), twin="http://elsewhere:6066")
    for outdated in (True, False):
        assignor.on_assignment(told)
        assert (assignor.twin, assignor.outdated) == ("http://elsewhere:6066", outdated)
    assert asked == [None]


PARTITIONS = 4


class FourEach:
    """A cluster in which each topic has four partitions."""

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(PARTITIONS))


def of_agents(
    *topics: str,
    regrouped: Sequence[str] = (),
    topology: bool = False,
    counts_all: bool = False,
    tables: bool = True,
    table: str = "seen",
) -> tuple[Any, set[str]]:
    """The assignor of a worker whose agents read the topics and have a table, and the topics of its subscription."""
    app = App("rolling", topology=describe if topology else None, web_port=next(PORTS))
    for topic in topics:
        app.agent(app.topic(topic), name=f"read-{topic}")(nothing)
    made = [app.Table(table, partitions=PARTITIONS)] if tables else []
    if counts_all:
        made += [app.Table("more", partitions=PARTITIONS), app.GlobalTable("all", partitions=PARTITIONS)]
    changelogs = {table.changelog_topic.get_topic_name() for table in made}
    return app.assignor, {*topics, *regrouped, *changelogs, *(["in"] if topology else [])}


async def nothing(stream: Any) -> None: ...


PORTS = count(7000)
VERSIONS: dict[str, dict[str, Any]] = {
    "another topic": {"topics": ("orders", "returns")},
    "a topic with a new name": {"topics": ("sales",)},
    "a new table": {"topics": ("orders",), "counts_all": True},
    "another agent that groups": {"topics": ("orders",), "regrouped": ["new-orders-shop-repartition"]},
}


@pytest.mark.parametrize("topology", [False, True], ids=["agents-only", "beside-a-topology"])
@pytest.mark.parametrize("new_leads", [False, True], ids=["old-leads", "new-leads"])
@pytest.mark.parametrize("version", VERSIONS)
def test_members_of_two_versions_never_part_a_topic_from_the_changelog_of_a_table(
    version: str, new_leads: bool, topology: bool
) -> None:
    """A worker of the new version got a topic, and a worker of the old version the changelog with the rows. So the rows
    began anew, and the changelog had wrong rows from then on. With a new table, an AssertionError ended both workers."""
    old = of_agents("orders", regrouped=["old-orders-shop-repartition"], topology=topology)
    settings = dict(VERSIONS[version])
    new = of_agents(*settings.pop("topics"), topology=topology, **settings)
    members = {f"{name}-{number}": each for name, each in (("old", old), ("new", new)) for number in (1, 2)}
    told = {name: assignor.metadata(topics) for name, (assignor, topics) in members.items()}
    leader = (new if new_leads else old)[0]
    if topology:
        leader.app.streams.changelog_ends = lambda tasks: {}
    answers = leader.assign(FourEach(), told)
    placed: Counter[tuple[str, int]] = Counter()
    for name, answer in answers.items():
        assignor, _ = members[name]
        assignor.on_assignment(answer)
        active: dict[str, list[int]] = assignor._assignment.actives
        of_agents_here = {topic: sorted(found) for topic, found in active.items() if topic not in ("in", ALL)}
        assert len({str(found) for found in of_agents_here.values()}) <= 1
        assert (name.split("-")[0] == ("new" if new_leads else "old")) == (of_agents_here != {})
        placed.update(
            (topic, partition) for topic, found in active.items() if topic != ALL for partition in found
        )
    assert set(placed.values()) == {1}
    assert {topic for topic, _ in placed} >= {"rolling-seen-changelog", *(["in"] if topology else [])}


ALL = "rolling-all-changelog"


@pytest.mark.parametrize("tables", [False, True])
def test_only_members_of_another_version_that_wait_are_told(
    tables: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each rollout of agents without a table had the warning, although no worker waited."""
    members = {
        "old": of_agents("orders", tables=tables),
        "new": of_agents("orders", "returns", tables=tables),
    }
    told = {name: assignor.metadata(topics) for name, (assignor, topics) in members.items()}
    answers = members["old"][0].assign(FourEach(), told)
    assert ("need other topics than here" in caplog.text) == tables
    members["new"][0].on_assignment(answers["new"])
    assert bool(members["new"][0]._assignment.actives) != tables


@pytest.mark.parametrize("topology", [False, True], ids=["agents-only", "beside-a-topology"])
def test_workers_with_different_agents_run_at_the_same_time_if_they_share_no_topic_of_a_table(
    topology: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """All agents of the other workers waited without a word, although no table was in danger."""
    members = {
        f"{role}-{number}": of_agents(role, table=f"{role}-table", topology=topology)
        for role in ("orders", "returns")
        for number in (1, 2)
    }
    leader = members["orders-1"][0]
    if topology:
        leader.app.streams.changelog_ends = lambda tasks: {}
    answers = leader.assign(
        FourEach(), {name: assignor.metadata(topics) for name, (assignor, topics) in members.items()}
    )
    placed: Counter[str] = Counter()
    for name, answer in answers.items():
        assignor, role = members[name][0], name.split("-")[0]
        assignor.on_assignment(answer)
        assert assignor.waits_for is None
        active, changelog = assignor._assignment.actives, f"rolling-{role}-table-changelog"
        assert active[role] == active[changelog]
        placed[role] += len(active[role])
        # Pages of the table find the worker of a key, also if the leader does not have the table.
        assert assignor.table_metadata(changelog)[str(assignor._url)] == {changelog: active[changelog]}
        assert {tp.partition for tp in assignor._tps_url if tp.topic == changelog} == set(range(PARTITIONS))
    assert placed == {"orders": PARTITIONS, "returns": PARTITIONS}
    assert "need other topics than here" not in caplog.text


def test_a_worker_that_waits_for_the_leader_s_version_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The worker idled, and said that it was ready. Only the log of the leader had a line."""
    members = {
        "leads": of_agents("orders"),
        "shares the table": of_agents("returns"),
        "shares nothing": of_agents("rates", table="other"),
        "has a global table": of_agents("refunds", table="refunded", counts_all=True),
    }
    told = {name: assignor.metadata(topics) for name, (assignor, topics) in members.items()}
    leader = members["leads"][0]
    for times in (1, 2):
        answers = leader.assign(FourEach(), told)
        for name, answer in answers.items():
            assignor = members[name][0]
            assignor.on_assignment(answer)
            waits = name in ("shares the table", "has a global table")
            assert assignor.waits_for == (str(leader._url) if waits else None)
            assert bool(assignor._assignment.actives) != waits
        assert caplog.text.count("The agents of this worker wait") == 2, times  # each of the two says so once


def test_members_of_one_version_share_the_partitions() -> None:
    """A reply topic, or a topic that only the leader reads, makes no other version."""
    members = {
        str(number): of_agents("orders", regrouped=["a-orders-shop-repartition"]) for number in range(2)
    }
    members["0"][1].add("f-reply-of-0")
    told = {name: assignor.metadata(topics) for name, (assignor, topics) in members.items()}
    answers = members["0"][0].assign(FourEach(), told)
    for name, answer in answers.items():
        assignor, _ = members[name]
        assignor.on_assignment(answer)
        assert len(assignor._assignment.actives["rolling-seen-changelog"]) == PARTITIONS // 2


def reads(*named: str, pattern: str | None = None, found: Sequence[str] = ()) -> tuple[Any, set[str]]:
    """The assignor of a worker whose topology merges the topics, with those that it has found for the pattern."""

    def merge(builder: StreamsBuilder) -> None:
        text = StringSerde()
        sources = [*named, *([] if pattern is None else [re.compile(pattern)])]
        streams = [builder.stream(source, key_serde=text, value_serde=text) for source in sources]
        merged = functools.reduce(KStream.merge, streams)
        merged.group_by_key().count(materialized=Materialized("counts"))

    app = App("rolling", topology=merge, web_port=next(PORTS))
    topics = (*named, *found)
    app.streams._take(Topics(dict.fromkeys(topics, PARTITIONS), {0: topics}))
    app.streams.changelog_ends = lambda tasks: {}  # type: ignore[method-assign]
    return app.assignor, set(topics)


TWO_VIEWS: dict[str, Callable[[], tuple[tuple[Any, set[str]], tuple[Any, set[str]]]]] = {
    "a topic that only one has found": lambda: (
        reads(pattern="in.*", found=["in"]),
        reads(pattern="in.*", found=["in", "in-2"]),
    ),
    "a topic that only one has found, beside another": lambda: (
        reads("orders", pattern="in.*"),
        reads("orders", pattern="in.*", found=["in", "in-2"]),
    ),
    "a version that merges one more topic": lambda: (reads("orders"), reads("orders", "returns")),
    "a version with a pattern": lambda: (reads("orders"), reads("orders", pattern="in.*", found=["in"])),
}


UNREAD = {"a version that merges one more topic": {"returns"}, "a version with a pattern": {"in"}}
"""The topics of the leader's version that the other worker never reads."""


@pytest.mark.parametrize("more_leads", [False, True], ids=["less-leads", "more-leads"])
@pytest.mark.parametrize("views", TWO_VIEWS)
def test_each_task_has_one_worker_whatever_topics_workers_know(views: str, more_leads: bool) -> None:
    """The leader did not know a topic, and divided its partitions without a look at the tasks. Two workers ran one
    task."""
    less, more = TWO_VIEWS[views]()
    members = {"less": less, "more": more, "more-2": TWO_VIEWS[views]()[1]}
    told = {name: assignor.metadata(topics) for name, (assignor, topics) in members.items()}
    leader = members["more" if more_leads else "less"][0]
    answers = leader.assign(FourEach(), told)
    run = [task for name, answer in answers.items() for task in tasks_of(members[name][0], answer)]
    assert sorted(run) == [TaskId(0, number) for number in range(PARTITIONS)]
    assert members["less"][0].unread == (UNREAD.get(views, set()) if more_leads else set())


def tasks_of(assignor: Any, answer: Any) -> list[TaskId]:
    """The tasks that a worker runs after an answer of the leader."""
    assignor.on_assignment(answer)
    active = assignor._assignment.actives
    owned = {TopicPartition(topic, number) for topic, numbers in active.items() for number in numbers}
    return assignor.app.streams._tasks_of(owned)  # type: ignore[no-any-return]


def test_each_task_has_one_worker_if_a_leader_of_an_earlier_release_does_not_know_a_topic() -> None:
    """Such a leader divides the topic without a look at the tasks. No worker ran a task that it had parted."""
    members = {"old": reads("orders"), **{name: reads("orders", "returns") for name in ("new", "new-2")}}
    told = {name: assignor.metadata(topics) for name, (assignor, topics) in members.items()}
    answers = members["old"][0].assign(FourEach(), told)
    run: list[TaskId] = []
    for name, answer in answers.items():
        assignor = members[name][0]
        metadata = MemberMetadata.loads(assignor._decompress(answer.user_data))
        del metadata.streams["placed"]
        run += tasks_of(
            assignor,
            type(answer)(answer.version, answer.assignment, assignor._compress(metadata.dumps())),
        )
    assert sorted(run) == [TaskId(0, number) for number in range(PARTITIONS)]


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


@pytest.mark.parametrize("name", ["a", None])
def test_a_named_member_asks_again_if_its_assignment_answers_another_subscription(name: str | None) -> None:
    """Nobody read the further topics of a new version."""
    config = StreamsConfig("doubting", group_instance_id=name)
    assignor: Any = App("doubting", topology=describe, config=config).assignor
    url, roles = str(assignor._url), assignor.app.streams.plan.topic_roles
    rejoins: list[int] = []
    assignor.app.streams.rejoin = lambda: rejoins.append(assignor._moved)
    assignor.metadata({"in"})
    earlier = assigned(assignor, url, roles=roles)
    assignor.metadata({"in", "more"})
    for answer, outdated in (
        (earlier, True),
        (earlier, False),  # the answer of a leader that runs
        (assigned(assignor, url, roles=roles), False),
    ):
        assignor.on_assignment(answer)
        assert assignor.outdated == (outdated and name is not None)
    assert rejoins == ([1] if name else [])
    assignor.metadata({"in"})
    assignor.on_assignment(earlier)
    assert not assignor.outdated


def test_the_digest_of_a_subscription_has_the_numbers_of_partitions() -> None:
    assignor: Any = App("growing", topology=describe).assignor
    digests = []
    for number in (4, 8, 4):
        assignor.app.streams.source_partitions = lambda number=number: {"in": number}
        assignor.metadata({"in"})
        digests.append(assignor._reads)
    assert digests[0] == digests[2] != digests[1]


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
