"""The calls of the application's listeners for restores and standbys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from streamapp.errors import StreamsError
from streamapp.records import TopicPartition
from streamapp.restore_listeners import StandbyUpdateListener, StateRestoreListener

__all__ = ["ListenerCalls"]

P = ParamSpec("P")


class ListenerCalls:
    """The two listeners of a worker. The default listeners do nothing."""

    def __init__(
        self, restores: StateRestoreListener | None = None, standbys: StandbyUpdateListener | None = None
    ) -> None:
        self.restores: StateRestoreListener = restores or StateRestoreListener()
        self.standbys: StandbyUpdateListener = standbys or StandbyUpdateListener()
        self.at: str | None = None
        """The method that runs now, for the watchdog. None: no method runs."""

    def tell(
        self,
        method: Callable[Concatenate[TopicPartition, str, P], None],
        partition: TopicPartition,
        store: str,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> None:
        """Calls a method of a listener. Raises `StreamsError` if the method raises."""
        self.at = f"{method.__qualname__} for the store {store}"
        try:
            method(partition, store, *arguments, **named)
        except Exception as exc:
            raise StreamsError(f"{self.at}, {partition}, raised {exc!r}") from exc
        finally:
            self.at = None
