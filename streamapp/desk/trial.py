"""Runs one record through the topology in the test driver, without Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from streamapp.config import StreamsConfig
from streamapp.engine.operator import ParkedStatus
from streamapp.records import Headers, OutputRecord
from streamapp.runners.local import TopologyTestDriver
from streamapp.topology import Topology

__all__ = ["Trial", "try_record"]


@dataclass(frozen=True)
class Trial:
    """The result of `try_record`."""

    outputs: tuple[OutputRecord, ...]
    """Records for topics that are not internal, including dead letters."""
    drops: dict[tuple[str, str], int]
    """The number of dropped records by operator (or store) and reason."""
    parked: tuple[ParkedStatus, ...]
    """The operators with parked records."""


def try_record(
    topology: Topology,
    config: StreamsConfig,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    timestamp: int,
    headers: Headers = (),
    *,
    raises: bool = False,
) -> Trial:
    """Runs one record through the topology in the test driver. Its stores are empty, so joins and tables find no row.

    With ``raises``, an exception of a user's function is raised here, and ``on_error`` and the exception handlers have
    no effect. Without it, they answer as in a worker. Raises `StreamsError` where a worker would stop.
    """
    if raises:
        topology = topology.without_answers()
        config = config.replace(
            deserialization_exception_handler="fail",
            processing_exception_handler="fail",
            production_exception_handler="fail",
        )
    with TopologyTestDriver(topology, config, initial_wall_clock_ms=max(0, timestamp)) as driver:
        driver.pipe_raw(topic, key, value, timestamp, headers)
        internal = {each.name for each in driver.plan.internal_topics} | {
            changelog.name for sub in driver.plan.subtopologies for changelog in sub.changelog_topics.values()
        }
        outputs = tuple(
            record for name, records in driver.produced.items() if name not in internal for record in records
        )
        return Trial(outputs, driver.drops, tuple(each for each in driver.parked if each.records))
