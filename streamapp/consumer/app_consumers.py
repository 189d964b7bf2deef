"""`AppConsumers`: the consumers of an `App`, which begin and end with its worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from streamapp.consumer.account import ConsumerStatus
from streamapp.consumer.consume_options import ConsumeOptions, ConsumeSettings
from streamapp.consumer.consuming import Consuming
from streamapp.consumer.reliable import handler_name
from streamapp.errors import ConfigError

__all__ = ["AppConsumers"]

logger: logging.Logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2


class AppConsumers:
    """The consumers that `App.consume` made.

    Each consumer has a group of its own, ``<application id>-<name>``. The name is ``name=`` of `App.consume`, or else
    the function's name.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._by_name: dict[str, Consuming] = {}
        self._stopping = False

    def add(
        self,
        topics: tuple[str, ...],
        handler: Callable[..., Any],
        name: str | None,
        settings: ConsumeSettings,
    ) -> None:
        """Adds a consumer, which starts with the worker. Raises `ConfigError` for wrong settings or a name in use."""
        operator = name or handler_name(handler)
        group = f"{self._app.config.application_id}-{operator}"
        if group in self._by_name:
            raise ConfigError(f"two consumers are called {operator}: give one of them another name=")
        try:
            options = ConsumeOptions(
                name=group,
                topics=topics,
                handler=handler,
                config=self._app.config,
                operator=operator,
                **settings,
            )
        except TypeError as exc:
            raise ConfigError(f"consume() of {operator}: {exc}") from None
        self._by_name[group] = Consuming(options)

    @property
    def statuses(self) -> tuple[ConsumerStatus, ...]:
        """The status of every consumer at this moment."""
        return tuple(consuming.status() for consuming in self._by_name.values())

    @property
    def options(self) -> tuple[ConsumeOptions, ...]:
        """The settings of every consumer."""
        return tuple(consuming.options for consuming in self._by_name.values())

    def start(self) -> None:
        """Starts the consumers. If one fails later, the worker ends with its error."""
        for consuming in self._by_name.values():
            consuming.start(asyncio.get_running_loop())
            self._app.add_future(self._watch(consuming))

    async def stop(self, seconds: float) -> None:
        """Stops all consumers. Each waits for the calls of its handler that have begun, and commits. If a consumer is
        not done after ``seconds``, the method logs a warning and returns."""
        self._stopping = True
        for consuming in self._by_name.values():
            consuming.stop()
        until = asyncio.get_running_loop().time() + seconds
        while not all(consuming.ended.is_set() for consuming in self._by_name.values()):
            if asyncio.get_running_loop().time() > until:
                logger.warning("consumers have not come to their end within %g s", seconds)
                return
            await asyncio.sleep(0.02)

    async def _watch(self, consuming: Consuming) -> None:
        while not consuming.ended.is_set():
            await asyncio.sleep(_LOOK_SECONDS)
        if consuming.failure is not None and not self._stopping:
            logger.critical("this worker ends: %s", consuming.failure)
            await self._app.crash(consuming.failure)
