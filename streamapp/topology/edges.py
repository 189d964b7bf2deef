"""Checks of the arguments of sources and sinks, for the DSL and for `Topology`."""

from __future__ import annotations

from typing import Any

from streamapp._base.callables import require_function
from streamapp.errors import TopologyError
from streamapp.on_error import Answer, Chooser, OnError, Retry, check_on_error

__all__ = ["UNDECODABLE", "UNWRITABLE", "answer_of_edge", "check_extractor", "check_partitioner"]

UNDECODABLE = "a record that cannot be decoded"
UNWRITABLE = "a result that cannot be written"


def check_extractor(extractor: Any, source: str) -> None:
    """Raises `TopologyError` unless the argument is None, or a function of a record and the partition time."""
    if extractor is not None:
        require_function(extractor, source, "a timestamp extractor of record and partition time", 2)


def check_partitioner(partitioner: Any, operator: str) -> None:
    """Raises `TopologyError` unless the argument is None, or a function with the arguments of a `Partitioner`.

    The check also refuses coroutine functions.
    """
    if partitioner is not None:
        require_function(
            partitioner, operator, "a partitioner of topic, key, value and number of partitions", 4
        )


def answer_of_edge(on_error: OnError | None, where: str, what: str) -> Answer | Chooser | None:
    """The ``on_error`` of a source, a sink or an asynchronous operator. Raises `TopologyError` for a `Retry`.

    At a source or sink, a new attempt would have the same bytes and fail again. The calls of an asynchronous operator
    overlap, so other calls would overtake a record that waits.
    """
    if on_error is None:
        return None
    check_on_error(on_error, where)
    if isinstance(on_error, Retry):
        raise TopologyError(
            f"{where} cannot have on_error=Retry: {what} gets no better by a retry. Give "
            '"fail", "skip", "dead_letter" or a function'
        )
    return on_error
