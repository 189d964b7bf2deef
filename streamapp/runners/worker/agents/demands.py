"""Checks of agents when the worker starts. The worker refuses requests that nobody can grant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from faust.tables.base import Collection
from yarl import URL

from streamapp.errors import ConfigError

__all__ = ["check_agents"]


def check_agents(app: Any, agents: Iterable[Any], is_source: Callable[[str], bool]) -> None:
    """Raises `ConfigError` for what the application's own ``agents`` cannot have. ``is_source`` says of a topic whether the
    topology reads it."""
    for agent in agents:
        for topic in filter(is_source, getattr(agent.channel, "topics", ())):
            raise ConfigError(
                f"the agent {agent.name} reads {topic}, which the topology reads, and an application reads a topic once. Let the "
                "topology write what the agent needs to another topic, or give the agent an App of its own"
            )
    if not app.config.exactly_once:
        return
    for table in app.tables.values():
        if isinstance(table, Collection):
            store = app.conf.store if table._store is None else table._store  # some URLs are false
            scheme = URL(store).scheme
            if scheme != "memory":
                raise ConfigError(
                    f"Faust writes the table {table.name} to {scheme} before its change is committed, so it cannot be exact with "
                    'exactly_once_v2. Use store="memory://" (it is restored from its changelog), or a table of the topology'
                )
