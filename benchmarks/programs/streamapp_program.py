"""streamapp: `describe` has the topologies; the program runs one of them in a worker of one process."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import faust

from benchmarks.programs.meter import Job, Meter
from benchmarks.schema import Delays, Flight, Joined, LateFlight, Plane
from benchmarks.soak_events import GAP, GRACE, RETENTION
from streamapp import (
    App,
    BufferConfig,
    BytesSerde,
    EmitStrategy,
    JoinWindows,
    JsonSerde,
    LongSerde,
    Materialized,
    Processor,
    Record,
    Serde,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StringSerde,
    Suppressed,
    TimeWindows,
    Windowed,
)

V = TypeVar("V")

KEY = StringSerde()
FLIGHT: Serde[Flight] = JsonSerde(Flight)
PLANE: Serde[Plane] = JsonSerde(Plane)
LATE: Serde[LateFlight] = JsonSerde(LateFlight)
DELAYS: Serde[Delays] = JsonSerde(Delays)
JOINED: Serde[Joined] = JsonSerde(Joined)
# The partitions of a repartition topic run years apart in event time.
YEARS = timedelta(days=1500)


def join_plane(f: Flight, plane: Plane) -> Joined:
    return Joined(
        f.carrier,
        f.tailnum,
        f.origin,
        f.dest,
        f.flight,
        f.dep_delay,
        plane.manufacturer,
        plane.model,
        plane.seats,
    )


def named(window: Windowed, value: V) -> tuple[str, V]:
    """The result of a window, with key and start of the window as its key."""
    return f"{window.key}@{window.start}", value


def landed(departure: Flight, landing: Flight) -> LateFlight:
    return LateFlight(
        departure.carrier, departure.origin, landing.dest, landing.flight, departure.dep_delay or 0
    )


def describe(builder: StreamsBuilder, job: Job) -> None:
    globals()[f"describe_{job.workload.replace('-', '_')}"](builder, job)


def describe_w1(builder: StreamsBuilder, job: Job) -> None:
    """Parse, filter, five fields out."""
    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    (
        flights.filter(lambda key, flight: flight.dep_delay is not None and flight.dep_delay > 15)
        .map_values(lambda f: LateFlight(f.carrier, f.origin, f.dest, f.flight, f.dep_delay))
        .to(job.output, key_serde=KEY, value_serde=LATE)
    )


def describe_w2(builder: StreamsBuilder, job: Job) -> None:
    """Count by key into a changelogged table."""
    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    flights.group_by_key().count(materialized=Materialized("counts", key_serde=KEY, value_serde=LongSerde()))


def describe_w3(builder: StreamsBuilder, job: Job) -> None:
    """Re-key, repartition topic, one-hour windows, count and sum, changelog, output."""

    def add(origin: str, flight: Flight, delays: Delays) -> Delays:
        return Delays(delays.count + 1, delays.delay + (flight.dep_delay or 0))

    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    (
        flights.group_by(lambda key, flight: flight.origin, key_serde=KEY, value_serde=FLIGHT)
        .windowed_by(TimeWindows.of_size_and_grace(timedelta(hours=1), YEARS))
        .aggregate(
            Delays,
            add,
            materialized=Materialized(
                "delays", key_serde=KEY, value_serde=DELAYS, retention=YEARS + timedelta(days=1)
            ),
        )
        .to_stream()
        .map(named)
        .to(job.output, key_serde=KEY, value_serde=DELAYS)
    )


def describe_w4(builder: StreamsBuilder, job: Job) -> None:
    """Join with a table of planes."""
    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    kept = Materialized("planes", key_serde=KEY, value_serde=PLANE)
    planes = builder.table(job.planes, key_serde=KEY, value_serde=PLANE, materialized=kept)
    flights.join(planes, join_plane, key_serde=KEY, value_serde=FLIGHT).to(
        job.output, key_serde=KEY, value_serde=JOINED
    )


def describe_restore(builder: StreamsBuilder, job: Job) -> None:
    """A table whose topic is its changelog."""
    kept = Materialized("big", key_serde=KEY, value_serde=BytesSerde())
    builder.table(job.input, key_serde=KEY, value_serde=BytesSerde(), materialized=kept)


def describe_sessions(builder: StreamsBuilder, job: Job) -> None:
    """Count by key and session: nearly each flight of a plane begins a session. The variant is the days of grace."""
    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    grace = timedelta(days=int(job.variant or 1))
    sessions = SessionWindows.of_inactivity_gap_and_grace(timedelta(hours=4), grace)
    kept = Materialized("sessions", key_serde=KEY, value_serde=LongSerde())
    flights.group_by_key().windowed_by(sessions).count(materialized=kept)


def describe_final_sessions(builder: StreamsBuilder, job: Job) -> None:
    """As `describe_sessions`, with one result for each session, when the session closes."""

    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    windows = SessionWindows.of_inactivity_gap_and_grace(timedelta(hours=4), timedelta(days=1))
    sessions = flights.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    kept = Materialized("sessions", key_serde=KEY, value_serde=LongSerde())
    results = sessions.count(materialized=kept).to_stream().map(named)
    results.to(job.output, key_serde=KEY, value_serde=LongSerde())


def describe_keys(builder: StreamsBuilder, job: Job) -> None:
    """Count by key, as W2, over a million keys that come equally often."""
    describe_w2(builder, job)


def describe_hopping(builder: StreamsBuilder, job: Job) -> None:
    """Count by key in windows of a day that begin every five minutes: 288 updates for each flight."""
    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    windows = TimeWindows.of_size_and_grace(timedelta(days=1), timedelta(hours=1))
    kept = Materialized("windows", key_serde=KEY, value_serde=LongSerde())
    (flights.group_by_key().windowed_by(windows.advance_by(timedelta(minutes=5))).count(materialized=kept))


def describe_sliding(builder: StreamsBuilder, job: Job) -> None:
    """Count the flights of each plane in sliding windows of a day."""

    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    windows = SlidingWindows.of_time_difference_and_grace(timedelta(days=1), timedelta(hours=1))
    kept = Materialized("windows", key_serde=KEY, value_serde=LongSerde())
    counts = flights.group_by_key().windowed_by(windows).count(materialized=kept)
    counts.to_stream().map(named).to(job.output, key_serde=KEY, value_serde=LongSerde())


def describe_suppressed(builder: StreamsBuilder, job: Job) -> None:
    """Count by carrier and day, with one result for each window, when the window closes."""

    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    windows = TimeWindows.of_size_and_grace(timedelta(days=1), timedelta(hours=1))
    kept = Materialized("windows", key_serde=KEY, value_serde=LongSerde())
    counts = flights.group_by_key().windowed_by(windows).count(materialized=kept)
    results = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded())).to_stream()
    results.map(named).to(job.output, key_serde=KEY, value_serde=LongSerde())


class Miles(Processor[str, Flight, str, int]):
    """Adds up the miles of each plane, and forwards each sum."""

    def process(self, record: Record[str, Flight]) -> None:
        store = self.context.get_state_store("miles")
        miles = (store.get(record.key) or 0) + record.value.distance
        store.put(record.key, miles)
        self.context.forward(record.with_value(miles))


def describe_processor(builder: StreamsBuilder, job: Job) -> None:
    """A sum by key in a store of a `Processor`, which forwards each sum."""
    builder.add_state_store(Stores.key_value("miles", KEY, LongSerde()))
    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    flights.process(Miles, "miles").to(job.output, key_serde=KEY, value_serde=LongSerde())


def describe_table_join(builder: StreamsBuilder, job: Job) -> None:
    """A table of departures joined with a table of landings."""
    kept = [Materialized(name, key_serde=KEY, value_serde=FLIGHT) for name in ("departures", "landings")]
    departures = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT).to_table(materialized=kept[0])
    landings = builder.stream(job.planes, key_serde=KEY, value_serde=FLIGHT).to_table(materialized=kept[1])
    departures.join(landings, landed).to_stream().to(job.output, key_serde=KEY, value_serde=LATE)


def describe_foreign_key(builder: StreamsBuilder, job: Job) -> None:
    """A table of numbered flights that finds its planes by their tail numbers."""
    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT).to_table(
        materialized=Materialized("flights", key_serde=KEY, value_serde=FLIGHT)
    )
    planes = builder.table(job.planes, key_serde=KEY, value_serde=PLANE)
    kept = Materialized("joined", key_serde=KEY, value_serde=JOINED)
    flights.join(
        planes, join_plane, foreign_key=lambda flight: flight.tailnum, materialized=kept
    ).to_stream().to(job.output, key_serde=KEY, value_serde=JOINED)


def describe_stream_join(builder: StreamsBuilder, job: Job) -> None:
    """Departures joined with landings of the same number within a day."""

    departures = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    landings = builder.stream(job.planes, key_serde=KEY, value_serde=FLIGHT)
    joined = departures.join(
        landings,
        landed,
        JoinWindows.of_time_difference_and_grace(timedelta(days=1), timedelta(hours=1)),
        key_serde=KEY,
        value_serde=FLIGHT,
        other_value_serde=FLIGHT,
    )
    joined.to(job.output, key_serde=KEY, value_serde=LATE)


def describe_values(builder: StreamsBuilder, job: Job) -> None:
    """The last value of each key, read and written with each record."""
    values = builder.stream(job.input, key_serde=KEY, value_serde=BytesSerde())
    kept = Materialized("values", key_serde=KEY, value_serde=BytesSerde())
    values.group_by_key().reduce(lambda before, value: value, materialized=kept)


def describe_stores(builder: StreamsBuilder, job: Job) -> None:
    """As many counts of each event as the variant says, each in a store of its own."""
    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT).group_by_key()
    for number in range(int(job.variant)):
        flights.count(materialized=Materialized(f"counts-{number}", key_serde=KEY, value_serde=LongSerde()))


def describe_retention(builder: StreamsBuilder, job: Job) -> None:
    """Count by key in windows of a second, which are kept for as many seconds as the variant says."""
    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    windows = TimeWindows.of_size_with_no_grace(timedelta(seconds=1))
    retention = timedelta(seconds=int(job.variant))
    kept = Materialized("windows", key_serde=KEY, value_serde=LongSerde(), retention=retention)
    flights.group_by_key().windowed_by(windows).count(materialized=kept)


def describe_soak(builder: StreamsBuilder, job: Job) -> None:
    """A count by key and a count by session, each with its input and its results."""
    flights = builder.stream(job.input, key_serde=KEY, value_serde=FLIGHT)
    kept = Materialized("counts", key_serde=KEY, value_serde=LongSerde())
    counts = flights.group_by_key().count(materialized=kept).to_stream().map_values(str)
    counts.to(f"{job.output}-counts-out", key_serde=KEY, value_serde=KEY)

    def named(window: Windowed, count: int) -> tuple[str, str]:
        return window.key, f"{window.start},{window.end},{count}"

    flights = builder.stream(job.planes, key_serde=KEY, value_serde=FLIGHT)
    kept = Materialized("sessions", key_serde=KEY, value_serde=LongSerde(), retention=RETENTION)
    sessions = flights.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(GAP, GRACE))
    results = sessions.count(materialized=kept).to_stream().filter(lambda window, count: count is not None)
    results.map(named).to(f"{job.output}-sessions-out", key_serde=KEY, value_serde=KEY)


describe_latency = describe_w1


def make_app(job: Job) -> App:
    exactly_once = job.variant == "exactly-once"
    config = StreamsConfig(
        job.app,
        bootstrap_servers=job.bootstrap,
        processing_guarantee="exactly_once_v2" if exactly_once else "at_least_once",
        statestore_cache_max_bytes=0 if job.workload in ("foreign-key", "soak") else 10 * 2**20,
        topology_optimization="all" if job.workload == "restore" else "none",
    )
    if job.memory:
        config = config.replace(state_memory_bytes=job.memory)
    if job.workload == "soak":
        config = config.replace(group_instance_id=job.variant)
    return App(
        job.app,
        topology=lambda builder: describe(builder, job),
        config=config,
        datadir=job.folder,
        web_enabled=False,
    )


def watch(app: App, job: Job) -> None:
    """Ends the worker with a commit once everything is processed. The measurement includes this commit."""
    meter = Meter(job)
    streams, before = app.streams, 0
    if job.workload in ("w4", "foreign-key"):
        while streams.processed < PLANES:
            time.sleep(0.001)
        before = PLANES
    while streams.processed <= before:
        time.sleep(0.001)
    meter.begin()
    while not meter.done:
        time.sleep(0.002)
        meter.add(streams.processed - before - meter.seen)
    asyncio.run_coroutine_threadsafe(streams.stop(), app.loop).result()
    meter.report()
    os._exit(0)


def _await_state(app: App, state: str) -> None:
    while app.streams.state != state:
        time.sleep(0.0005)


def watch_restore(app: App, job: Job) -> None:
    meter = Meter(job)
    _await_state(app, "restoring")
    meter.begin()
    _await_state(app, "running")
    meter.add(job.events)
    meter.report()
    os._exit(0)


def watch_shared(app: App, job: Job) -> None:
    """One of several workers: begins when all have their tasks, and ends when all have processed their inputs."""
    meter, streams, others = Meter(job), app.streams, Rendezvous(job)
    while app.streams.state == "starting":
        time.sleep(0.001)
    streams.pause()
    while len(streams.tasks) != job.events or not all(task.running for task in streams.tasks.values()):
        time.sleep(0.01)
    others.wait("begin")
    before = streams.processed
    meter.begin()
    streams.resume()
    while any(task.lag != 0 for task in streams.tasks.values()):
        time.sleep(0.002)
    others.wait("end")
    asyncio.run_coroutine_threadsafe(streams.stop(), app.loop).result()
    meter.add(streams.processed - before)  # not earlier: a turn counts its records at its end
    meter.report()
    os._exit(0)


class Rendezvous:
    """The meeting point of the programs of one application: each writes a file into the folder above its own."""

    def __init__(self, job: Job) -> None:
        self._own = Path(job.folder).parent
        self._count = int(job.variant.removeprefix("shared-"))

    def wait(self, name: str) -> None:
        (self._own / name).touch()
        while sum((each / name).exists() for each in self._own.parent.iterdir()) < self._count:
            time.sleep(0.001)


PLANES = 3322


WATCHERS = {"restore": watch_restore}


def main(arguments: list[str]) -> None:
    job = Job.from_arguments(arguments)
    app = make_app(job)
    if job.workload not in ("latency", "soak"):
        watcher = WATCHERS.get(job.workload, watch_shared if job.variant.startswith("shared") else watch)
        threading.Thread(target=watcher, args=(app, job), daemon=True).start()
    sys.argv = sys.argv[:1]
    faust.Worker(
        app, loglevel="INFO", quiet=True, redirect_stdouts=False, daemon=True
    ).execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1:])
