"""Plain Faust with its default settings and rocksdict tables."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import faust

from benchmarks.programs.meter import Job, Meter

HOUR = 3600
OUT = ("carrier", "origin", "dest", "flight", "dep_delay")
NEVER_ROLL = {"segment.ms": 2**63 - 1}


class Program:
    def __init__(self, job: Job) -> None:
        self.job, self.meter = job, Meter(job)
        self.app = faust.App(
            job.app,
            broker=f"kafka://{job.bootstrap}",
            store="rocksdb://",
            datadir=job.folder,
            topic_partitions=job.partitions,
            topic_disable_leader=True,
            consumer_auto_offset_reset="earliest",
            web_enabled=False,
        )
        self.flights = self._topic(job.input)
        self.output = self._topic(job.output)
        getattr(self, job.workload)()
        self.app.task(self.watch)

    def _topic(self, name: str) -> Any:
        return self.app.topic(name, key_type=str, key_serializer="raw", value_serializer="json")

    def _table(self, name: str, **options: Any) -> Any:
        return self.app.Table(
            name,
            partitions=self.job.partitions,
            key_type=str,
            extra_topic_configs=NEVER_ROLL,
            options={"driver": "rocksdict"},
            **options,
        )

    def w1(self) -> None:
        @self.app.agent(self.flights)
        async def late(stream: Any) -> None:
            async for event in stream.events():
                self.meter.begin()
                flight = event.value
                if flight["dep_delay"] is not None and flight["dep_delay"] > 15:
                    await self.output.send(key=event.key, value={name: flight[name] for name in OUT})
                self.meter.add(1)

    def w2(self) -> None:
        counts = self._table("counts", default=int)

        @self.app.agent(self.flights)
        async def count(stream: Any) -> None:
            async for key, _ in stream.items():
                self.meter.begin()
                counts[key] += 1
                self.meter.add(1)

    def w3(self) -> None:
        # Not with group_by(), which forgets the timestamps of the events.
        rekeyed = self._topic(f"{self.job.app}-repartition")
        windows = self._table("delays", default=lambda: [0, 0]).tumbling(HOUR).relative_to_stream()

        @self.app.agent(self.flights)
        async def rekey(stream: Any) -> None:
            async for event in stream.events():
                self.meter.begin()
                flight = event.value
                await rekeyed.send(key=flight["origin"], value=flight, timestamp=event.message.timestamp)
                self.meter.add(1)

        @self.app.agent(rekeyed)
        async def aggregate(stream: Any) -> None:
            async for event in stream.events():
                key, delay = event.key, event.value["dep_delay"] or 0
                count, total = windows[key].current()
                windows[key] = [count + 1, total + delay]
                start = int(event.message.timestamp) // HOUR * HOUR
                value = {"count": count + 1, "delay": total + delay}
                await self.output.send(key=f"{key}@{start}000", value=value)
                self.meter.add(1)

    def w4(self) -> None:
        planes, loaded = self._table("planes"), asyncio.Event()

        @self.app.agent(self._topic(self.job.planes))
        async def load(stream: Any) -> None:
            count = 0
            async for key, plane in stream.items():
                planes[key] = plane
                count += 1
                if count == 3322:
                    loaded.set()

        @self.app.agent(self.flights)
        async def join(stream: Any) -> None:
            async for event in stream.events():
                await loaded.wait()
                self.meter.begin()
                plane, flight = planes.get(event.key), event.value
                if plane is not None:
                    row = {name: flight[name] for name in ("tailnum", *OUT)}
                    row |= {name: plane[name] for name in ("manufacturer", "model", "seats")}
                    await self.output.send(key=event.key, value=row)
                self.meter.add(1)

    async def watch(self) -> None:
        while not self.meter.done:
            await asyncio.sleep(0.01)
        await self.app.producer.flush()
        await self.app.consumer.commit()
        self.meter.report()
        os._exit(0)


if __name__ == "__main__":
    program = Program(Job.from_arguments(sys.argv[1:]))
    sys.argv = sys.argv[:1]
    # With a level above INFO, Faust keeps a handler that makes the root logger build DEBUG records.
    faust.Worker(
        program.app, loglevel="INFO", quiet=True, redirect_stdouts=False, daemon=True
    ).execute_from_commandline()
