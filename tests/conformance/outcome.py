"""Runs a case on the test driver and records the outcome in the shape of ``expected`` (SPEC.md, 8, 10)."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import Any

from streamapp import StreamsConfig, TopologyTestDriver

from .builder import CaseBuilder
from .functions import extractor
from .queries import answer
from .shown import Shown
from .types import STRING

__all__ = ["Outcome", "case_config", "execute"]

Spec = dict[str, Any]


@dataclass
class Outcome:
    """What a case gave: ``actual`` has the fields of ``expected``; ``error`` is what ended it."""

    actual: Spec = field(default_factory=dict)
    error: Exception | None = None


def execute(case: Spec) -> Outcome:
    """Builds and runs a case. Never raises: an error is a part of the outcome."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as state_dir:
        run = _Run(case, state_dir, outcome.actual)
        try:
            run.build()
            run.start()
            run.pipe_all()
            run.collect()
        except Exception as error:
            outcome.error = error
            message = (str(error).splitlines() or [""])[0]
            outcome.actual |= {"error": f"{type(error).__name__}: {message}", "error_at": run.where}
            run.collect_after_failure()
        finally:
            run.close()
    return outcome


def case_config(case: Spec, state_dir: str) -> StreamsConfig:
    properties = {
        "application.id": "oracle",
        "statestore.cache.max.bytes": 0,
        "default.key.serde": STRING.serde,
        "default.value.serde": STRING.serde,
        "state.dir": state_dir,
        **case.get("config", {}),
    }
    if "default.timestamp.extractor" in properties:
        properties["default.timestamp.extractor"] = extractor(properties["default.timestamp.extractor"])
    return StreamsConfig.from_properties(properties)


class _Run:
    def __init__(self, case: Spec, state_dir: str, actual: Spec) -> None:
        self.case = case
        self.actual = actual
        self.config = case_config(case, state_dir)
        self.builder = CaseBuilder(case, self.config)
        self.driver: TopologyTestDriver | None = None
        self.shown = Shown(case, self.builder, self.config)
        self._where = ""

    @property
    def where(self) -> str:
        return self._where or self.builder.where

    def build(self) -> None:
        self.topology = self.builder.build()
        self.actual["describe"] = str(self.topology.describe())

    def start(self) -> None:
        self._where = "start"
        wall_clock = self.case.get("wall_clock_start_ms", 0)
        self.driver = TopologyTestDriver(self.topology, self.config, initial_wall_clock_ms=wall_clock)

    def pipe_all(self) -> None:
        assert self.driver is not None
        queries = []
        for i, step in enumerate(self.case["input"]):
            self._where = f"input[{i}]"
            if "advance_wall_clock_ms" in step:
                self.driver.advance_wall_clock_time(step["advance_wall_clock_ms"])
            elif "query" in step:
                queries.append(answer(self.driver, step["query"]))
            else:
                self._pipe(self.driver, step)
        self._where = "end"
        if queries:
            self.actual["queries"] = queries

    def _pipe(self, driver: TopologyTestDriver, step: Spec) -> None:
        key, value, headers = self.shown.input(step)
        driver.pipe_raw(step["topic"], key, value, step["timestamp"], headers)

    def collect(self) -> None:
        assert self.driver is not None
        stores = self.shown.stores(self.driver.stores)
        if stores:
            self.actual["stores"] = stores
        self.actual |= self.shown.topics(self.driver.produced)
        if self.builder.side_effects:
            self.actual["side_effects"] = self.builder.side_effects
        self.actual["metrics"] = {"dropped_records": self.driver.dropped_records}

    def collect_after_failure(self) -> None:
        """Keeps what was written before the step that failed."""
        if self.driver is not None:
            self.actual |= self.shown.topics(self.driver.produced)

    def close(self) -> None:
        try:
            if self.driver is not None:
                self.driver.close()
        except Exception as error:
            if "error" not in self.actual:
                self.actual["error_on_close"] = f"{type(error).__name__}: {error}"
