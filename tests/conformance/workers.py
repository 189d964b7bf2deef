"""Runs cases on real workers against a real broker; `meaning` says what of them can be compared.

Each case is an application of its own, with topics of its own; several of them run in one process at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Message, Producer

from streamapp import App
from streamapp.broker import KafkaAdmin, KafkaSettings
from streamapp.query import Query
from streamapp.query import execute as run_query
from streamapp.records import NO_HEADERS, OutputRecord
from streamapp.records import TopicPartition as Partition
from streamapp.testing import Backlog

from ..topic_reader import TopicReader
from .builder import CaseBuilder
from .meaning import independent_of_partitions, is_cached
from .outcome import Outcome, case_config
from .queries import answer
from .sharing import PrefixedTopology, without_prefix
from .shown import Shown

__all__ = ["partitions_of", "run_on_workers"]

Spec = dict[str, Any]

AT_A_TIME = 6
COMMIT_MS = 20
STEP_SECONDS = 60.0


def partitions_of(case: Spec) -> int:
    """How many partitions the topics of a case have on workers."""
    return 3 if independent_of_partitions(case) and not is_cached(case) else 1


def run_on_workers(cases: Iterable[Spec], bootstrap: str) -> dict[str, Outcome]:
    """The outcomes by the cases' names. An error is a part of the outcome."""

    async def run_all() -> dict[str, Outcome]:
        turns = asyncio.Semaphore(AT_A_TIME)

        async def one(case: Spec) -> tuple[str, Outcome]:
            async with turns:
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as state_dir:
                    return case["name"], await _LiveCase(case, bootstrap, state_dir).run()

        return dict(await asyncio.gather(*map(one, cases)))

    outcomes = asyncio.run(run_all())
    # Workers hide their objects from the collector. Clients of a broker that has ended would try to connect for ever.
    gc.unfreeze()
    gc.collect()
    return outcomes


class _LiveCase:
    def __init__(self, case: Spec, bootstrap: str, state_dir: str) -> None:
        self._case = case
        self._bootstrap = bootstrap
        self._kafka = KafkaSettings(bootstrap_servers=bootstrap)
        self._state_dir = state_dir
        self._partitions = partitions_of(case)
        self._prefix = f"case-{uuid.uuid4().hex[:12]}."
        self._app: App | None = None
        self._where = ""

    async def run(self) -> Outcome:
        outcome = Outcome()
        config = case_config(self._case, self._state_dir)
        builder = CaseBuilder(self._case, config)
        shown = Shown(self._case, builder, config)
        try:
            topology = PrefixedTopology(builder.build(), self._prefix)
            self._where = "start"
            dead_letters = config.dead_letter_queue_topic
            self._app = App(
                f"{self._prefix}app",
                topology=topology,
                config=config.replace(
                    application_id=f"{self._prefix}app",
                    bootstrap_servers=self._bootstrap,
                    commit_interval_ms=COMMIT_MS,
                    # A rollback, for example of a worker that got no CPU for long, must not repeat results.
                    processing_guarantee="exactly_once_v2",
                    dead_letter_queue_topic=dead_letters and self._prefix + dead_letters,
                ),
                datadir=self._state_dir,
                web_enabled=False,
            )
            await asyncio.to_thread(self._create_topics, builder, dead_letters)
            await self._app.start()
            await self._until(lambda: self._app is not None and self._app.streams.state == "running")
            await self._feed(shown, outcome.actual)
            self._where = "end"
            outcome.actual["side_effects"] = builder.side_effects
            outcome.actual["stores"] = await self._stores(shown)
        except Exception as error:
            outcome.error = error
            where = self._where or builder.where
            outcome.actual |= {"error": f"{type(error).__name__}: {error}", "error_at": where}
        finally:
            if self._app is not None:
                with contextlib.suppress(Exception):
                    await self._app.stop()
        if self._app is not None:
            outcome.actual |= shown.topics(await asyncio.to_thread(self._written))
            _cut_what_the_failing_step_wrote(self._case["expected"], outcome.actual)
        return outcome

    def _create_topics(self, builder: CaseBuilder, dead_letters: str | None) -> None:
        assert self._app is not None
        names = {topic.removeprefix(self._prefix) for topic in self._app.streams.plan.source_topics}
        names |= {*builder.sinks, *self._case["expected"].get("topics", {})}
        names |= {step["topic"] for step in self._case["input"] if "topic" in step}
        names |= {dead_letters} if dead_letters else set()
        topics = [(self._prefix + name, self._partitions, {}) for name in sorted(names)]
        KafkaAdmin(self._kafka).ensure_topics(topics)

    async def _feed(self, shown: Shown, actual: Spec) -> None:
        assert self._app is not None
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
            }
        )
        queries = []
        with Backlog(self._app.streams.plan, self._kafka) as backlog:
            for number, step in enumerate(self._case["input"]):
                self._where = f"input[{number}]"
                if "query" in step:
                    store = step["query"]["store"]
                    queries.append(
                        await self._app.streams.read(
                            store, None, lambda s, spec=step["query"]: answer(_OneStore(s), spec)
                        )
                    )
                    continue
                key, value, headers = shown.input(step)
                topic, timestamp = self._prefix + step["topic"], step["timestamp"]
                sent: list[Message] = []
                producer.produce(
                    topic,
                    value,
                    key,
                    timestamp=timestamp,
                    headers=list(headers),
                    on_delivery=lambda error, message, sent=sent: sent.append(message),
                )
                await asyncio.to_thread(producer.flush, STEP_SECONDS)
                await self._until_global(sent[0])
                await self._until(backlog.empty)
        if queries:
            actual["queries"] = queries

    async def _until_global(self, sent: Message) -> None:
        """Global tables are filled beside the tasks, in their own time: what a case does next counts on the record being there."""
        assert self._app is not None
        streams = self._app.streams
        stores = [store.name for store in streams.plan.global_stores if store.topic == sent.topic()]
        at = Partition(sent.topic(), sent.partition())
        deadline = time.monotonic() + STEP_SECONDS
        while stores and time.monotonic() < deadline and self._app.crash_reason is None:
            applied = await streams.read(
                stores[0], None, lambda _: streams._global_stores.state.positions().get(at, 0)
            )
            if applied > sent.offset():
                return
            await asyncio.sleep(COMMIT_MS / 1000)

    async def _until(self, true: Callable[[], bool]) -> None:
        assert self._app is not None
        deadline = time.monotonic() + STEP_SECONDS
        while not await asyncio.to_thread(true):
            if self._app.crash_reason is not None:
                raise self._app.crash_reason
            if time.monotonic() > deadline:
                raise TimeoutError(f"the worker is {self._app.streams.state} after {STEP_SECONDS:g} s")
            await asyncio.sleep(COMMIT_MS / 1000)
        if self._app.crash_reason is not None:
            raise self._app.crash_reason

    async def _stores(self, shown: Shown) -> Spec:
        assert self._app is not None
        found = {}
        for name, table in self._app.streams.tables().items():
            parts = [
                await self._app.streams.read(name, partition, shown.store)
                for partition in ([None] if table.is_global else range(table.partitions))
            ]
            entries = [row for part in parts for row in part.get("entries", ())]
            found[name] = {**parts[0], "entries": entries} if "entries" in parts[0] else parts[0]
        return found

    def _written(self) -> Mapping[str, list[OutputRecord]]:
        """What is in the output topics of the case, without the prefix; partition by partition."""
        inputs = {self._prefix + step["topic"] for step in self._case["input"] if "topic" in step}
        sinks = {self._prefix + topic for topic in self._case["expected"].get("topics", {})}
        found: dict[str, list[OutputRecord]] = {}
        with contextlib.closing(TopicReader(self._bootstrap)) as reader:
            wanted = (
                topic
                for topic in reader.topics()
                if topic.startswith(self._prefix) and (topic not in inputs or topic in sinks)
            )
            for message in reader.read(*wanted):
                record = without_prefix(_record(message), self._prefix)
                found.setdefault(record.topic, []).append(record)
        return {topic: records for topic, records in found.items() if not topic.startswith("app-")}


class _OneStore:
    """The store of a query, in the place of the driver that has it."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def store(self, name: str) -> Any:
        return self._store

    def query(self, name: str, query: Query) -> Any:
        return run_query(self._store, query)


def _record(message: Any) -> OutputRecord:
    headers = tuple(message.headers() or NO_HEADERS)
    timestamp = message.timestamp()[1]
    return OutputRecord(
        message.topic(), message.key(), message.value(), timestamp, headers, message.partition()
    )


def _cut_what_the_failing_step_wrote(expected: Spec, actual: Spec) -> None:
    """The answers leave out what the record that failed had caused before; a worker may have written some of it."""
    if "error" in expected and "error" in actual:
        for topic, records in actual["topics"].items():
            del records[len(expected.get("topics", {}).get(topic, ())) :]
