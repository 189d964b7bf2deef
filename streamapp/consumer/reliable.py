"""The consumers for asyncio and for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack

from streamapp._base.prometheus import exposition
from streamapp._base.secrets import Properties
from streamapp.config import StreamsConfig, check_config
from streamapp.consumer.account import ConsumerMetrics, ConsumerStatus, described
from streamapp.consumer.consume_options import ConsumeOptions, ConsumeSettings
from streamapp.consumer.consuming import Consuming
from streamapp.errors import ConfigError

__all__ = ["ReliableConsumer", "SyncReliableConsumer", "handler_name"]


class _Face:
    """The common part of both consumers."""

    _takes_coroutines: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        topics: str | Collection[str],
        handler: Callable[..., Any],
        *,
        config: StreamsConfig | None = None,
        bootstrap_servers: str | None = None,
        client_properties: Mapping[str, Any] | None = None,
        dead_letter_queue_topic: str | None = None,
        **settings: Unpack[ConsumeSettings],
    ) -> None:
        check_config(config, type(self).__name__)
        config = StreamsConfig(name) if config is None else config
        if bootstrap_servers is not None:
            config = config.replace(bootstrap_servers=bootstrap_servers)
        if client_properties is not None:
            config = config.replace(client_properties=Properties(client_properties))
        if dead_letter_queue_topic is not None:
            config = config.replace(dead_letter_queue_topic=dead_letter_queue_topic)
        self.config: StreamsConfig = config
        """The cluster and the dead-letter topic; ``streamapp dlq`` reads them here."""
        try:
            options = ConsumeOptions(
                name=name,
                topics=(topics,) if isinstance(topics, str) else tuple(topics),
                handler=handler,
                config=config,
                operator=handler_name(handler),
                **settings,
            )
        except TypeError as exc:
            raise ConfigError(f"{type(self).__name__} {name}: {exc}") from None
        if options.asynchronous and not self._takes_coroutines:
            raise ConfigError(
                f"{handler_name(handler)} is a coroutine function: take ReliableConsumer for it"
            )
        self._consuming = Consuming(options)

    @property
    def metrics(self) -> ConsumerMetrics:
        """The account at this moment.

        >>> from streamapp.consumer import SyncReliableConsumer
        >>> SyncReliableConsumer("payments", "orders", print).metrics.taken
        0
        """
        return self._consuming.metrics()

    @property
    def status(self) -> ConsumerStatus:
        """State, partitions, account, and the record that is in work for longest."""
        return self._consuming.status()

    def exposition(self) -> str:
        """The account in Prometheus' text format, for the application's own metrics page."""
        return exposition(described([self.status]), {"application": self.config.application_id})

    def stop(self) -> None:
        """Begins the end, from any thread: what is in work is waited for, and committed."""
        self._consuming.stop()

    def _raise_failure(self) -> None:
        if self._consuming.failure is not None:
            raise self._consuming.failure


class ReliableConsumer(_Face):
    """Calls a function for each record of some topics, from an asyncio application; ``name`` is the consumer group.

    A coroutine function runs on the event loop, a plain function on threads. ``ordered_by="key"`` handles the records
    of a key one after the other, and up to ``parallelism`` keys at a time. ``"partition"`` keeps the partition's order.
    A record is committed when it and all before it are done; metadata of the commit names those that are done beyond.
    `ConsumeSettings` has all settings. Raises `ConfigError`.

    >>> async def charge(order):
    ...     print(order.key, order.value)
    >>> async def main(servers: str) -> None:
    ...     consumer = ReliableConsumer("payments", "orders", charge, bootstrap_servers=servers)
    ...     await consumer.run()
    """

    async def run(self) -> None:
        """Runs until `stop`, or until the consumer fails, and raises why."""
        async with self:
            await self._ended()

    async def __aenter__(self) -> Self:
        self._consuming.start(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        await asyncio.shield(self._ended())
        if error is None:
            self._raise_failure()

    async def _ended(self) -> None:
        while not self._consuming.ended.is_set():
            await asyncio.sleep(0.02)


class SyncReliableConsumer(_Face):
    """`ReliableConsumer` for applications of threads: the same settings, behaviour and errors, for plain functions.

    >>> def charge(order):
    ...     print(order.key, order.value)
    >>> def main(servers: str) -> None:
    ...     SyncReliableConsumer("payments", "orders", charge, bootstrap_servers=servers).run()
    """

    _takes_coroutines = False

    def run(self) -> None:
        """Runs until `stop` (of another thread, or a signal handler), or until the consumer fails, and raises why."""
        with self:
            self._consuming.wait()

    def __enter__(self) -> Self:
        self._consuming.start(None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._consuming.wait()
        if error is None:
            self._raise_failure()


def handler_name(handler: Callable[..., Any]) -> str:
    """The name of a handler in logs and dead letters."""
    return str(getattr(handler, "__name__", type(handler).__name__))
