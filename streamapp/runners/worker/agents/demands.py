"""Checks of agents when the worker starts: settings that cannot work with the application's guarantees are errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from faust.serializers.schemas import Schema
from faust.tables.base import Collection
from faust.tables.sets import SetTable
from yarl import URL

from streamapp._base.letter_cycles import MAKES_LETTERS, letters_of_letters
from streamapp.config import StreamsConfig
from streamapp.errors import ConfigError
from streamapp.runners.worker.agents.sets import store_of_sets

__all__ = ["check_agents"]

_DECODED = (None, int, float, Decimal, str, bytes)
"""The types, beside models, as which Faust decodes keys and values."""


def check_agents(app: Any, agents: Iterable[Any], is_source: Callable[[str], bool]) -> None:
    """Raises `ConfigError` for agents that the worker cannot run with the application's settings.

    No agent may read a topic that the topology reads (``is_source``), or with types that Faust cannot decode. No agent
    may make dead letters of the dead letters that it reads. Tables of sets must be in memory, and with
    exactly_once_v2 all tables of agents.
    """
    for agent in agents:
        for topic in filter(is_source, getattr(agent.channel, "topics", ())):
            raise ConfigError(
                f"the agent {agent.name} reads {topic}, which the topology also reads. An application reads a topic "
                "only once. Let the topology write the agent's records to another topic, or give the agent an App of "
                "its own"
            )
        _check_cycle(app.config, agent)
        _check_types(f"the agent {agent.name} reads {_named(agent.channel)}", agent.channel)
    for table in app.tables.values():
        if isinstance(table, Collection):
            _check_types(f"the table {table.name} has a changelog", table.changelog_topic)
            _check_store(app, table)


def _check_store(app: Any, table: Any) -> None:
    """Raises `ConfigError` for a table on disk that would lose changes."""
    of_sets = isinstance(table, SetTable)
    # Faust takes `conf.store` also if a table names "memory://" or "rocksdb://", because these URLs are false.
    scheme = URL(store_of_sets(table) if of_sets else table._store or app.conf.store).scheme
    if scheme == "memory":
        return
    remedy = "(Faust restores the table from its changelog), or a table of the topology"
    if of_sets:
        raise ConfigError(
            f"the table {table.name} would lose members at a restart, because Faust's sets on {scheme} lack changes. "
            f'Use SetTable(..., store="memory://") {remedy}'
        )
    if app.config.exactly_once:
        raise ConfigError(
            f"the table {table.name} cannot be exact with exactly_once_v2, because Faust writes a change to "
            f'{scheme} before the commit. Use App(..., store="memory://") {remedy}'
        )


def _named(channel: Any) -> str:
    return ", ".join(getattr(channel, "topics", ())) or "a channel"


def _check_types(reader: str, channel: Any) -> None:
    """Raises `ConfigError` for a type of keys or values from which Faust makes no object when it decodes a record.

    Faust itself would raise at the first record. A schema of another class may know more types.
    """
    if type(channel.schema) is not Schema:
        return
    for part in ("key", "value"):
        given = getattr(channel.schema, f"{part}_type")
        if given in _DECODED or hasattr(given, "from_data"):
            continue
        name = getattr(given, "__name__", repr(given))
        raise ConfigError(
            f"{reader} with {part}_type={name}, but Faust cannot decode a record as {name}. Leave {part}_type out to "
            f'get {part}s as the serializer decodes them, for example dicts from {part}_serializer="json". Or give a '
            f"class derived from faust.Record, or one of int, float, Decimal, str, bytes"
        )


def _check_cycle(config: StreamsConfig, agent: Any) -> None:
    """Raises `ConfigError` if the agent reads the application's dead letters, and a setting turns a letter that fails
    into a new letter."""
    letters, topics = config.dead_letter_queue_topic, getattr(agent.channel, "topics", ())
    if letters is None or letters not in topics:
        return
    for kind in ("deserialization", "processing"):
        name = f"{kind}_exception_handler"
        if (answer := getattr(config, name)) in MAKES_LETTERS:
            raise ConfigError(letters_of_letters(f"the agent {agent.name}", letters, f'{name} is "{answer}"'))
