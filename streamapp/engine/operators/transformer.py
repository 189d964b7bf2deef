"""Value transformers (``KTable.transform_values``). The table's operator has a transformer, and each view of the table
has its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from streamapp.engine.operator import NodeContext
from streamapp.engine.operators.processor import BoundProcessorContext
from streamapp.errors import StreamsError
from streamapp.records import Record

__all__ = ["ValueTransformer", "bind_transformer"]


class ValueTransformer(Protocol):
    """Computes the values of a table for ``KTable.transform_values``, whose supplier makes the transformers of each
    task.

    A transformer may use state stores through its context. Its only result is the returned value, so ``forward`` of the
    context raises `StreamsError`. (Kafka Streams: ``ValueTransformerWithKey``.)
    """

    def init(self, context: Any) -> None:
        """Called once, before the first record. ``context`` is a `ProcessorContext`."""

    def transform(self, key: Any, value: Any) -> Any:
        """Returns the new value. ``value`` is None if the row is deleted."""

    def close(self) -> None:
        """Called once, when the task closes, to release resources of the transformer."""


def bind_transformer(ctx: NodeContext, supplier: Callable[[], ValueTransformer]) -> Callable[[Any, Any], Any]:
    """Makes a transformer, has the task call its ``init`` and ``close``, and returns its method ``transform``."""
    transformer = supplier()
    if not callable(getattr(transformer, "transform", None)):
        raise StreamsError(
            f"the supplier of {ctx.name} gave {transformer!r}, which has no method transform(key, value)"
        )
    task: Any = ctx.task
    task.add_processor(ctx.name, transformer, _TransformerContext(ctx))
    return transformer.transform


class _TransformerContext(BoundProcessorContext):
    def forward(self, record: Record, child: str | None = None) -> None:
        raise StreamsError(f"{self._ctx.name} cannot forward: a value transformer returns its one result")
