"""Value transformers (``KTable.transform_values``), for the operator of a table and for readers of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from streamapp.engine.operator import NodeContext
from streamapp.engine.operators.processor import BoundProcessorContext
from streamapp.errors import StreamsError
from streamapp.records import Record

__all__ = ["ValueTransformer", "bind_transformer"]


class ValueTransformer(Protocol):
    """A transformer of values, which the supplier of ``KTable.transform_values`` makes for each task.

    A transformer may use state stores through the context, but may not forward. (Kafka Streams:
    ``ValueTransformerWithKey``.)
    """

    def init(self, context: Any) -> None:
        """Prepares the transformer. Called once, before the first record."""

    def transform(self, key: Any, value: Any) -> Any:
        """Returns the new value. ``value`` is None if the row is deleted."""

    def close(self) -> None:
        """Releases resources. Called once, after the last record."""


def bind_transformer(ctx: NodeContext, supplier: Callable[[], ValueTransformer]) -> Callable[[Any, Any], Any]:
    """The ``transform`` of a new transformer. The task calls the transformer's ``init`` and ``close``."""
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
