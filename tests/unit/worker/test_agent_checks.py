"""The worker refuses requests of agents that nobody can grant, and names a remedy."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import TopicAuthorizationFailedError
from faust.stores.memory import Store as MemoryStore
from faust.types import TP
from mode.utils.locks import Event

from streamapp import App, ConfigError, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.engine.metadata import (
    METADATA_LIMIT,
    changelog_notes,
    changelogs_of_agents_in,
    metadata_of,
)
from streamapp.engine.topic_notes import noted_topics
from streamapp.errors import BrokerError, StreamsError
from streamapp.runners.worker.agents import consumer as consumer_of_agents
from streamapp.runners.worker.agents.committed_offsets import DueOffsets, GroupOffsets
from streamapp.runners.worker.agents.consumer import AgentConsumer
from streamapp.runners.worker.agents.consumer_thread import AgentConsumerThread
from streamapp.runners.worker.agents.demands import check_agents
from streamapp.runners.worker.agents.finished import Progress
from streamapp.runners.worker.agents.leaders import Leaders
from streamapp.runners.worker.faust_names import SubtopologyAgent
from streamapp.runners.worker.membership import Member

EXACTLY_ONCE = StreamsConfig(processing_guarantee="exactly_once_v2")


def upper(builder: StreamsBuilder) -> None:
    text = StringSerde()
    builder.stream("in", key_serde=text, value_serde=text).map_values(str.upper).to(
        "out", key_serde=text, value_serde=text
    )


async def nothing(stream: Any) -> None:
    async for _ in stream:
        pass


def plain(app: App) -> list[Any]:
    return [agent for agent in app.agents.values() if not isinstance(agent, SubtopologyAgent)]


def test_an_agent_on_an_input_of_the_topology_is_refused(tmp_path: Path) -> None:
    app = App("checked", topology=upper, datadir=tmp_path)
    app.agent(app.topic("out"))(nothing)
    check_agents(app, plain(app), app.streams.is_source)
    app.agent(app.topic("in"), name="late")(nothing)
    with pytest.raises(ConfigError, match="the agent .*late reads in, which the topology also reads"):
        check_agents(app, plain(app), app.streams.is_source)


@pytest.mark.parametrize("topic", ["in", "more-1"])
async def test_agents_are_checked_before_topics_and_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """The topology had its topics and state, and processed records, before the worker refused to start."""

    def described(builder: StreamsBuilder) -> None:
        upper(builder)
        text = StringSerde()
        builder.stream(re.compile("more-.*"), key_serde=text, value_serde=text).to("elsewhere")

    async def idle(*_: Any) -> None: ...

    app = App("checked", topology=described, datadir=tmp_path)
    app.agent(app.topic(topic))(nothing)
    started: list[str] = []
    monkeypatch.setattr(faust.App, "on_start", idle)
    monkeypatch.setattr(type(app.streams), "start", lambda self: idle(started.append("topology")))
    with pytest.raises(ConfigError, match="which the topology also reads"):
        await app.on_start()
    assert not started


@pytest.mark.parametrize("pattern", ["in-.*", re.compile("in-.*")])
def test_a_topic_of_a_pattern_is_refused(pattern: Any) -> None:
    """Faust subscribes to none of the topics, so the agent got no record, and the worker was healthy."""
    with pytest.raises(ConfigError, match=r"app.topic\(pattern='in-\.\*'\): .* in a topology"):
        App("checked").topic(pattern=pattern)


@pytest.mark.parametrize("of_table", [None, "memory://"])
def test_a_table_on_disk_cannot_be_exact(tmp_path: Path, of_table: str | None) -> None:
    """A table with ``store="memory://"`` was taken for one in memory, but Faust kept it on disk."""
    for config in (None, EXACTLY_ONCE):
        app = App("checked", config=config, datadir=tmp_path, store="rocksdb://")
        app.Table("totals", default=int, store=of_table)
        if config is None:
            check_agents(app, app.agents.values(), lambda topic: False)
        else:
            with pytest.raises(
                ConfigError, match="the table totals cannot be exact .* writes a change to rocksdb before"
            ):
                check_agents(app, app.agents.values(), lambda topic: False)


@pytest.mark.parametrize("kind", ["SetTable", "SetGlobalTable"])
def test_a_table_of_sets_in_memory_runs_beside_tables_on_disk(tmp_path: Path, kind: str) -> None:
    """The check of the start took the table for one in memory, but Faust kept it on disk, and lost members."""
    app = App("checked", datadir=tmp_path, store="rocksdb://")
    table = getattr(app, kind)("carriers", value_type=str, store="memory://")
    check_agents(app, app.agents.values(), lambda topic: False)
    assert isinstance(table.data.storage, MemoryStore)


@pytest.mark.parametrize("config", [None, EXACTLY_ONCE])
def test_a_table_of_sets_on_disk_is_refused(tmp_path: Path, config: StreamsConfig | None) -> None:
    """A restart lost all members of a set with a `value_type`, under both guarantees and without a word."""
    app = App("checked", config=config, datadir=tmp_path, store="rocksdb://")
    app.SetTable("carriers", value_type=str)
    with pytest.raises(ConfigError, match="the table carriers would lose members at a restart"):
        check_agents(app, app.agents.values(), lambda topic: False)


class Charge(faust.Record):
    amount: float


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_type_that_faust_cannot_decode_is_refused(part: str) -> None:
    """Faust calls `from_data` of any other type: the first record used to end the worker with an AttributeError."""
    for number, good in enumerate((None, int, float, Decimal, str, bytes, Charge)):
        app = App("checked")
        app.agent(app.topic("in", **{f"{part}_type": good}), name=f"of-{number}")(nothing)
        app.Table("totals", **{f"{part}_type": good})
        check_agents(app, app.agents.values(), lambda topic: False)

    class Own(faust.Schema):
        """Decodes as its author likes."""

    app = App("checked")
    app.agent(app.topic("in", schema=Own(**{f"{part}_type": dict})), name="own")(nothing)
    check_agents(app, app.agents.values(), lambda topic: False)
    app.agent(app.topic("in", **{f"{part}_type": dict}), name="books")(nothing)
    remedy = f'Leave {part}_type out .* dicts from {part}_serializer="json".* derived from faust.Record'
    with pytest.raises(ConfigError, match=f"the agent .*books reads in with {part}_type=dict, .*{remedy}"):
        check_agents(app, app.agents.values(), lambda topic: False)

    app = App("checked")
    app.Table("totals", **{f"{part}_type": dict})
    with pytest.raises(
        ConfigError, match=f"the table totals has a changelog with {part}_type=dict, .*{remedy}"
    ):
        check_agents(app, app.agents.values(), lambda topic: False)


def test_a_partitioner_of_its_own_is_refused_where_nobody_would_ask_it() -> None:
    def first(key: Any, partitions: list[int], available: list[int]) -> int:
        return partitions[0]

    App("checked", producer_partitioner=first)
    with pytest.raises(ConfigError, match="give topic.send a partition instead"):
        App("checked", config=EXACTLY_ONCE, producer_partitioner=first)


def test_another_transport_is_refused() -> None:
    with pytest.raises(ConfigError, match="confluent://localhost:9092.*an App takes kafka://host:port"):
        App("checked", broker="confluent://localhost:9092")


def test_a_topic_that_metadata_does_not_have_yet_has_no_number_of_partitions() -> None:
    """Good records became dead letters at the start of a worker: "the changelog topic has 0 partitions"."""
    consumer = object.__new__(AgentConsumer)
    snapshot = {"asked": 4, "told-changelog": 0}
    consumer._thread = SimpleNamespace(topic_partitions=snapshot.get)
    assert [consumer.topic_partitions(topic) for topic in ("asked", "told-changelog", "other")] == [
        4,
        None,
        None,
    ]


async def test_a_commit_that_waited_while_partitions_were_given_up_does_nothing() -> None:
    """A worker ended with an AssertionError: its timer committed while a rebalance waited for the last commit."""
    consumer = object.__new__(AgentConsumer)
    consumer.app = SimpleNamespace(client_only=False)
    consumer._given_up, consumer._committing = False, asyncio.Lock()
    consumer._member = Member(7, "a")
    async with consumer._committing:
        waiting = asyncio.ensure_future(consumer.force_commit())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        consumer._member = None
    assert not await waiting


async def test_a_failure_ends_the_worker_although_the_stop_of_the_flow_cancels_its_task() -> None:
    """A worker logged "this worker ends", and then stood still for good and said that it was ready."""
    consumer, crashed = object.__new__(AgentConsumer), asyncio.Event()
    failing: asyncio.Task[None]

    async def crash(error: StreamsError) -> None:
        crashed.set()

    async def force_commit() -> bool:
        await asyncio.sleep(0)
        return False

    def stop_handing_out() -> None:  # as Faust does to the task that hands a record out
        failing.cancel()

    consumer.app = SimpleNamespace(should_stop=False, crash=crash)
    consumer._limits = {}
    consumer._stop_handing_out, consumer.force_commit = stop_handing_out, force_commit  # type: ignore[method-assign]
    failing = asyncio.ensure_future(consumer.fail(StreamsError("bytes that nobody can read"), None))
    with pytest.raises(asyncio.CancelledError):
        await failing
    await asyncio.wait_for(crashed.wait(), 5)


def test_an_app_without_a_topology_says_why_it_has_no_streams() -> None:
    app = App("only-agents")
    with pytest.raises(AttributeError, match="the App only-agents has no topology, so it has no streams"):
        _ = app.streams
    assert not hasattr(app, "streams")


ORDERS = TP("orders", 0)


class Offsets(GroupOffsets):
    """The offsets of a group that has one offset. No broker is asked."""

    def __init__(self, app: Any, position: int) -> None:
        super().__init__(app)
        self._position = position

    async def read(self, partitions: Iterable[TP]) -> dict[TP, int]:
        return {ORDERS: self._position}

    async def check(self, found: Mapping[TP, int]) -> dict[TP, int]:
        return {}


class Seeking(AgentConsumer):
    """A consumer whose group has the position 7 of a partition. Nothing runs in it."""

    def __init__(self, member: Member | None, position: int = 7) -> None:
        self.app = SimpleNamespace(
            client_only=False,
            consumer_generation_id=7,
            topics=SimpleNamespace(acks_enabled_for=lambda _: True),
            agents={},
            tables=SimpleNamespace(with_rows=None, values=list),
        )
        self._thread = SimpleNamespace(watch_removals=lambda found, note: None)
        self._member, self._turn, self._batch, self._behind = member, 0, 0, False
        self._placed, self._too_early, self._committed_offset = set(), {}, {}
        self._progress: Any = {ORDERS: Progress()}
        self._fetching = asyncio.Lock()
        self._active_partitions, self._buffered_partitions = {ORDERS}, set()
        self.not_waiting_next_records, self.can_resume_flow, self.suspend_flow = Event(), Event(), Event()
        self._leaders, self._group = Leaders(StreamsConfig("seeking")), Offsets(self.app, position)
        self._looked_for_left = True
        self.handed_out: list[int] = []
        self.resume_flow()

    should_stop = False

    def assignment(self) -> set[TP]:
        return {ORDERS}

    async def seek(self, tp: TP, offset: int) -> None: ...

    async def _pass_on(self, message: Any) -> None:
        self.handed_out.append(message.offset)


async def test_a_fetch_that_ends_while_the_flow_stands_sets_no_position() -> None:
    """Agents never got the records that Faust dropped between this seek and the seek of the new assignment."""

    class Fetching(Seeking):
        async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
            self.stop_flow()
            return {}

    consumer = Fetching(Member(7, "a"))
    assert [message async for message in consumer.getmany(1.0)] == []
    consumer._batch = consumer._turn
    await consumer._hand_out(SimpleNamespace(tp=ORDERS, offset=9))
    assert consumer.handed_out == []


async def test_a_seek_between_two_generations_sets_no_position() -> None:
    """Such a seek comes from the recovery of the last generation."""
    consumer = Seeking(None)
    await consumer.perform_seek()
    consumer._batch = consumer._turn
    await consumer._hand_out(SimpleNamespace(tp=ORDERS, offset=9))
    assert consumer.handed_out == []


async def test_records_are_handed_out_after_the_seek_of_their_generation() -> None:
    consumer = Seeking(Member(7, "a"))
    await consumer.perform_seek()
    consumer._batch = consumer._turn
    await consumer._hand_out(SimpleNamespace(tp=ORDERS, offset=7))
    assert consumer.handed_out == [7]


async def test_records_that_an_earlier_version_has_left_are_looked_for_once_and_a_failure_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each assignment asked the whole cluster, and its failure ended a healthy worker."""
    futures: list[Any] = []

    class Looking(Seeking):
        def add_future(self, coro: Any) -> Any:
            futures.append(coro)

    def fails(*_: Any) -> None:
        raise BrokerError("no answer")

    monkeypatch.setattr(consumer_of_agents, "tell_left_by_agents", fails)
    consumer = Looking(Member(7, "a"))
    consumer._looked_for_left = False
    consumer.app.config = StreamsConfig("left", bootstrap_servers="localhost:1")
    for _ in range(3):
        await consumer.perform_seek()
    (looking,) = futures
    await looking
    assert "records that an earlier version may have left are not known: no answer" in caplog.text
    consumer._batch = consumer._turn
    await consumer._hand_out(SimpleNamespace(tp=ORDERS, offset=7))
    assert consumer.handed_out == [7]


async def test_a_topic_that_the_client_may_not_read_ends_the_worker_with_the_remedy() -> None:
    """The last line of the worker was no error: Faust had the bare error of aiokafka."""
    failures: list[str] = []

    class Refused(Seeking):
        async def fail(self, error: StreamsError, record: Any) -> None:
            failures.append(str(error))

    async def refuse(*_: Any) -> None:
        raise TopicAuthorizationFailedError("orders")

    consumer = Refused(Member(7, "a"))
    consumer.fetches, consumer._seamless = 0, True
    consumer._thread = SimpleNamespace(getmany=refuse)
    assert await consumer._getmany({ORDERS}, 1.0) == {}
    (said,) = failures
    assert said.startswith("the topic orders, of agents or their tables, cannot be read")
    assert "Grant this client READ on the topic" in said


def test_the_position_of_agents_is_their_first_record_that_is_not_finished() -> None:
    consumer = Seeking(Member(7, "a"))
    consumer._thread = SimpleNamespace(fetched_up_to=lambda tp: (10, 12))
    consumer._acked_index = {ORDERS: {8}}
    assert [(each.position, each.end, each.buffered) for each in consumer.inputs] == [(10, 12, 0)]
    for offset in (7, 8, 9):
        consumer._progress[ORDERS].hand_out(offset)
    assert [(each.position, each.lag, each.buffered) for each in consumer.inputs] == [(7, 5, 2)]
    consumer._member = None
    assert consumer.inputs == ()


async def test_records_are_handed_out_while_the_subscription_changes() -> None:
    """A worker ended with an AssertionError of aiokafka: the first `ask` subscribed to the reply topic."""
    subscription = SubscriptionState()
    subscription.subscribe({"orders"})
    subscription.assign_from_subscribed({ORDERS})
    subscription.subscription.assignment.state_value(ORDERS).lso = 12
    client = object.__new__(AIOKafkaConsumer)
    client._subscription, client._closed = subscription, True
    thread = object.__new__(AgentConsumerThread)
    thread.consumer = SimpleNamespace(in_transaction=True)
    thread._ensure_consumer = lambda: client
    assert thread.highwater(ORDERS) == 12
    subscription.subscribe({"orders", "replies"})
    assert thread.highwater(ORDERS) is None


async def test_a_partition_that_goes_away_while_brokers_tell_its_end_gets_no_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A late answer set the positions of an assignment that was gone, and the next commit took them to the group."""

    class Beginning(Seeking):
        async def _commit_done(self, topics: Any) -> bool:
            raise AssertionError("nothing to commit")

    def ends(*_: Any, **__: Any) -> dict[Any, int]:
        consumer._member = Member(8, "a")  # a rebalance
        return {ORDERS: 20}

    consumer = Beginning(Member(7, "a"), position=-1)
    consumer.app.conf = SimpleNamespace(consumer_auto_offset_reset="latest")
    consumer.app.config = None
    consumer._begun = {}
    monkeypatch.setattr("streamapp.runners.worker.agents.consumer.admin_client", lambda config: None)
    monkeypatch.setattr("streamapp.runners.worker.agents.consumer.list_offsets", ends)
    await consumer.perform_seek()
    assert (consumer._placed, consumer._begun, consumer._turn) == (set(), {}, 0)


async def test_agents_that_begin_at_the_end_never_commit_an_earlier_position() -> None:
    """A worker that ends limits positions to those that it knows. The start of the log would then be the position."""
    consumer = Seeking(Member(7, "a"))
    consumer.app._attachments = SimpleNamespace(
        trim=lambda positions: None, of=lambda positions: {}, sent=nothing_sent
    )
    consumer.app.producer = SimpleNamespace(settle=settle)
    consumer.app.tables = consumer.app.monitor = SimpleNamespace(
        on_commit=lambda due: None, on_tp_commit=lambda due: None, values=list
    )
    consumer._committed_offset = {ORDERS: None}
    consumer._thread = SimpleNamespace(tp_last_committed_at={})
    consumer._transactions, consumer._begun = None, {ORDERS: 20}
    committed: list[dict[TP, int]] = []

    async def commit_alone(due: DueOffsets, member: Member) -> bool:
        committed.append(dict(due.positions))
        return True

    consumer._commit_alone = commit_alone  # type: ignore[method-assign, assignment]
    assert await consumer._commit_positions({ORDERS: 0}, Member(7, "a"))
    assert committed == [{ORDERS: 20}]
    assert consumer._begun == {}


def test_a_commit_has_no_more_metadata_than_brokers_take() -> None:
    """The note that the group has offsets in these topics made commits too large, and brokers refused them."""
    app: Any = SimpleNamespace(tables={"seen": App("many-topics").Table("seen")})
    offsets = GroupOffsets(app)
    topics = {f"topic-{number}" for number in range(100)}
    placed = {TP(topic, partition): 5 for topic in topics for partition in range(12)}
    one = {TP("topic-1", 0): 6}
    offsets._topics = topics
    due = offsets.due(one, lambda: placed)
    assert due.positions == one
    assert noted_topics([metadata_of("A1", *due.notes)], topics) == topics
    assert offsets.due(placed, lambda: placed) == (placed, (), topics)
    few = {"topic-1", "topic-2"}
    offsets._topics = few
    due = offsets.due(one, lambda: placed)
    assert due.positions == placed | one
    assert noted_topics([metadata_of("A1", *due.notes)], topics) == few


def test_commits_name_as_many_changelogs_as_metadata_has_room_for() -> None:
    app: Any = SimpleNamespace(tables={"seen": App("many-tables").Table("seen")})
    offsets = GroupOffsets(app)
    changelogs = {f"many-tables-{number}-changelog": f"C{number}" for number in range(100)}
    offsets._changelog_notes = changelog_notes(changelogs)
    offsets._topics = topics = {f"topic-{number}" for number in range(100)}
    metadata = metadata_of("A1", *offsets.due({TP("topic-7", 0): 6}, dict).notes)
    assert len(metadata) < METADATA_LIMIT
    assert noted_topics([metadata], topics) == topics
    named = changelogs_of_agents_in(metadata)
    assert len(named) > 10
    assert named.items() < changelogs.items()


async def settle() -> None: ...


async def nothing_sent(messages: Any) -> None: ...


@pytest.mark.parametrize("spec", ["* * * *", "", "61 * * * *", "daily", None], ids=str)
def test_a_wrong_crontab_is_refused_where_it_is_written(spec: Any, tmp_path: Path) -> None:
    """The worker ended after its start, and did not name the crontab."""
    app = App("timed", datadir=tmp_path)
    with pytest.raises(ConfigError, match=r"app.crontab\(.*expected minute, hour, day, month and weekday"):
        app.crontab(spec)


@pytest.mark.parametrize("interval", [0, -1, float("nan")])
def test_a_timer_without_an_interval_is_refused(interval: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the interval of a timer is above 0 seconds"):
        App("timed", datadir=tmp_path).timer(interval)


def test_timers_and_crontabs_of_faust_are_taken(tmp_path: Path) -> None:
    app = App("timed", datadir=tmp_path)
    tasks = len(app._app_tasks)

    async def work() -> None: ...

    app.timer(0.5, on_leader=True)(work)
    app.timer(timedelta(seconds=2))(work)
    app.crontab("30 18 * * *", timezone=UTC)(work)
    assert len(app._app_tasks) == tasks + 3
