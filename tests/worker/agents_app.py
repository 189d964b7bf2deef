"""The application of the tests of agents: one that answers each record and counts in a table, told by its environment."""

from __future__ import annotations

import asyncio
import os

from aiokafka.consumer.group_coordinator import GroupCoordinator
from mode import Service

from streamapp.app import App
from streamapp.config import StreamsConfig

from .counting import counting

env = os.environ

if "AIOKAFKA_FINDS_NO_OFFSETS" in env:

    async def no_offsets(*_: object) -> dict[object, object]:
        return {}

    GroupCoordinator._do_fetch_commit_offsets = no_offsets

if "APP_ID" in env:
    guarantee = env.get("GUARANTEE", "exactly_once_v2")
    config = StreamsConfig(
        env["APP_ID"],
        bootstrap_servers=env["BOOTSTRAP"] if env.get("ADDRESS", "config") == "config" else None,
        processing_guarantee=guarantee,  # type: ignore[arg-type]
        commit_interval_ms=int(env.get("COMMIT_MS", "100")),
        session_timeout_ms=int(env.get("SESSION_MS", "6000")),
        processing_exception_handler=env.get("ON_ERROR", "fail"),  # type: ignore[arg-type]
        deserialization_exception_handler=env.get("ON_ERROR", "fail"),  # type: ignore[arg-type]
        dead_letter_queue_topic=env.get("DEAD_LETTERS"),
        group_instance_id=env.get("INSTANCE"),
    )
    topology = counting(env["SOURCE"], env["SINK"]) if env.get("TOPOLOGY") == "yes" else None
    broker = {"broker": f"kafka://{env['BOOTSTRAP']}"} if env.get("ADDRESS") == "broker" else {}
    app = App(
        env["APP_ID"],
        topology=topology,
        config=config,
        datadir=env["DATADIR"],
        web_port=int(env["WEB_PORT"]),
        topic_partitions=4,
        consumer_auto_offset_reset=env.get("RESET", "earliest"),
        broker_commit_interval=int(env.get("COMMIT_MS", "100")) / 1000,
        consumer_metadata_max_age_ms=int(env.get("METADATA_MS", "60000")),
        **broker,
    )
    asked = app.topic(env["AGENT_IN"], value_serializer=env.get("VALUES", "raw"), key_serializer="raw")
    answers = app.topic(env["AGENT_OUT"], value_serializer="raw", key_serializer="raw")
    counts = app.Table("seen", default=int, partitions=4) if env.get("TABLE") == "yes" else None

    echoed = app.topic(env["ECHO"], value_serializer="raw", key_serializer="raw") if "ECHO" in env else None
    if echoed is not None:

        @app.agent(echoed)
        async def echo(stream):  # type: ignore[no-untyped-def]
            async for value in stream:
                yield value.decode()

    @app.agent(asked, concurrency=int(env.get("CONCURRENCY", "1")), sink=[answers])
    async def answer(stream):  # type: ignore[no-untyped-def]
        """Sends each value with the key's count in the table; yields the same once more."""
        async for event in stream.events():
            if event.value == b"poison":
                raise ValueError("this record cannot be answered")
            if "DELAY" in env:
                await asyncio.sleep(float(env["DELAY"]))
            number = b""
            if counts is not None:
                key = event.key.decode()
                counts[key] += 1
                number = b"=%d" % counts[key]
            value = event.value if isinstance(event.value, bytes) else str(event.value).encode()
            if echoed is not None:
                number = "+".join(await echo.join([value, value], reply_to=env["REPLIES"])).encode()
            await answers.send(key=event.key, value=b"sent " + value + number)
            yield b"yielded " + value

    if "ALSO" in env:
        more = app.topic(env["ALSO"], value_serializer="raw", key_serializer="raw")

        @app.agent(more)
        async def count_more(stream):  # type: ignore[no-untyped-def]
            """Counts the records of a second topic in the same table."""
            async for event in stream.events():
                counts[event.key.decode()] += 1
                await answers.send(key=event.key, value=b"more " + event.value)

    if "CHANNEL" in env:
        notes = app.channel()

        @app.agent(notes)
        async def note(stream):  # type: ignore[no-untyped-def]
            """Notes each message in the table, which has no other rows before the first question."""
            async for _ in stream:
                counts["noted"] += 1
                print("noted in the table", flush=True)

        @app.timer(0.2)
        async def remind() -> None:
            await notes.send(value="note")

    if "BATCH" in env:
        topic = app.topic(env["BATCH"], value_serializer="raw", key_serializer="raw")

        @app.agent(topic)
        async def answer_batches(stream):  # type: ignore[no-untyped-def]
            async for batch in stream.take(10, within=0.2):
                for value in batch:
                    await answers.send(key=None, value=b"batch " + value)
                if b"poison" in batch and env["POISON"] == "raise":
                    raise ValueError("this batch cannot be answered")

    if "COUNTED_BATCH" in env:
        texts = app.topic(env["COUNTED_BATCH"], key_type=str, value_serializer="raw")

        @app.agent(texts)
        async def count_batches(stream):  # type: ignore[no-untyped-def]
            """Counts the records of each key, which is the text in front of the dash, in batches."""
            async for batch in stream.take(10, within=0.1):
                for value in batch:
                    key = value.partition(b"-")[0].decode()
                    counts[key] += 1
                    await answers.send(key=key.encode(), value=b"counted %d" % counts[key])

    if "FAILING" in env:
        source = app.topic(env["FAILING"], value_serializer="raw", key_serializer="raw")
        how, _, where = env["HOW"].partition(" ")

        def fail_for_poison(value: bytes) -> bytes:
            if b"poison" in value:
                if how == "exits":
                    raise SystemExit(3)
                raise asyncio.CancelledError if how == "cancelled" else ValueError("not this record")
            return value

        if where == "in a service":

            @app.service
            class Reading(Service):  # type: ignore[misc]
                @Service.task  # type: ignore[untyped-decorator]
                async def _read(self) -> None:
                    async for value in app.stream(source):
                        await answers.send(value=b"yielded " + fail_for_poison(value))

        elif where == "in a task":

            @app.task
            async def read() -> None:
                async for value in app.stream(source):
                    await answers.send(value=b"yielded " + fail_for_poison(value))

        else:

            @app.agent(source, sink=[answers, fail_for_poison] if where == "in a sink" else [answers])
            async def fail_somewhere(stream):  # type: ignore[no-untyped-def]
                """Yields each value. An agent, its sink, or an operator of its stream raises for poison."""
                match where:
                    case "in a filter":
                        stream = stream.filter(fail_for_poison)
                    case "in a filter before take":
                        stream = stream.filter(fail_for_poison).take(1, within=0.1)
                    case "in the agent with noack":
                        stream = stream.noack()
                    case "in the key of group_by":
                        stream = stream.group_by(fail_for_poison, name=f"by-{env['APP_ID']}", partitions=4)
                async for value in stream:
                    if where.startswith("in the agent"):
                        fail_for_poison(value)
                    yield b"yielded " + (value[0] if isinstance(value, list) else value)
