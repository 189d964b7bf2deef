"""Two real workers on a real broker: each answers for all of the tables, over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamapp.broker import LocalKafka
from tests.brokers import create_topics
from tests.processes import free_port

pytestmark = pytest.mark.broker

START, AIRPORTS, FLIGHTS = 1_386_374_400_000, [f"K{n:02}" for n in range(30)], 600


class Worker:
    def __init__(self, name: str, folder: Path, env: dict[str, str]) -> None:
        port = free_port()
        self.url, self.log = f"http://localhost:{port}", folder / f"{name}.log"
        self.bootstrap = env["BOOTSTRAP"]
        paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        env = {**os.environ, **env, "WEB_PORT": str(port), "DATADIR": str(folder / name), "PYTHONPATH": paths}
        with self.log.open("wb") as out:
            command = [sys.executable, "-m", "faust", "-A", "live_app", "worker", "-l", "info"]
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)

    async def get(self, session: aiohttp.ClientSession, path: str) -> tuple[int, Any]:
        try:
            async with session.get(self.url + path) as response:
                return response.status, await response.json()
        except aiohttp.ClientConnectionError as error:
            assert self.process.poll() is None, self.log.read_text()
            return 0, str(error)

    async def until(
        self, session: aiohttp.ClientSession, path: str, wanted: Any, timeout: float = 90.0
    ) -> Any:
        """Asks again until the answer is 200 and as wanted."""
        answer: Any = None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    status, answer = await self.get(session, path)
                    if status == 200 and wanted(answer):
                        return answer
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pytest.fail(f"{path}: {answer}\n{self.log.read_text()[-5_000:]}")


@pytest.fixture
async def workers(kafka: LocalKafka, tmp_path: Path) -> AsyncIterator[list[Worker]]:
    app_id = f"views-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    # Keys are looked up where Kafka's default partitioner puts them, which is not librdkafka's default.
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
        }
    )
    topics = [NewTopic(f"{app_id}-in", 4, 1), NewTopic(f"{app_id}-in-planes", 1, 1)]
    create_topics(admin, topics)
    producer.produce(f"{app_id}-in-planes", "BOEING", "N14228")
    for n in range(FLIGHTS):
        producer.produce(f"{app_id}-in", "x", AIRPORTS[n % len(AIRPORTS)], timestamp=START + n * 10_000)
    producer.flush()
    env = {"APP_ID": app_id, "SOURCE": f"{app_id}-in", "BOOTSTRAP": kafka.bootstrap_servers}
    started = [Worker(name, tmp_path, env) for name in ("a", "b")]
    yield started
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
        worker.process.wait()


async def reads_see_a_write(worker: Worker, session: aiohttp.ClientSession) -> None:
    """A read with the position behind a record has the record, or is refused."""
    status, body = await worker.get(session, "/tables/counts/K00")
    (before,) = body["partitions"][0]["positions"]
    count = body["value"]
    written: list[Any] = []
    producer = Producer({"bootstrap.servers": worker.bootstrap, "partitioner": "murmur2_random"})
    topic, _, partition = before.rpartition("-")
    producer.produce(
        topic,
        "x",
        "K00",
        timestamp=START,
        on_delivery=lambda error, message: written.append(message.offset()),
    )
    producer.flush()
    (at,) = written
    for table in ("counts/K00", "counts/?from=K00&to=K00"):
        path = f"/tables/{table}{'&' if '?' in table else '?'}position={quote(before)}:{at + 1}"
        found = await worker.until(session, path, lambda answer: True)
        assert (found.get("value") or found["entries"][0]["value"]) == count + 1
    status, body = await worker.get(session, f"/tables/counts/K00?position={quote(before)}:{at + 9}")
    assert (status, "wants those before offset" in body["error"]) == (503, True), body
    status, body = await worker.get(
        session, f"/tables/counts/K00?position={topic}-{int(partition) + 1}:{at + 9}"
    )
    assert (status, body.get("value")) == (200, count + 1), body  # another partition of the table
    status, body = await worker.get(session, f"/tables/counts/K00?position=elsewhere-{partition}:1")
    assert (status, "no task with counts reads elsewhere" in body["error"]) == (400, True), body
    planes = f"/tables/planes/N14228?position={topic}-planes-0"
    assert (await worker.get(session, f"{planes}:1"))[0] == 200
    assert (await worker.get(session, f"{planes}:2"))[0] == 503


async def test_two_workers_answer_for_all_tables(workers: list[Worker]) -> None:
    async with aiohttp.ClientSession() as session:
        # Both have a share, and both know who has the rest.
        def shared(status: Any) -> bool:
            return status["state"] == "running" and len(status["workers"]) == 2 and status["lag"] == 0

        for worker in workers:
            await worker.until(session, "/status", shared)
        assert sum([len((await w.get(session, "/status"))[1]["tasks"]) for w in workers]) == 4

        for worker in workers:
            all_counts = f"/tables/counts/?limit={FLIGHTS}"
            page = await worker.until(
                session, all_counts, lambda page: sum(e["value"] for e in page["entries"]) == FLIGHTS
            )
            assert [entry["key"] for entry in page["entries"]] == AIRPORTS
            assert {each["lag"] for each in page["partitions"]} == {0}
            for airport in AIRPORTS:
                status, body = await worker.get(session, f"/tables/counts/{airport}")
                assert (status, body.get("value")) == (200, FLIGHTS // len(AIRPORTS)), body

            status, page = await worker.get(session, f"/tables/hourly/?from={START}&to={START}&limit=1000")
            assert status == 200
            assert {(e["key"], e["start"]) for e in page["entries"]} == {(a, START) for a in AIRPORTS}
            assert sum(e["value"] for e in page["entries"]) == 360  # one every ten seconds for an hour
            for airport in AIRPORTS:  # the partition of a windowed key is that of the airport
                key = quote(json.dumps({"key": airport, "start": START}))
                status, body = await worker.get(session, f"/tables/busy/{key}")
                assert (status, body.get("value")) == (200, 12), body
            status, page = await worker.get(session, "/tables/sessions/K00")
            assert (status, len(page["entries"])) == (200, FLIGHTS // len(AIRPORTS))
            status, body = await worker.get(session, "/tables/planes/N14228")
            assert (status, body["value"]) == (200, "BOEING")

        await reads_see_a_write(workers[0], session)

        # What a dead worker held is refused or, once it has moved, complete: never silently less.
        workers[1].process.kill()
        workers[1].process.wait()
        for _ in range(20):
            status, page = await workers[0].get(session, all_counts)
            assert status == 503 or sum(e["value"] for e in page["entries"]) == FLIGHTS + 1
        await workers[0].until(
            session, all_counts, lambda page: sum(e["value"] for e in page["entries"]) == FLIGHTS + 1
        )
