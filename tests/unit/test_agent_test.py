"""`AgentTest` runs agents of an App with exactly_once_v2 without a broker."""

from __future__ import annotations

from typing import Any

import faust
import pytest

from streamapp import App, StreamsConfig
from streamapp.testing import AgentTest


class Order(faust.Record):  # type: ignore[misc]
    id: str
    amount: int


app = App("agent-test", config=StreamsConfig(processing_guarantee="exactly_once_v2"))
orders = app.topic("orders", key_type=str, value_type=Order, partitions=4)
receipts = app.topic("receipts", key_type=str, value_type=str, partitions=4)
audit = app.topic("audit", key_type=str, value_type=str, partitions=4)
between = app.topic("between", key_type=str, value_type=Order, partitions=4)
spent = app.Table("spent", default=int, partitions=4)
hourly = app.Table("hourly", default=int, partitions=4).tumbling(3600)


@app.agent(orders, sink=[audit])  # type: ignore[untyped-decorator]
async def pay(stream: Any) -> Any:
    async for customer, order in stream.items():
        spent[customer] += order.amount
        hourly[customer] += order.amount
        await receipts.send(key=customer, value=f"{order.amount} {hourly[customer].current()}")
        audit.send_soon(value="soon")
        yield order.id


@app.agent(orders)  # type: ignore[untyped-decorator]
async def by_order(stream: Any) -> None:
    async for order in stream.group_by(Order.id):
        spent[order.id] += order.amount


@app.agent(orders)  # type: ignore[untyped-decorator]
async def by_way(stream: Any) -> None:
    async for order in stream.through(between):
        spent[order.id] += order.amount


@app.agent(orders)  # type: ignore[untyped-decorator]
async def in_pairs(stream: Any) -> None:
    async for pair in stream.take(2, within=60):
        await pay.cast(Order("pair", sum(order.amount for order in pair)), key="both")


@app.agent(orders)  # type: ignore[untyped-decorator]
async def ask_and_join(stream: Any) -> Any:
    async for order in stream:
        for request in (pay.ask(order, key="ann"), pay.join([order], key="ann")):
            with pytest.raises(NotImplementedError, match="AgentTest gives ask, map and join no answers"):
                await request
        yield order.id


@app.agent(orders)  # type: ignore[untyped-decorator]
async def ask(stream: Any) -> None:
    async for order in stream:
        await pay.ask(order)


@app.agent(orders)  # type: ignore[untyped-decorator]
async def refuse(stream: Any) -> None:
    async for order in stream:
        raise ValueError(order.id)


@pytest.mark.parametrize("time", [1, 2])
async def test_tables_begin_empty_and_all_messages_are_noted(time: int) -> None:
    async with AgentTest(pay) as test:
        await test.put(Order("o1", 5), key="ann", timestamp=1_000.0, headers={"h": b"1"})
        await test.put(Order("o2", 7), key="ann", timestamp=5_000.0)
    assert test.results == ["o1", "o2"]
    assert spent["ann"] == 12
    assert [(record.key, record.value) for record in test.sent["receipts"]] == [
        ("ann", "5 5"),
        ("ann", "7 7"),
    ]
    assert [record.value for record in test.sent["audit"]] == ["soon", "o1", "soon", "o2"]
    assert set(test.sent) == {"receipts", "audit"}
    assert test.sent["nothing"] == []


async def test_records_of_group_by_and_through_come_back() -> None:
    for agent in (by_order, by_way):
        async with AgentTest(agent) as test:
            await test.put(Order("x", 5), key="ann")
            await test.put(Order("x", 7), key="bob")
        assert (spent["x"], test.results) == (12, [])
    assert [(record.key, record.value) for record in test.sent["between"]] == [
        ("ann", Order("x", 5)),
        ("bob", Order("x", 7)),
    ]


async def test_an_agent_that_collects_records_finishes_with_the_last_one() -> None:
    async with AgentTest(in_pairs) as test:
        await test.put(Order("x", 5), wait=False)
        await test.put(Order("y", 7))
    assert [(record.key, record.value) for record in test.sent["orders"]] == [("both", Order("pair", 12))]


async def test_an_agent_that_waits_for_more_records_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamapp.testing.agents._PATIENCE_SECONDS", 0.2)
    with pytest.raises(TimeoutError, match=r"not finished with 1 record .* but the last with wait=False"):
        async with AgentTest(in_pairs) as test:
            await test.put(Order("x", 5))


async def test_the_exception_of_an_agent_ends_the_test() -> None:
    with pytest.raises(ValueError, match="x"):
        async with AgentTest(refuse) as test:
            await test.put(Order("x", 5))


async def test_requests_to_other_agents_have_no_answer() -> None:
    async with AgentTest(ask_and_join) as test:
        await test.put(Order("x", 5))
    assert test.results == ["x"]
    assert [record.value for record in test.sent["orders"]] == [Order("x", 5)] * 2
    with pytest.raises(NotImplementedError, match="Replace the asked agent by a function"):
        async with AgentTest(ask) as test:
            await test.put(Order("y", 7))


async def test_the_app_is_as_before() -> None:
    before, producer = faust.topics.Topic.publish_message, app._producer
    async with AgentTest(pay):
        assert faust.topics.Topic.publish_message is not before
    assert faust.topics.Topic.publish_message is before
    assert app._producer is producer
    assert "add" not in vars(app._reply_consumer)
    assert "maybe_start_client" not in vars(app)
