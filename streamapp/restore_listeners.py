"""Listeners that an application gives to `App`: they follow the restores of stores, and the standbys of a worker."""

from __future__ import annotations

from typing import Literal

from streamapp.records import TopicPartition

__all__ = ["StandbyUpdateListener", "StateRestoreListener", "SuspendReason"]

SuspendReason = Literal["migrated", "promoted"]
"""The reason why a standby ends, as in KIP-988: another worker gets the copy, or this worker now runs the task."""


class StateRestoreListener:
    """Follows the restores of the stores of one worker. A subclass overrides the methods that it needs.

    ``App(state_restore_listener=...)`` takes an object of a subclass. The methods and their order are those of Kafka
    Streams' ``StateRestoreListener``. Each restore calls `on_restore_start`, `on_batch_restored` for each batch of
    records, and at the end `on_restore_end` or `on_restore_suspended`. A store that lacks no record calls nothing. The
    restores of a global store, one for each partition of its topic, call the same methods.

    The thread that processes records calls the methods, so a slow method delays the processing. If a method raises, the
    worker ends with the reason.

    >>> from streamapp import App, StringSerde
    >>> class Progress(StateRestoreListener):
    ...     def on_restore_end(self, partition, store, restored):
    ...         print(f"{store} has {restored} records of {partition}")
    >>> def flights(builder):
    ...     builder.table("flights", key_serde=StringSerde(), value_serde=StringSerde())
    >>> app = App("flights-by-key", topology=flights, state_restore_listener=Progress())
    """

    def on_restore_start(self, partition: TopicPartition, store: str, start: int, end: int) -> None:
        """A restore begins. The store lacks the records of ``partition`` from ``start`` to ``end`` (exclusive).

        ``partition`` belongs to the changelog of the store, or to the topic of the global store.
        """

    def on_batch_restored(self, partition: TopicPartition, store: str, batch_end: int, restored: int) -> None:
        """The store has taken a batch of ``restored`` records. ``batch_end`` is the offset of the last of them."""

    def on_restore_end(self, partition: TopicPartition, store: str, restored: int) -> None:
        """The restore is complete. ``restored`` is the number of records of all its batches."""

    def on_restore_suspended(self, partition: TopicPartition, store: str, restored: int) -> None:
        """The restore ends early, because the task leaves this worker or begins again at its last commit.

        ``restored`` is the number of records so far. If the task comes back, `on_restore_start` is called again.
        """


class StandbyUpdateListener:
    """Follows the standbys of one worker (KIP-988). A subclass overrides the methods that it needs.

    ``App(standby_update_listener=...)`` takes an object of a subclass. The methods are those of Kafka Streams'
    ``StandbyUpdateListener``. The copy of each store calls `on_update_start` once, `on_batch_loaded` for each batch of
    records, and at the end `on_update_suspended`. Warm-ups are standbys, too.

    The thread that processes records calls the methods, so a slow method delays the processing. If a method raises, the
    worker ends with the reason.

    >>> from streamapp import App, StringSerde
    >>> class Lag(StandbyUpdateListener):
    ...     def on_batch_loaded(self, partition, store, task, batch_end, loaded, end):
    ...         print(f"the copy of {store} in task {task} is {end - batch_end - 1} offsets behind")
    >>> def flights(builder):
    ...     builder.table("flights", key_serde=StringSerde(), value_serde=StringSerde())
    >>> app = App("flights-by-key", topology=flights, standby_update_listener=Lag())
    """

    def on_update_start(self, partition: TopicPartition, store: str, start: int) -> None:
        """A copy begins. The copy reads the changelog ``partition`` from offset ``start`` on."""

    def on_batch_loaded(
        self, partition: TopicPartition, store: str, task: str, batch_end: int, loaded: int, end: int
    ) -> None:
        """The copy has taken a batch of ``loaded`` records. ``task`` is the id of the task, such as ``0_3``.

        ``batch_end`` is the offset of the last record. ``end`` is the end offset of the changelog (exclusive), as far
        as the worker knows; the worker asks for the end once a second.
        """

    def on_update_suspended(
        self, partition: TopicPartition, store: str, offset: int, end: int, reason: SuspendReason
    ) -> None:
        """The copy ends. ``offset`` is the last offset that the copy has read, and ``end`` the end of the changelog.

        If the reason is ``"migrated"``, the copy is closed already. If the reason is ``"promoted"``, the copy becomes
        the state of the running task, and `StateRestoreListener.on_restore_start` may follow.
        """
