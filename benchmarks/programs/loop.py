"""A loop by hand over confluent-kafka and rocksdict: the work that is left without a framework.

W1 and W4 produce per event. W2 and W3 keep their state in a dict. Once per batch, they write changed keys to RocksDB
and to the changelog, and W3 also to the output. W3 writes and reads a repartition topic. The loops handle no restart,
no rebalance, no time and no errors.

The workloads with many rows read each row from RocksDB, once in a batch, because a dict of all rows has no bound.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rocksdict import Options, Rdict, WriteBatch

from benchmarks.programs.meter import Job, Meter
from benchmarks.schema import Delays, Flight, Joined, LateFlight, Plane

BATCH = 5000
HOUR = 3_600_000
PLANES = 3322

flight_of = msgspec.json.Decoder(Flight).decode
plane_of = msgspec.json.Decoder(Plane).decode
encode = msgspec.json.Encoder().encode
long_bytes = struct.Struct(">q").pack
session = struct.Struct(">qq")


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

    def send(self, topic: str, value: bytes | None, key: bytes | None, timestamp: int = 0) -> None:
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
    for messages in _turns(loop, loop.consumer(job.input), loop.consumer(repartition)):
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


def _turns(loop: Loop, *consumers: Consumer) -> Iterator[list[Message]]:
    while not loop.meter.done:
        for consumer in consumers:
            messages = consumer.consume(BATCH, 0.005)
            if messages:
                loop.meter.begin()
                yield messages
            loop.producer.poll(0)


def w4(loop: Loop) -> None:
    planes: dict[bytes, Plane] = {}
    table = loop.consumer(loop.job.planes)
    while len(planes) < PLANES:
        planes.update((m.key(), plane_of(m.value())) for m in table.consume(BATCH, 0.5))
    for messages in loop.batches(loop.consumer(loop.job.input)):
        for message in messages:
            f = flight_of(message.value())
            plane = planes.get(message.key())
            if plane is not None:
                loop.send(loop.job.output, joined(f, plane), message.key(), message.timestamp()[1])


def joined(f: Flight, plane: Plane) -> bytes:
    row = (f.carrier, f.tailnum, f.origin, f.dest, f.flight, f.dep_delay)
    return encode(Joined(*row, plane.manufacturer, plane.model, plane.seats))


def keys(loop: Loop) -> None:
    """A read and a write of a row for each key of a batch."""
    db, changelog = loop.store(), loop.job.app + "-changelog"
    for messages in loop.batches(loop.consumer(loop.job.input)):
        counts: dict[bytes, int] = {}
        for message in messages:
            flight_of(message.value())
            key = message.key()
            counts[key] = counts.get(key, 0) + 1
        writes = WriteBatch(raw_mode=True)
        for (key, count), before in zip(counts.items(), db.get(list(counts)), strict=True):
            data = long_bytes(count + int.from_bytes(before or b""))
            writes.put(key, data)
            loop.send(changelog, data, key)
        db.write(writes)


def sessions(loop: Loop) -> None:
    """A seek to the newest session of each key of a batch. The events of a key come in the order of time."""
    db, changelog, gap = loop.store(), loop.job.app + "-changelog", 4 * HOUR
    for messages in loop.batches(loop.consumer(loop.job.input)):
        stored, newest = db.iter(), dict[bytes, tuple[int, int, int]]()
        rows: dict[bytes, int | None] = {}
        for message in messages:
            flight_of(message.value())
            key, at = message.key(), message.timestamp()[1]
            if key not in newest:
                stored.seek_for_prev(key + session.pack(at, at))
                if stored.valid() and (row := stored.key())[:-16] == key:
                    end, start = session.unpack(row[-16:])
                    newest[key] = end, start, int.from_bytes(stored.value())
            end, start, count = newest.get(key, (at, at, 0))
            if at - end > gap:
                start, count = at, 0
            elif count:
                rows[key + session.pack(end, start)] = None
            newest[key] = at, start, count + 1
            rows[key + session.pack(at, start)] = count + 1
        writes = WriteBatch(raw_mode=True)
        for row, count in rows.items():
            if count is None:
                writes.delete(row)
                loop.send(changelog, None, row)
            else:
                writes.put(row, long_bytes(count))
                loop.send(changelog, long_bytes(count), row)
        db.write(writes)


def foreign_key(loop: Loop) -> None:
    """Flights subscribe to their planes by one topic, and get the answers by another; every row goes to RocksDB."""
    job, db = loop.job, loop.store()
    changelog, subscriptions, answers = job.app + "-changelog", job.app + "-repartition", job.app + "-answers"
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    admin.create_topics([NewTopic(answers, 4)])[answers].result()
    table, known = loop.consumer(job.planes), 0
    while known < PLANES:
        messages = table.consume(BATCH, 0.5)
        known += len(messages)
        for message in messages:
            db[b"plane/" + message.key()] = message.value()
    topics = (job.input, subscriptions, answers)
    for messages in _turns(loop, *map(loop.consumer, topics)):
        writes, topic = WriteBatch(raw_mode=True), messages[0].topic()

        def put(row: bytes, data: bytes, writes: WriteBatch = writes) -> None:
            writes.put(row, data)
            loop.send(changelog, data, row)

        if topic == job.input:
            for message in messages:
                put(b"flight/" + message.key(), message.value())
                loop.send(subscriptions, message.key(), (flight_of(message.value()).tailnum or "").encode())
        elif topic == subscriptions:
            planes = db.get([b"plane/" + message.key() for message in messages])
            for message, plane in zip(messages, planes, strict=True):
                put(b"subscription/" + message.key() + b"/" + message.value(), message.value())
                loop.send(answers, plane, message.value())
        else:
            flights = db.get([b"flight/" + message.key() for message in messages])
            for message, flight in zip(messages, flights, strict=True):
                data = joined(flight_of(flight), plane_of(message.value()))
                put(b"joined/" + message.key(), data)
                loop.send(job.output, data, message.key())
        db.write(writes)
        loop.meter.add(len(messages))


WORKLOADS: dict[str, Callable[[Loop], Any]] = {
    "w1": w1,
    "w2": w2,
    "w3": w3,
    "w4": w4,
    "keys": keys,
    "sessions": sessions,
    "foreign-key": foreign_key,
}

if __name__ == "__main__":
    loop = Loop(Job.from_arguments(sys.argv[1:]))
    WORKLOADS[loop.job.workload](loop)
    loop.producer.flush()
    loop.meter.report()
