"""Beyond Kafka Streams: rows of tables by key that expire by stream time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import (
    ConfigError,
    LongSerde,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    TimeWindows,
    TopologyError,
    TopologyTestDriver,
)
from streamapp.records import RecordBatch
from streamapp.state.backend import MemoryBackend
from streamapp.state.rocks import RocksBackend, RocksMemory
from tests.unit.engine.support import Sent, commit, feed, task_of

TEXT = {"key_serde": StringSerde(), "value_serde": StringSerde()}
TTL = 10


def kept(**more):
    return Materialized("s", ttl=TTL, **more)


def changes_of(describe, records, *, value_serde=None, config=None):
    """What a table forwards for records of topic ``in``, the store afterwards, and the changelog."""
    value_serde = value_serde or StringSerde()
    builder = StreamsBuilder(config)
    describe(builder).to_stream().to("out", key_serde=StringSerde(), value_serde=value_serde)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", StringSerde(), StringSerde())
        for record in records:
            topic.pipe_input(*record)
        out = driver.create_output_topic("out", StringSerde(), value_serde).read_records()
        log = driver.create_output_topic("streamapp-s-changelog", StringSerde(), value_serde).read_records()
        assert driver.store("s").approximate_num_entries() == len(list(driver.store("s").all()))
        return (
            [(r.key, r.value, r.timestamp) for r in out],
            dict(driver.store("s").all()),
            [(r.key, r.value, r.timestamp) for r in log],
        )


def test_rows_expire_when_stream_time_reaches_their_age():
    records = [("a", "1", 0), ("b", "2", 4), ("c", "3", 9), ("d", "4", 10)]
    out, rows, log = changes_of(lambda b: b.table("in", **TEXT, materialized=kept()), records)
    assert out == [("a", "1", 0), ("b", "2", 4), ("c", "3", 9), ("a", None, 10), ("d", "4", 10)]
    assert rows == {"b": ("2", 4), "c": ("3", 9), "d": ("4", 10)}
    assert log == out


def test_several_rows_expire_in_the_order_of_time_and_key():
    records = [("b", "1", 5), ("c", "1", 3), ("a", "1", 5), ("z", "1", 100)]
    out, rows, _ = changes_of(lambda b: b.table("in", **TEXT, materialized=kept()), records)
    assert out[3:] == [("c", None, 13), ("a", None, 15), ("b", None, 15), ("z", "1", 100)]
    assert rows == {"z": ("1", 100)}


def test_an_update_renews_a_row_and_a_deletion_ends_it():
    records = [("a", "1", 0), ("b", "1", 0), ("a", "2", 5), ("b", None, 6), ("x", "1", 12), ("y", "1", 15)]
    out, rows, _ = changes_of(lambda b: b.table("in", **TEXT, materialized=kept()), records)
    assert out[3:] == [("b", None, 6), ("x", "1", 12), ("a", None, 15), ("y", "1", 15)]
    assert rows == {"x": ("1", 12), "y": ("1", 15)}


def test_a_row_that_is_too_old_when_it_is_written_does_not_stay():
    out, rows, _ = changes_of(
        lambda b: b.table("in", **TEXT, materialized=kept()),
        [("a", "1", 50), ("b", "old", 40), ("c", "ok", 41)],
    )
    assert out == [("a", "1", 50), ("b", "old", 40), ("b", None, 50), ("c", "ok", 41)]
    assert rows == {"a": ("1", 50), "c": ("ok", 41)}


def test_an_aggregate_begins_anew_after_it_expired():
    def count(builder):
        return builder.stream("in", **TEXT).group_by_key().count(materialized=kept())

    records = [("a", "x", 0), ("a", "x", 3), ("b", "x", 13), ("a", "x", 14)]
    out, rows, _ = changes_of(count, records, value_serde=LongSerde())
    assert out == [("a", 1, 0), ("a", 2, 3), ("a", None, 13), ("b", 1, 13), ("a", 1, 14)]
    assert rows == {"b": (1, 13), "a": (1, 14)}


@pytest.mark.parametrize(
    "describe",
    [
        lambda b: b.stream("in", **TEXT).group_by_key().reduce(lambda a, v: v, materialized=kept()),
        lambda b: b.stream("in", **TEXT).to_table(materialized=kept()),
        lambda b: (
            b.stream("in", **TEXT)
            .group_by_key()
            .aggregate(str, lambda k, v, a: v, materialized=kept(value_serde=StringSerde()))
        ),
        lambda b: (
            b.stream("in", **TEXT)
            .group_by_key()
            .cogroup(lambda k, v, a: v)
            .aggregate(str, materialized=kept(value_serde=StringSerde()))
        ),
    ],
)
def test_every_table_by_key_can_expire(describe):
    out, rows, _ = changes_of(describe, [("a", "1", 0), ("b", "2", 10)])
    assert out == [("a", "1", 0), ("a", None, 10), ("b", "2", 10)]
    assert rows == {"b": ("2", 10)}


def test_what_is_made_of_a_table_follows_it():
    """Old values go along, so that a grouping takes the row out of its group."""

    def by_value(builder):
        table = builder.table("in", **TEXT, materialized=kept())
        return table.group_by(lambda k, v: (v, v), **TEXT).count(materialized=Materialized("groups"))

    builder = StreamsBuilder(StreamsConfig(statestore_cache_max_bytes=0))
    by_value(builder)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", StringSerde(), StringSerde())
        topic.pipe_input("a", "g", 0)
        topic.pipe_input("b", "g", 5)
        topic.pipe_input("c", "h", 12)
        assert dict(driver.store("groups").all()) == {"g": (1, 10), "h": (1, 12)}


def test_an_unnamed_table_with_a_ttl_is_kept_so_that_its_rows_can_expire():
    builder = StreamsBuilder()
    builder.table("in", **TEXT, materialized=Materialized(ttl=TTL)).to_stream().to("out")
    assert len(builder.build().stores) == 1


def test_a_source_topic_cannot_stand_for_the_changelog():
    builder = StreamsBuilder(StreamsConfig(topology_optimization="all"))
    builder.table("in", **TEXT, materialized=kept())
    (topic,) = builder.build().plan().subtopologies[0].changelog_topics.values()
    assert topic.name == "streamapp-s-changelog"


@pytest.mark.parametrize(
    "settings",
    [
        {"ttl": 0},
        {"ttl": timedelta(seconds=-1)},
        {"ttl": 5, "history_retention": 5},
        {"ttl": 5, "store_type": "lru", "max_entries": 3},
        {"ttl": 5, "timestamped": False},
    ],
)
def test_times_to_live_that_cannot_be_are_refused(settings):
    with pytest.raises(ConfigError, match="ttl"):
        Materialized("s", **settings)


@pytest.mark.parametrize(
    "describe",
    [
        lambda b, t: b.global_table("g", **TEXT, materialized=kept()),
        lambda b, t: t.filter(lambda k, v: True, materialized=kept()),
        lambda b, t: t.map_values(str, materialized=kept()),
        lambda b, t: t.join(b.table("u", **TEXT), "{}{}".format, materialized=kept()),
        lambda b, t: t.join(t, "{}{}".format, foreign_key=str, materialized=kept(**TEXT)),
        lambda b, t: t.group_by(lambda k, v: (k, v), **TEXT).count(materialized=kept()),
        lambda b, t: (
            b.stream("s", **TEXT)
            .group_by_key()
            .windowed_by(TimeWindows.of_size_with_no_grace(5))
            .count(materialized=kept())
        ),
    ],
)
def test_tables_that_do_not_expire_by_themselves_refuse_a_ttl_and_say_what_to_do(describe):
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=r"cannot have a ttl of its own: .*(give|use|read)"):
        describe(builder, builder.table("in", **TEXT))


# -------------------------------------------------------------------- against a model


class Model:
    def __init__(self):
        self.rows, self.now, self.out = {}, -1, []

    def expire(self):
        due = sorted((t, k) for k, (_, t) in self.rows.items() if t + TTL <= self.now)
        for timestamp, key in due:
            del self.rows[key]
            self.out.append((key, None, timestamp + TTL))

    def record(self, key, value, timestamp):
        self.now = max(self.now, timestamp)
        self.expire()
        self.rows.pop(key, None)
        if value is not None:
            self.rows[key] = (value, timestamp)
        self.out.append((key, value, timestamp))
        self.expire()


records = st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2", None]), st.integers(0, 60))
steps = st.lists(st.one_of(records, st.sampled_from(["commit", "restart", "restore"])), max_size=30)


@pytest.fixture(params=["memory", "rocksdb"], scope="module")
def make(request, tmp_path_factory):
    """Makes empty backends."""
    if request.param == "memory":
        yield MemoryBackend
        return
    memory, opened = RocksMemory(), []

    def rocks():
        opened.append(RocksBackend(tmp_path_factory.mktemp("rocks"), memory))
        return opened[-1]

    yield rocks
    for backend in opened:
        backend.close()


@settings(max_examples=40)
@given(steps)
def test_rows_expire_like_those_of_a_simple_model_across_commits_restarts_and_restores(make, steps):
    builder = StreamsBuilder()
    builder.table("in", **TEXT, materialized=kept()).to_stream().to("out")
    topology, sent, backend, model, offset = builder.build(), Sent(), make(), Model(), 0
    metadata = {}
    task, _ = task_of(topology, collector=sent, backend=backend)
    for step in steps:
        if isinstance(step, tuple):
            feed(task, "in", [step], offset=offset)
            offset += 1
            task.process()
            model.record(*step)
            continue
        commit(task)
        metadata = task.commit_metadata or metadata  # the broker keeps what was committed last
        if step == "commit":
            continue
        if step == "restore":
            backend = make()
        task, _ = task_of(topology, collector=sent, backend=backend, init=False)
        if step == "restore":
            log = [r for r in sent.records if r.topic == "app-s-changelog"]
            columns = [r.key for r in log], [r.value for r in log], [r.timestamp for r in log]
            task.restore("s", RecordBatch(*columns, list(range(len(log)))))
        task.continue_from(metadata)
        task.init()
    assert sent.to("out") == model.out
    assert dict(task.store("s").all()) == model.rows
    for key in "abc":
        assert task.store("s").get(key) == model.rows.get(key)
