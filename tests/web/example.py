"""A worker worth looking at: some forty nodes, tables of each kind, a task that stands still."""

from __future__ import annotations

from streamapp.serdes import StringSerde
from streamapp.web.view_source import (
    InputStatus,
    RestoreStatus,
    SubtopologyGraph,
    TaskStatus,
    TopologyGraph,
    TopologyNode,
    WorkerStatus,
)

from .fakes import FakeSource, key_value_stores, open_empty

HOUR = 3_600_000
DAY = 1_386_374_400_000
AIRPORTS = ["ATL", "BOS", "DEN", "EWR", "IAH", "JFK", "LAX", "LGA", "MCO", "MIA", "ORD", "SEA", "SFO", "TPA"]


def source(name: str, topic: str, *successors: str) -> TopologyNode:
    return TopologyNode(name, "source", topics=(topic,), successors=successors)


def step(name: str, *successors: str, stores: tuple[str, ...] = ()) -> TopologyNode:
    return TopologyNode(name, "processor", stores=stores, successors=successors)


def sink(name: str, topic: str) -> TopologyNode:
    return TopologyNode(name, "sink", topics=(topic,))


def example_graph() -> TopologyGraph:
    flights = SubtopologyGraph(
        0,
        (
            source("KSTREAM-SOURCE-0000000000", "flights", "KSTREAM-FILTER-0000000001"),
            step("KSTREAM-FILTER-0000000001", "KSTREAM-PEEK-0000000002", "cancelled"),
            step("KSTREAM-PEEK-0000000002", "join-weather", "by-carrier", "KSTREAM-KEY-SELECT-0000000019"),
            source("KSTREAM-SOURCE-0000000003", "weather", "KTABLE-SOURCE-0000000004"),
            step("KTABLE-SOURCE-0000000004", "join-weather", stores=("weather-by-airport",)),
            step("join-weather", "late", "KSTREAM-MAPVALUES-0000000006", stores=("weather-by-airport",)),
            step("late", "to-alerts"),
            step("KSTREAM-MAPVALUES-0000000006", "KSTREAM-KEY-SELECT-0000000007"),
            step("KSTREAM-KEY-SELECT-0000000007", "to-airport"),
            step("KSTREAM-KEY-SELECT-0000000019", "to-tail"),
            step("by-carrier", "to-carrier"),
            step("cancelled", "to-cancelled"),
            sink("to-airport", "flights-delays-by-airport-repartition"),
            sink("to-carrier", "flights-carriers-repartition"),
            sink("to-tail", "flights-rotations-repartition"),
            sink("to-alerts", "late-arrivals"),
            sink("to-cancelled", "cancelled-flights"),
        ),
    )
    airports = SubtopologyGraph(
        1,
        (
            source("KSTREAM-SOURCE-0000000010", "flights-delays-by-airport-repartition", "hourly", "delays"),
            step("hourly", "KTABLE-SUPPRESS-0000000012", stores=("delays-by-airport-hour",)),
            step(
                "KTABLE-SUPPRESS-0000000012",
                "KTABLE-TOSTREAM-0000000013",
                stores=("KTABLE-SUPPRESS-STATE-STORE-0000000011",),
            ),
            step("KTABLE-TOSTREAM-0000000013", "to-hours"),
            step("delays", "KTABLE-TOSTREAM-0000000015", "join-airports", stores=("delays-by-airport",)),
            step("join-airports", "rank"),
            step("rank", "to-ranking", stores=("ranking",)),
            step("KTABLE-TOSTREAM-0000000015", "to-delays"),
            sink("to-hours", "airport-delays-hourly"),
            sink("to-delays", "airport-delays"),
            sink("to-ranking", "airport-ranking"),
        ),
    )
    tails = SubtopologyGraph(
        2,
        (
            source("KSTREAM-SOURCE-0000000020", "flights-rotations-repartition", "sessions"),
            source("KSTREAM-SOURCE-0000000024", "flights-carriers-repartition", "carriers"),
            step("sessions", "KTABLE-TOSTREAM-0000000022", stores=("rotations",)),
            step("KTABLE-TOSTREAM-0000000022", "to-rotations"),
            step("carriers", "share", stores=("carriers",)),
            step("share", "to-carriers", stores=("carriers",)),
            sink("to-rotations", "rotations"),
            sink("to-carriers", "carriers-share"),
        ),
    )
    planes = SubtopologyGraph(
        3,
        (
            source("KSTREAM-SOURCE-0000000030", "planes", "KTABLE-SOURCE-0000000031"),
            step("KTABLE-SOURCE-0000000031", stores=("planes",)),
        ),
        is_global=True,
    )
    return TopologyGraph("Topologies:\n", "flowchart LR\n", (flights, airports, tails, planes))


class ExampleSource(FakeSource):
    """Call `advance` for another second of the worker's life."""

    def __init__(self) -> None:
        super().__init__(partitions=4)
        self.seconds = 0
        delays = {
            name: {"flights": 40 * n + 7, "mean_delay": round(3.4 * n, 1)} for n, name in enumerate(AIRPORTS)
        }
        self.add_table(
            "delays-by-airport",
            "timestamped",
            key_value_stores(self, delays, kind="timestamped"),
            subtopology=1,
        )
        hours = {
            p: open_empty("h", "timestamped_window", retention_ms=48 * HOUR, size_ms=HOUR) for p in range(4)
        }
        for n in range(60):
            key = AIRPORTS[n % 14]
            start = DAY + (n // 14) * HOUR
            value = {"flights": n, "delayed": n // 3}
            hours[self.partition_for("h", key.encode())].put(key, value, start, start + 1_000 * n)
        self.add_table(
            "delays-by-airport-hour", "timestamped_window", hours, size_ms=HOUR, segment_interval_ms=24 * HOUR
        )
        self.add_table(
            "rotations", "session", {p: open_empty("r", "session", retention_ms=HOUR) for p in range(4)}
        )
        for name in ("carriers", "ranking", "weather-by-airport"):
            self.add_table(name, "timestamped", key_value_stores(self, {}, kind="timestamped"))
        self.add_table(
            "planes", "key_value", {0: key_value_stores(self, {"N14228": "BOEING 737"})[0]}, is_global=True
        )
        self.add_table(
            "KTABLE-SUPPRESS-STATE-STORE-0000000011",
            "suppress_buffer",
            {0: object()},
            key_serde=StringSerde(),
        )
        self.advance()

    def topology(self) -> TopologyGraph:
        return example_graph()

    def advance(self, seconds: int = 1) -> None:
        """Time goes on: task 0_1 stands still because nothing comes from the weather, the others work."""
        self.seconds += seconds
        done = 10_000 + 1_800 * self.seconds + (self.seconds * self.seconds * 97) % 701
        tasks = [
            TaskStatus(
                "0_0",
                0,
                "running",
                done,
                (InputStatus("flights", 0, done, done + 40), InputStatus("weather", 0, 900, 900)),
            ),
            TaskStatus(
                "0_1",
                1,
                "running",
                20_311,
                (
                    InputStatus("flights", 1, 20_311, 24_900 + self.seconds * 20, buffered=4_000),
                    InputStatus("weather", 1, 0, 12),
                ),
            ),
            TaskStatus(
                "1_0",
                0,
                "running",
                done // 2,
                (InputStatus("flights-delays-by-airport-repartition", 0, done // 2, done // 2 + 310),),
            ),
            TaskStatus(
                "2_0",
                0,
                "running",
                done // 3,
                (InputStatus("flights-rotations-repartition", 0, done // 3, done // 3),),
            ),
        ]
        processed = sum(task.processed for task in tasks)
        self.worker = WorkerStatus("running", None, self.worker.url, tuple(tasks), processed=processed)

    def restore(self, percent: int) -> None:
        """The worker reads its tables back from their changelogs."""
        tasks = tuple(
            TaskStatus(
                f"1_{p}",
                p,
                "restoring",
                0,
                (),
                (
                    RestoreStatus(
                        "delays-by-airport",
                        "flights-delays-by-airport-changelog",
                        p,
                        0,
                        8_000 * percent - 900 * p,
                        800_000,
                    ),
                ),
            )
            for p in range(3)
        )
        self.worker = WorkerStatus("restoring", None, self.worker.url, tasks)
