"""What a worker says before it runs, and how an `App` is put together; no broker."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamapp._base.partitioning import partition_for
from streamapp.app import App
from streamapp.config import StreamsConfig
from streamapp.dsl import Materialized, StreamsBuilder
from streamapp.errors import ConfigError, InvalidStoreError, TopologyError
from streamapp.records import Windowed
from streamapp.runners.worker import view
from streamapp.runners.worker.agents.consumer import AgentTransport
from streamapp.runners.worker.commands import CommandQueue
from streamapp.runners.worker.placement import TaskId
from streamapp.runners.worker.view import StoreNotAvailable
from streamapp.runners.worker.watchdog import Place
from streamapp.serdes import AvroSerde, LocalSchemaRegistry, SessionWindowedSerde, TimeWindowedSerde
from streamapp.serdes.framing import Framing
from streamapp.web.runtime_source import RuntimeSource
from streamapp.windows import SessionWindows, TimeWindows

from .counting import TEXT, counting

HOUR = 3_600_000


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App("flights", topology=counting("in", "out"), datadir=tmp_path, web_port=7001)


def test_the_status_answers_before_the_worker_runs(app: App) -> None:
    streams = app.streams
    assert (streams.state, streams.reason, streams.tasks, streams.processed) == ("starting", None, {}, 0)
    assert (streams.dropped_records, streams.dropped_results) == ({}, 0)
    table = streams.tables()["counts"]
    assert (table.name, table.kind, table.topic) == ("counts", "key_value", "flights-counts-changelog")
    assert (table.local, table.owners) == (frozenset(), {})
    assert streams.url.endswith(":7001")
    assert not app.is_leader()


def test_livecheck_finds_its_leader_by_a_topic_of_its_own(app: App) -> None:
    assert app.conf.topic_disable_leader
    assert not app.LiveCheck().conf.topic_disable_leader


def test_the_status_names_the_work_on_which_reads_wait(app: App) -> None:
    source = RuntimeSource(app.streams)
    assert source.status().work is None
    streams: Any = app.streams
    places = [Place("a commit, for which brokers have to answer,", 1, None), None]
    streams._plane = SimpleNamespace(place=lambda: places.pop(0))
    assert [streams.work, streams.work] == ["a commit, for which brokers have to answer,", None]


async def test_a_read_before_the_worker_runs_is_refused(app: App) -> None:
    with pytest.raises(StoreNotAvailable, match="starting"):
        await app.streams.read("counts", 0, lambda store: store.get("k"))
    with pytest.raises(StoreNotAvailable, match="starting"):
        app.streams.owner("counts", b"k")
    with pytest.raises(InvalidStoreError, match="no store 'count'; there are counts"):
        app.streams.partition_for("count", b"k")


def test_a_read_is_refused_when_the_group_was_silent_for_a_session(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = app.streams
    (sub,) = streams.plan.subtopologies
    store = object()
    live = SimpleNamespace(id=TaskId(0, 0), running=True, task=SimpleNamespace(store=lambda name: store))
    plane: Any = SimpleNamespace(suspended=False, tasks={live.id: live}, standbys=SimpleNamespace(tasks={}))
    now = time.monotonic()
    monkeypatch.setattr(view.time, "monotonic", lambda: now)
    streams.on_heartbeat(now)
    assert streams._local(plane, sub, "counts", 0, stale=False) is store
    now += streams.config.session_timeout_ms / 1000 + 1  # the process was suspended
    with pytest.raises(StoreNotAvailable, match="group has not answered for 46 s: other workers may"):
        streams._local(plane, sub, "counts", 0, stale=False)
    assert streams._local(plane, sub, "counts", 0, stale=True) is store
    streams.on_heartbeat(now)
    assert streams._local(plane, sub, "counts", 0, stale=False) is store


@pytest.mark.parametrize("store", ["counts", "names"])
async def test_a_read_that_the_stop_overtakes_is_refused(tmp_path: Path, store: str) -> None:
    def count_beside_names(builder: StreamsBuilder) -> None:
        builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key().count(
            materialized=Materialized("counts")
        )
        builder.global_table("names", key_serde=TEXT, value_serde=TEXT, materialized=Materialized("names"))

    streams = App("flights", topology=count_beside_names, datadir=tmp_path).streams
    commands = CommandQueue(lambda: None)
    streams._plane = SimpleNamespace(  # type: ignore[assignment]
        call=lambda fn: commands.submit(fn, vital=False), failure=None
    )
    streams._global_stores = SimpleNamespace()  # type: ignore[assignment]
    read = asyncio.create_task(streams.read(store, 0, lambda rows: rows.get("k")))
    await asyncio.sleep(0)
    commands.close()  # the data plane has ended
    with pytest.raises(StoreNotAvailable, match="the worker has stopped"):
        await read
    with pytest.raises(StoreNotAvailable, match="the worker has stopped"):
        await streams.read(store, 0, lambda rows: rows.get("k"))


@pytest.mark.parametrize("kind", ["time", "session"])
def test_a_row_with_a_windowed_key_is_where_the_key_alone_is(tmp_path: Path, kind: str) -> None:
    def count_and_filter(builder: StreamsBuilder) -> None:
        hours, gap = (
            TimeWindows.of_size_with_no_grace(HOUR),
            SessionWindows.of_inactivity_gap_with_no_grace(1),
        )
        grouped = builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key()
        counts = grouped.windowed_by(hours if kind == "time" else gap).count()  # type: ignore[call-overload]
        counts.filter(lambda key, value: value > 1, materialized=Materialized("busy"))

    streams = App("flights", topology=count_and_filter, datadir=tmp_path).streams
    streams._topics = SimpleNamespace(task_count=lambda sub: 4)  # type: ignore[assignment]
    serde = TimeWindowedSerde(TEXT, HOUR) if kind == "time" else SessionWindowedSerde(TEXT)
    for key in ("JFK", "EWR", "ATL", "BOS"):
        at = {
            streams.partition_for("busy", serde.serialize(Windowed(key, start, start))) for start in range(9)
        }
        assert at == {partition_for(key.encode(), 4)}


def test_an_id_in_a_header_does_not_choose_the_partition(tmp_path: Path) -> None:
    registry = LocalSchemaRegistry()
    ids = AvroSerde("string", registry=registry, schema_id_in="header").bind("in", True)

    def table(builder: StreamsBuilder) -> None:
        builder.table("in", key_serde=ids, value_serde=TEXT, materialized=Materialized("names"))

    streams = App("flights", topology=table, datadir=tmp_path).streams
    streams._topics = SimpleNamespace(task_count=lambda sub: 1_000)  # type: ignore[assignment]
    data = ids.serialize("JFK")
    in_topic = Framing(ids, None).parted(data, None)[0]
    assert in_topic == data[-4:]
    assert streams.partition_for("names", data) == partition_for(in_topic, 1_000)


def test_a_topology_may_be_a_function(tmp_path: Path) -> None:
    def copy(builder: StreamsBuilder) -> None:
        builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out", key_serde=TEXT, value_serde=TEXT)

    app = App("flights", topology=copy, datadir=tmp_path)
    assert app.streams.source_topics == {0: ("in",)}
    assert app.streams.is_source("in")
    assert not app.streams.is_source("out")


def test_the_parts_are_under_faust_s_names(app: App) -> None:
    assert [agent.name for agent in app.agents.values()] == ["streams.in"]
    assert [table.name for table in app.tables.values()] == ["counts"]
    assert not app.tables  # none that Faust would restore


def test_without_a_topology_it_is_a_faust_app_whose_agents_keep_the_guarantee(tmp_path: Path) -> None:
    app = App("plain", datadir=tmp_path)
    assert not hasattr(app, "streams")
    assert isinstance(app.transport, AgentTransport)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topology": 3}, "needs as topology a Topology, or a function of a StreamsBuilder, got 3"),
        ({"config": StreamsConfig("other")}, "application_id='other'"),
        (
            {"processing_guarantee": "exactly_once_v2"},
            r"a setting of StreamsConfig: App\(..., config=StreamsConfig\(",
        ),
        ({"commit_interval_ms": 100}, "commit_interval_ms is a setting of StreamsConfig"),
        ({"web_prt": 6067}, "App has no setting web_prt; did you mean web_port"),
        ({"bootstrap_server": "x:1"}, "App has no setting bootstrap_server; did you mean bootstrap_servers"),
        ({"topology": lambda: None}, "a function of a StreamsBuilder: it is called with 1 argument"),
        ({"topology": counting("in", "out"), "table_standby_replicas": 0}, "bypass the assignor"),
        (
            {"config": StreamsConfig("flights", client_properties={"ssl.ca.location": "/nowhere.pem"})},
            "ssl_ca_location would not be used with security_protocol=PLAINTEXT",
        ),
        ({"config": {"application.id": "flights"}}, r"App takes a StreamsConfig.*from_properties"),
        ({"bootstrap_servers": "kafka://localhost:29392"}, "write localhost:29392"),
        ({"web_port": "abc"}, "web_port cannot be 'abc'"),
        ({"web_port": 99_999}, "web_port cannot be 99999: .* out of range"),
        ({"web_enabled": "perhaps"}, "web_enabled cannot be 'perhaps'"),
        ({"canonical_url": "nonsense"}, "canonical_url .* such as http://host:6066, not 'nonsense'"),
        ({"shutdown_timeout": "x"}, "shutdown_timeout has to be a number of seconds, not 'x'"),
        ({"shutdown_timeout": -1}, "shutdown_timeout has to be a number of seconds, not -1"),
        (
            {"config": StreamsConfig("flights", client_properties={"linger.mss": "5"})},
            'client_properties has a wrong linger.mss: No such configuration property: "linger.mss"',
        ),
        (
            {"config": StreamsConfig("flights", client_properties={"linger.ms": "abc"})},
            "client_properties has a wrong linger.ms: Invalid value",
        ),
        (
            {"config": StreamsConfig("flights", client_properties={"error_cb": "abc"})},
            "client_properties has a wrong error_cb: expected .* callable",
        ),
    ],
)
def test_what_cannot_be_right_is_refused_at_once(arguments: dict[str, object], message: str) -> None:
    with pytest.raises((ConfigError, TopologyError), match=message):
        App("flights", **arguments)  # type: ignore[arg-type]


def test_a_transaction_has_to_outlive_the_commit_interval() -> None:
    with pytest.raises(
        ConfigError, match="set a shorter commit_interval_ms or a longer transaction_timeout_ms"
    ):
        StreamsConfig("flights", processing_guarantee="exactly_once_v2", commit_interval_ms=10_000)
    StreamsConfig("flights", commit_interval_ms=10_000)


def test_settings_reach_faust_and_the_state_folder(tmp_path: Path) -> None:
    config = StreamsConfig(bootstrap_servers="a:1,b:2", session_timeout_ms=9_000)
    app = App("flights", topology=counting("in", "out"), config=config, datadir=tmp_path)
    assert [str(url) for url in app.conf.broker] == ["kafka://a:1", "kafka://b:2"]
    assert app.conf.broker_session_timeout == 9
    assert app.config.application_id == "flights"
    assert app.config.state_dir == str(tmp_path / "state")


def test_the_command_lines_datadir_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAUST_DATADIR", str(tmp_path / "second"))  # as `faust --datadir` does
    app = App("flights", topology=counting("in", "out"), datadir=tmp_path / "first")
    assert app.config.state_dir == str(tmp_path / "second" / "state")
    assert app.conf.datadir == tmp_path / "second"


def test_a_built_topology_brings_its_builder_s_settings(tmp_path: Path) -> None:
    builder = StreamsBuilder(StreamsConfig("flights", processing_guarantee="exactly_once_v2"))
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).to("out", key_serde=TEXT, value_serde=TEXT)
    app = App("flights", topology=builder.build(), datadir=tmp_path)
    assert app.config.exactly_once
