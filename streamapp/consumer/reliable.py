"""The consumers for asyncio and for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack

from streamapp._base.prometheus import Metric, labelled, metrics_text
from streamapp.config import StreamsConfig, check_config
from streamapp.consumer.account import ConsumerMetrics, ConsumerStatus, described
from streamapp.consumer.consume_options import ConsumeOptions, ConsumeSettings
from streamapp.consumer.consuming import Consuming
from streamapp.errors import ConfigError

__all__ = ["ReliableConsumer", "SyncReliableConsumer", "handler_name"]


class _Face:
    """The common part of `ReliableConsumer` and `SyncReliableConsumer`."""

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
            config = config.replace(client_properties=client_properties)
        if dead_letter_queue_topic is not None:
            config = config.replace(dead_letter_queue_topic=dead_letter_queue_topic)
        self.config: StreamsConfig = config
        """The configuration, with the cluster and the dead-letter topic for ``streamapp dlq``."""
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
                f"{handler_name(handler)} is a coroutine function: use ReliableConsumer, or give a plain function"
            )
        self._consuming = Consuming(options)

    @property
    def metrics(self) -> ConsumerMetrics:
        """The counts of the consumer at this moment.

        >>> from streamapp.consumer import SyncReliableConsumer
        >>> SyncReliableConsumer("payments", "orders", print).metrics.taken
        0
        """
        return self._consuming.metrics()

    @property
    def status(self) -> ConsumerStatus:
        """The state of the consumer: its partitions, its counts, and the call of the handler that has lasted
        longest."""
        return self._consuming.status()

    def exposition(self) -> str:
        """The counts in Prometheus' text format, for a metrics page that the application serves.

        For the counts of several producers, consumers or relays on a page, call `metrics_text`.
        """
        return metrics_text(self)

    def _families(self) -> Iterable[Metric]:
        return labelled(described([self.status]), {"application": self.config.application_id})

    def stop(self) -> None:
        """Asks the consumer to stop, from any thread, and returns at once.

        Before the consumer ends, it waits at most ``close_timeout_ms`` for open calls of the handler, commits, and
        leaves the group.
        """
        self._consuming.stop()

    def _raise_failure(self) -> None:
        if self._consuming.failure is not None:
            raise self._consuming.failure


class ReliableConsumer(_Face):
    """Calls a function for each record of some topics, from an asyncio application; ``name`` is the consumer group.

    The function, called the handler, gets a `ConsumerRecord`. A coroutine function runs on the event loop, a plain
    function on threads. With ``ordered_by="key"``, the default, the handler gets the records of a key one after the
    other, and up to ``parallelism`` keys at the same time. With ``"partition"``, it gets the records of a partition one
    after the other, and several partitions at the same time.

    The committed offset is that of the first record that is not done. The metadata of the commit names records after
    this offset that are done, so a restart does not repeat them. ``config`` has the address of the cluster and the
    defaults. ``bootstrap_servers``, ``client_properties`` and ``dead_letter_queue_topic`` replace the settings of the
    same name in ``config``. `ConsumeSettings` describes the other settings. Raises `ConfigError` for a wrong setting.

    >>> async def charge(order):
    ...     print(order.key, order.value)
    >>> async def main(servers: str) -> None:
    ...     consumer = ReliableConsumer("payments", "orders", charge, bootstrap_servers=servers)
    ...     await consumer.run()
    """

    async def run(self) -> None:
        """Runs until `stop` is called. If the consumer fails, raises the error."""
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
    """`ReliableConsumer` for applications without asyncio: the same settings and errors, but only for plain functions.

    >>> def charge(order):
    ...     print(order.key, order.value)
    >>> def main(servers: str) -> None:
    ...     SyncReliableConsumer("payments", "orders", charge, bootstrap_servers=servers).run()
    """

    _takes_coroutines = False

    def run(self) -> None:
        """Runs until `stop` is called. If the consumer fails, raises the error.

        Another thread or a signal handler may call `stop`.
        """
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
