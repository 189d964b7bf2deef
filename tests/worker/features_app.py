"""An application with each feature of Faust's documentation once, beside a topology. ``/seen`` shows the results."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from datetime import timedelta
from typing import Any

import faust
from faust import cli, web
from faust.livecheck import Case, Signal
from faust.serializers import codecs

from streamapp.app import App
from streamapp.config import StreamsConfig

from .counting import counting

env = os.environ
id = env["APP_ID"]
config = StreamsConfig(
    id,
    bootstrap_servers=env["BOOTSTRAP"],
    processing_guarantee=env.get("GUARANTEE", "exactly_once_v2"),  # type: ignore[arg-type]
    commit_interval_ms=100,
    session_timeout_ms=6_000,
)
app = App(
    id,
    topology=counting(env["SOURCE"], env["SINK"]),
    config=config,
    datadir=env["DATADIR"],
    web_port=int(env["WEB_PORT"]),
    topic_partitions=4,
    broker_commit_interval=0.1,
    cache="memory://",
    autodiscover=False,
    origin="tests.worker.features_app",  # LiveCheck asks for it
    table_cleanup_interval=1.0,
    stream_buffer_maxsize=8,  # fewer than the replies: a queue that nobody reads would stop all agents
)
seen: defaultdict[str, list[Any]] = defaultdict(list)


class Flight(faust.Record, serializer="json"):
    """A model."""

    carrier: str
    delay: int


class Shouting(codecs.Codec):
    """A serializer of the application's own."""

    def _dumps(self, obj: Any) -> bytes:
        return str(obj).upper().encode()

    def _loads(self, s: bytes) -> Any:
        return s.decode().lower()


codecs.register("shouting", Shouting())
flights = app.topic(f"{id}-flights", key_type=str, value_type=Flight)
shouted = app.topic(f"{id}-shouted", value_serializer="shouting", value_type=str)
results = app.topic(f"{id}-results", value_type=str, key_type=str)
between = app.topic(f"{id}-between", value_type=Flight, partitions=4)


async def restored(event: Any) -> None:
    seen["changelog"].append(event.message.offset)


delays = app.Table("delays", default=int, partitions=4, help="sum of delays", on_changelog_event=restored)
tumbled = app.Table("tumbled", default=int, partitions=4).tumbling(10.0, expires=timedelta(hours=1))
hopped = app.Table("hopped", default=int, partitions=4).hopping(20.0, 10.0, expires=timedelta(hours=1))
carriers = app.SetTable("carriers", value_type=str, partitions=4)
everywhere = app.GlobalTable("everywhere", default=int, partitions=4)


def note(name: str) -> Any:
    return lambda value: seen[name].append(str(value))


# Agents.


@app.agent(flights)
async def by_record(stream):  # type: ignore[no-untyped-def]
    """Tables of every kind."""
    async for key, flight in stream.items():
        delays[key] += flight.delay
        tumbled[key] += 1
        hopped[key] += 1
        carriers[key].add(flight.carrier)
        seen["record"].append(flight.carrier)
        seen["tumbled"].append(tumbled[key].value())
        seen["hopped"].append(hopped[key].value())
        seen["set"].append(sorted(carriers[key]))
        await shouted.send(value=f"{flight.carrier} {flight.delay}")


@app.agent(shouted, sink=[results, note("function-sink")], concurrency=2)
async def shouting(stream):  # type: ignore[no-untyped-def]
    """Sinks: a topic, a function, and an agent (below)."""
    async for text in stream:
        seen["serializer"].append(text)
        yield text


@app.agent(value_type=str)
async def sunk(stream):  # type: ignore[no-untyped-def]
    async for text in stream:
        seen["agent-sink"].append(text)


shouting.add_sink(sunk)


@app.agent(flights)
async def batched(stream):  # type: ignore[no-untyped-def]
    async for batch in stream.take(5, within=0.5):
        seen["take"].append(len(batch))


@app.agent(flights)
async def as_events(stream):  # type: ignore[no-untyped-def]
    async for event in stream.filter(lambda flight: flight.delay > 1).events():
        seen["events"].append(event.message.offset)


@app.agent(flights, isolated_partitions=True)
async def isolated(stream):  # type: ignore[no-untyped-def]
    async for flight in stream:
        seen["isolated"].append(flight.carrier)


@app.agent(flights)
async def grouped(stream):  # type: ignore[no-untyped-def]
    async for flight in stream.group_by(Flight.carrier, name="by-carrier", partitions=4):
        seen["group_by"].append(flight.carrier)


@app.agent(flights)
async def through(stream):  # type: ignore[no-untyped-def]
    async for flight in stream.through(between):
        seen["through"].append(flight.carrier)


@app.agent(value_type=int)
async def double(stream):  # type: ignore[no-untyped-def]
    """Asked by others."""
    async for number in stream:
        yield number * 2


@app.agent(value_type=str)
async def cast_to(stream):  # type: ignore[no-untyped-def]
    async for text in stream:
        seen["cast"].append(text)
        everywhere[text] += 1
        seen["global"].append(everywhere[text])


memory = app.channel(value_type=str)


@app.agent(memory)
async def of_channel(stream):  # type: ignore[no-untyped-def]
    async for text in stream:
        seen["channel"].append(text)


# What runs beside streams.


@app.timer(interval=0.5)
async def every_half_second() -> None:
    seen["timer"].append(1)


@app.timer(interval=0.5, on_leader=True)
async def on_leader() -> None:
    seen["timer-on-leader"].append(1)


@app.crontab("* * * * *")
async def every_minute() -> None:
    seen["crontab"].append(1)


@app.task
async def begins() -> None:
    seen["task"].append(1)


@app.task(on_leader=True)
async def begins_on_leader() -> None:
    seen["task-on-leader"].append(1)


@app.task
async def streams_of_its_own() -> None:
    async for text in app.stream(app.topic(f"{id}-of-its-own", value_type=str)):
        seen["app.stream"].append(text)


# Signals.


@app.on_partitions_assigned.connect
async def assigned(app: Any, assigned: Any, **_: Any) -> None:
    seen["assigned"].append(len(assigned))


@app.on_rebalance_complete.connect
async def rebalanced(app: Any, **_: Any) -> None:
    seen["rebalanced"].append(1)


@app.on_worker_init.connect
def initialised(app: Any, **_: Any) -> None:
    seen["worker-init"].append(1)


@app.on_before_shutdown.connect
async def ends(app: Any, **_: Any) -> None:
    print("the application heard that it ends", flush=True)


# Web.


@app.page("/seen/")
async def show(self: Any, request: Any) -> Any:
    return self.json(seen)


@app.page("/do/")
async def do(self: Any, request: Any) -> Any:
    """Everything that an application asks of itself."""
    seen["ask"].append(await double.ask(4))
    seen["map"].extend([result async for result in double.map([1, 2, 3])])
    seen["kvmap"].extend([result async for result in double.kvmap([("a", 5), ("b", 6)])])
    seen["join"].extend(await double.join([7, 8]))
    seen["kvjoin"].extend(await double.kvjoin([("a", 9)]))
    await cast_to.cast("cast")
    await memory.send(value="in memory")
    await app.send(f"{id}-of-its-own", value="sent by the app")
    return self.json({"done": True})


@app.page("/delays/{carrier}/")
@app.table_route(table=delays, match_info="carrier")
async def one(self: Any, request: Any, carrier: str) -> Any:
    return self.json({carrier: delays[carrier]})


@app.page("/routed/{key}/")
@app.topic_route(topic=flights, match_info="key")
async def routed(self: Any, request: Any, key: str) -> Any:
    return self.json({"routed": key})


@app.page("/counted/{key}/")
@app.table_route(table=app.tables["counts"], match_info="key")
async def counted(self: Any, request: Any, key: str) -> Any:
    """A store of the topology, where it is."""
    partition, _, _ = app.streams.owner("counts", key.encode())
    return self.json({key: await app.streams.read("counts", partition, lambda store: store.get(key))})


cache = web.Blueprint("cached").cache(timeout=timedelta(hours=1))


@app.page("/cached/")
class Cached(web.View):
    @cache.view()
    async def get(self, request: Any) -> Any:
        seen["cached"].append(1)
        return self.json({"times": len(seen["cached"])})


# Command line.


@app.command(cli.argument("name"), cli.option("--times", type=int, default=1))
async def greet(self: Any, name: str, times: int) -> None:
    """A command of the application's own."""
    self.say("hello " + " ".join([name] * times))


# LiveCheck.

livecheck = app.LiveCheck(web_port=int(env.get("LIVECHECK_PORT", "9999")))


@livecheck.case(warn_stalled_after=5.0, probability=1.0)
class Answers(Case):
    arrived: Signal[str]

    async def run(self, key: str) -> None:
        print("the case waits for", key, flush=True)
        await self.arrived.wait(key=key, timeout=30.0)
        print("the case has seen", key, flush=True)


@app.page("/check/")
async def check(self: Any, request: Any) -> Any:
    async with Answers.maybe_trigger("check-1", "k1") as test:
        await asyncio.sleep(0.1)
        await Answers.arrived.send("yes", key="k1")
    return self.json({"triggered": test is not None})


if __name__ == "__main__":
    app.main()
