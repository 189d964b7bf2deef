"""A loop by hand over confluent-kafka and rocksdict: what is left if no framework does anything.

W1 and W4 produce per event. W2 and W3 keep their state in a dict, and touched keys go once per batch to RocksDB and to the
changelog (and for W3 to the output); W3 writes and reads a repartition topic. No restart, no rebalance, no time, no errors.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from rocksdict import Options, Rdict, WriteBatch

from benchmarks.programs.meter import Job, Meter
from benchmarks.schema import Delays, Flight, Joined, LateFlight, Plane

BATCH = 5000
HOUR = 3_600_000

flight_of = msgspec.json.Decoder(Flight).decode
plane_of = msgspec.json.Decoder(Plane).decode
encode = msgspec.json.Encoder().encode
long_bytes = struct.Struct(">q").pack


class Loop:
    def __init__(self, job: Job) -> None:
        self.job, self.meter = job, Meter(job)
        self.producer = Producer(
            {
                "bootstrap.servers": job.bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 500_000,
            }
        )

    def consumer(self, topic: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.job.bootstrap,
                "group.id": self.job.app,
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 5,
                "queued.min.messages": 100_000,
            }
        )
        partitions = consumer.list_topics(topic).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        return consumer

    def batches(self, consumer: Consumer) -> Iterator[list[Message]]:
        while not self.meter.done:
            messages = consumer.consume(BATCH, 0.05)
            if messages:
                self.meter.begin()
                yield messages
                self.producer.poll(0)
                self.meter.add(len(messages))

    def send(self, topic: str, value: bytes, key: bytes | None, timestamp: int = 0) -> None:
        while True:
            try:
                self.producer.produce(topic, value, key, timestamp=timestamp)
                return
            except BufferError:
                self.producer.poll(0.05)

    def store(self) -> Rdict:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        return Rdict(self.job.folder + "/loop", options)


def w1(loop: Loop) -> None:
    for messages in loop.batches(loop.consumer(loop.job.input)):
        for message in messages:
            f = flight_of(message.value())
            if f.dep_delay is not None and f.dep_delay > 15:
                late = LateFlight(f.carrier, f.origin, f.dest, f.flight, f.dep_delay)
                loop.send(loop.job.output, encode(late), message.key(), message.timestamp()[1])


def w2(loop: Loop) -> None:
    db, changelog = loop.store(), loop.job.app + "-changelog"
    counts: dict[bytes, int] = {}
    for messages in loop.batches(loop.consumer(loop.job.input)):
        touched = set()
        for message in messages:
            flight_of(message.value())
            key = message.key()
            counts[key] = counts.get(key, 0) + 1
            touched.add(key)
        writes = WriteBatch(raw_mode=True)
        for key in touched:
            data = long_bytes(counts[key])
            writes.put(key, data)
            loop.send(changelog, data, key)
        db.write(writes)


def w3(loop: Loop) -> None:
    job = loop.job
    db, repartition, changelog = loop.store(), job.app + "-repartition", job.app + "-changelog"
    delays: dict[tuple[bytes, int], tuple[int, int]] = {}
    for messages in _both(loop, loop.consumer(job.input), loop.consumer(repartition)):
        if messages[0].topic() == job.input:
            for message in messages:
                f = flight_of(message.value())
                loop.send(repartition, encode(f), f.origin.encode(), message.timestamp()[1])
            loop.meter.add(len(messages))
            continue
        touched = {}
        for message in messages:
            f = flight_of(message.value())
            key = message.key(), message.timestamp()[1] // HOUR * HOUR
            count, delay = delays.get(key, (0, 0))
            delays[key] = touched[key] = count + 1, delay + (f.dep_delay or 0)
        writes = WriteBatch(raw_mode=True)
        for (key, start), values in touched.items():
            data = encode(Delays(*values))
            window = key + long_bytes(start)
            writes.put(window, data)
            loop.send(changelog, data, window)
            loop.send(job.output, data, b"%b@%d" % (key, start))
        db.write(writes)
        loop.meter.add(len(messages))


def _both(loop: Loop, first: Consumer, second: Consumer) -> Iterator[list[Message]]:
    while not loop.meter.done:
        for consumer in (first, second):
            messages = consumer.consume(BATCH, 0.005)
            if messages:
                loop.meter.begin()
                yield messages
            loop.producer.poll(0)


def w4(loop: Loop) -> None:
    planes: dict[bytes, Plane] = {}
    table = loop.consumer(loop.job.planes)
    while len(planes) < 3322:
        planes.update((m.key(), plane_of(m.value())) for m in table.consume(BATCH, 0.5))
    for messages in loop.batches(loop.consumer(loop.job.input)):
        for message in messages:
            f = flight_of(message.value())
            plane = planes.get(message.key())
            if plane is not None:
                row = (f.carrier, f.tailnum, f.origin, f.dest, f.flight, f.dep_delay)
                joined = Joined(*row, plane.manufacturer, plane.model, plane.seats)
                loop.send(loop.job.output, encode(joined), message.key(), message.timestamp()[1])


WORKLOADS: dict[str, Callable[[Loop], Any]] = {"w1": w1, "w2": w2, "w3": w3, "w4": w4}

if __name__ == "__main__":
    loop = Loop(Job.from_arguments(sys.argv[1:]))
    WORKLOADS[loop.job.workload](loop)
    loop.producer.flush()
    loop.meter.report()
