"""Runs one record through the topology in the test driver, without Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from streamapp.config import StreamsConfig
from streamapp.engine.failures import REPRODUCE
from streamapp.engine.judging import ProcessingFailed
from streamapp.engine.operator import ParkedStatus
from streamapp.records import Headers, OutputRecord
from streamapp.runners.local import TopologyTestDriver
from streamapp.topology import Topology

__all__ = ["Trial", "runs_of", "tried", "try_record"]


@dataclass(frozen=True)
class Trial:
    """The result of `try_record` and `tried`."""

    outputs: tuple[OutputRecord, ...]
    """Records that were written to topics that are not internal, including dead letters."""
    drops: dict[tuple[str, str], int]
    """The number of dropped records by operator (or store) and reason."""
    parked: tuple[ParkedStatus, ...]
    """The operators with parked records."""
    exception: str | None = None
    """The message of the exception that a function or a serde has raised; None if nothing has raised. Only `tried`
    sets this field."""
    stops: bool = False
    """True if a worker would end with an error at this record."""


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
    masked: bool = False,
) -> Trial:
    """Runs one record through the topology in the test driver. All stores are empty, so joins and tables find no row.

    With ``raises``, each exception of a user's function or a serde ends the trial with `ProcessingFailed`. ``on_error``
    and the exception handlers then have no effect. Without ``raises``, ``on_error`` and the exception handlers decide
    as in a worker. `ProcessingFailed` then means that a worker would end with an error. Raises another `StreamsError`
    if the record cannot be tried, for example if the topology does not read the topic.

    With ``masked``, the message of the exception is as in a log: ``show_record`` of the configuration masks the record.
    Without ``masked``, the message has the record and the text of the exception.
    """
    if raises:
        topology = topology.without_answers()
        config = config.replace(
            deserialization_exception_handler="fail",
            processing_exception_handler="fail",
            production_exception_handler="fail",
        )
    if not masked:
        config = config.replace(show_record=None)
    # No other input has a record here, so the record would wait for them without end.
    config = config.replace(max_task_idle_ms=0)
    with TopologyTestDriver(topology, config, initial_wall_clock_ms=max(0, timestamp)) as driver:
        driver.pipe_raw(topic, key, value, timestamp, headers)
        internal = {each.name for each in driver.plan.internal_topics} | {
            changelog.name for sub in driver.plan.subtopologies for changelog in sub.changelog_topics.values()
        }
        outputs = tuple(
            record for name, records in driver.produced.items() if name not in internal for record in records
        )
        return Trial(outputs, driver.drops, tuple(each for each in driver.parked if each.records))


def runs_of(
    topology: Topology, config: StreamsConfig, record: OutputRecord, *, masked: bool = False
) -> Callable[[bool], Trial]:
    """A function that calls `try_record` with these arguments; its only parameter is ``raises``."""
    return lambda raises: try_record(
        topology,
        config,
        record.topic,
        record.key,
        record.value,
        record.timestamp or 0,
        record.headers,
        raises=raises,
        masked=masked,
    )


def tried(run: Callable[[bool], Trial]) -> Trial:
    """The exception that a record causes, and the results that a worker with empty stores would have.

    ``run`` is the result of `runs_of`. If a function of the user or a serde raises, the record is tried a second time,
    with ``on_error`` and the exception handlers. Raises `StreamsError` if the record cannot be tried.
    """
    try:
        return run(True)
    except ProcessingFailed as error:
        exception = _without_place(error)
    try:
        trial = run(False)
    except ProcessingFailed:
        return Trial((), {}, (), exception, stops=True)
    return replace(trial, exception=exception)


def _without_place(error: ProcessingFailed) -> str:
    """The message without the place of the record, which is a place in the test driver, and without the remedy.

    The trial ignores the answers of the topology, so the remedy may be one that the topology has already.
    """
    message, _, _ = str(error).partition(REPRODUCE)
    if error.remedy:
        message = message.replace(f"; {error.remedy}", "", 1)
    if error.place:
        message = message.replace(error.place, "the record", 1)
    return message
