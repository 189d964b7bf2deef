"""Quix Streams with its default settings."""

from __future__ import annotations

import sys
from typing import Any

from meter import Job, Meter  # this program runs in an environment of its own, without streamapp
from quixstreams import Application
from quixstreams.dataframe.windows import Count, Sum

HOUR = 3_600_000
YEARS = 1500 * 24 * HOUR
OUT = ("carrier", "origin", "dest", "flight", "dep_delay")


class Program:
    def __init__(self, job: Job) -> None:
        self.job, self.meter, self.stopping = job, Meter(job), False
        self.app = Application(
            broker_address=job.bootstrap,
            consumer_group=job.app,
            auto_offset_reset="earliest",
            state_dir=job.folder,
            loglevel="ERROR",
        )
        self.input = self._topic(job.input)
        self.output = self._topic(job.output)
        self.flights = self.app.dataframe(self.input)

    def _topic(self, name: str) -> Any:
        serdes = ("value_deserializer", "value_serializer")
        return self.app.topic(
            name, **dict.fromkeys(serdes, "json"), key_deserializer="str", key_serializer="str"
        )

    def saw(self, value: Any) -> Any:
        self.meter.begin()
        self.meter.add(1)
        if not self.stopping and self.meter.done:
            self.stopping = True
            self.app.stop()
        return value

    def began(self, value: Any) -> Any:
        self.meter.begin()
        return value

    def w1(self) -> None:
        late = self.flights.apply(self.saw).filter(
            lambda f: f["dep_delay"] is not None and f["dep_delay"] > 15
        )
        late.apply(lambda f: {name: f[name] for name in OUT}).to_topic(self.output)

    def w2(self) -> None:
        def count(flight: Any, state: Any) -> int:
            total = state.get("count", 0) + 1
            state.set("count", total)
            self.saw(flight)
            return total

        self.flights.apply(count, stateful=True)

    def w3(self) -> None:
        def filled(flight: Any) -> Any:
            self.saw(flight)
            flight["dep_delay"] = flight["dep_delay"] or 0
            return flight

        rekeyed = self.flights.apply(filled).group_by(
            "origin", value_serializer="json", value_deserializer="json"
        )
        windows = rekeyed.tumbling_window(duration_ms=HOUR, grace_ms=YEARS)
        windows.agg(count=Count(), delay=Sum("dep_delay")).current().apply(self.saw).to_topic(self.output)

    def w4(self) -> None:
        def joined(flight: Any, plane: Any) -> Any:
            row = {name: flight[name] for name in ("tailnum", *OUT)}
            return row | {name: plane[name] for name in ("manufacturer", "model", "seats")}

        planes = self.app.dataframe(self._topic(self.job.planes))
        flights = self.flights.apply(self.saw)
        flights.join_asof(planes, how="inner", on_merge=joined, grace_ms=YEARS).to_topic(self.output)


if __name__ == "__main__":
    program = Program(Job.from_arguments(sys.argv[1:]))
    getattr(program, program.job.workload)()
    program.app.run()
    program.meter.report()
