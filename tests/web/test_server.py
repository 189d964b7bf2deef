"""The views on Faust's web server, and a live worker as their source."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiohttp.test_utils import TestServer
from faust.web import View

from streamapp.app import App
from streamapp.dsl import Materialized, StreamsBuilder
from streamapp.runners.worker.agents.consumer import AgentConsumer
from streamapp.serdes import LongSerde, StringSerde
from streamapp.web.server import install

from .conftest import Serve
from .fakes import FakeSource


def started(app: Any) -> TestServer:
    app.web.init_server()
    return TestServer(app.web.web_app)


async def test_the_page_takes_the_place_of_fausts_index(serve: Serve) -> None:
    app = faust.App("t", broker="kafka://localhost:1", debug=True)
    install(app, FakeSource())

    @app.page("/mine/")
    async def mine(view: View, request: Any) -> Any:
        return view.json({"mine": True})

    client = await serve(None, started(app))
    assert "text/html" in (await client.get("/")).headers["Content-Type"]
    assert (await (await client.get("/status")).json())["state"] == "running"
    assert (await (await client.get("/mine/")).json()) == {"mine": True}
    assert (await client.get("/faust/")).content_type == "application/json"
    for ask in (client.get, client.head):  # Faust draws its graph with pydot, which is not installed
        assert (await ask("/faust/graph/")).status == 404
    # Errors of other people's pages stay as they are.
    assert (await client.get("/nothing")).content_type == "text/plain"


async def test_installing_too_late_is_refused() -> None:
    app = faust.App("t", broker="kafka://localhost:1")
    assert app.web
    with pytest.raises(RuntimeError, match="too late"):
        install(app, FakeSource())


def count_flights(builder: StreamsBuilder) -> None:
    planes = builder.global_table("planes", key_serde=StringSerde(), value_serde=StringSerde())
    flights = builder.stream("flights", key_serde=StringSerde(), value_serde=StringSerde())
    joined = flights.join(planes, lambda flight, plane: flight, key_selector=lambda key, value: value)
    by_value = joined.group_by(lambda key, value: value, key_serde=StringSerde(), value_serde=StringSerde())
    by_value.count(
        materialized=Materialized("counts", key_serde=StringSerde(), value_serde=LongSerde())
    ).to_stream().to("out", key_serde=StringSerde(), value_serde=LongSerde())


async def test_a_worker_that_has_not_started_yet(serve: Serve, tmp_path: Path) -> None:
    app = App("flights", topology=count_flights, datadir=tmp_path, bootstrap_servers="localhost:1")
    client = await serve(None, started(app))
    assert (await (await client.get("/status")).json())["state"] == "starting"
    assert (await client.get("/health/ready")).status == 503
    tables = {table["name"]: table for table in (await (await client.get("/tables/")).json())["tables"]}
    assert (tables["counts"]["kind"], tables["counts"]["key"], tables["counts"]["value"]) == (
        "timestamped",
        "string",
        "long",
    )
    answer = await client.get("/tables/counts/JFK")
    assert answer.status == 503
    assert "starting" in (await answer.json())["error"]


async def test_the_graph_is_that_of_the_topology(serve: Serve, tmp_path: Path) -> None:
    app = App("flights", topology=count_flights, datadir=tmp_path, bootstrap_servers="localhost:1")
    client = await serve(None, started(app))
    graph = await (await client.get("/topology")).json()
    assert graph["text"] == app.streams.topology.describe()
    described = {line.split(" (")[0].strip() for line in graph["text"].splitlines() if ": " in line}
    for sub in graph["subtopologies"]:
        assert any(
            line.endswith(f"Sub-topology: {sub['id']}")
            or line == f"Sub-topology: {sub['id']} for global store"
            for line in described
        )
        for node in sub["nodes"]:
            assert f"{node['kind'].capitalize()}: {node['name']}" in described
    topics = {topic for sub in graph["subtopologies"] for node in sub["nodes"] for topic in node["topics"]}
    assert {"flights", "planes", "out"} < topics


def consume_orders(tmp_path: Path) -> App:
    app = App("orders", datadir=tmp_path, bootstrap_servers="localhost:1")

    @app.agent(app.topic("orders"))
    async def work(stream: Any) -> None:
        async for _ in stream:
            pass

    return app


class Agents(AgentConsumer):
    """The consumer of agents, without partitions, as if it were a member of its group."""

    is_member = True
    stuck: str | None = None


def agents_that_run(app: App) -> Any:
    app.transport.Consumer = Agents
    return app._new_consumer()


async def test_a_worker_with_agents_only_tells_its_state(serve: Serve, tmp_path: Path) -> None:
    app = consume_orders(tmp_path)
    client = await serve(None, started(app))
    assert (await client.get("/health/live")).status == 200

    async def ready() -> tuple[int, Any, Any]:
        answer = await client.get("/health/ready")
        body = await answer.json()
        return answer.status, body["state"], body["reason"]

    assert await ready() == (503, "starting", None)
    app._consumer = agents_that_run(app)
    assert await ready() == (200, "running", None)
    app._consumer.is_member, app.rebalancing_count = False, 2
    assert await ready() == (503, "rebalancing", None)
    app._consumer.stuck = "two commits in a row were rolled back"
    assert await ready() == (503, "stuck", "two commits in a row were rolled back")
    app._consumer.stuck, app._watchdog = (
        None,
        SimpleNamespace(stuck="the event loop has stood still for 20 s"),
    )
    assert await ready() == (503, "stuck", "the event loop has stood still for 20 s")
    app._watchdog = None
    app.crash_reason = RuntimeError("no brokers")
    assert await ready() == (503, "failed", "RuntimeError: no brokers")
    app.crash_reason = None


async def test_a_worker_is_ready_when_the_tables_of_its_agents_are_restored(
    serve: Serve, tmp_path: Path
) -> None:
    """It said that it was ready, and its agents got no record for as long as the restore took."""
    app = consume_orders(tmp_path)
    app.Table("totals", partitions=1)
    app._consumer = agents_that_run(app)
    client = await serve(None, started(app))
    app.on_rebalance_start()
    answer = await client.get("/health/ready")
    assert (answer.status, (await answer.json())["state"]) == (503, "restoring")
    assert [each["message"] for each in (await (await client.get("/status")).json())["findings"]] == [
        "The worker restores its tables from their changelogs."
    ]
    app.on_rebalance_end()
    assert (await client.get("/health/ready")).status == 200


async def test_a_worker_with_agents_only_has_no_tables_and_no_finding_about_tasks(
    serve: Serve, tmp_path: Path
) -> None:
    app = consume_orders(tmp_path)
    app._consumer = agents_that_run(app)
    client = await serve(None, started(app))
    status = await (await client.get("/status")).json()
    assert (status["state"], status["tasks"], status["findings"]) == ("running", [], [])
    assert (
        'worker_state{application="orders",state="running"} 1' in await (await client.get("/metrics")).text()
    )
    assert (await client.get("/tables/")).status == 404
    assert (await client.get("/topology")).status == 404


async def test_a_page_of_the_application_takes_the_place_of_a_view(serve: Serve, tmp_path: Path) -> None:
    """Such an application could not start."""
    app = consume_orders(tmp_path)

    @app.page("/metrics")
    async def metrics(self: Any, request: Any) -> Any:
        return self.json({"mine": True})

    client = await serve(None, started(app))
    assert await (await client.get("/metrics")).json() == {"mine": True}
    assert (await client.get("/health/live")).status == 200
