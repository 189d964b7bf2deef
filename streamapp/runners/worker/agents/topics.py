"""The topics of agents and of their tables, without those of sub-topologies and stores that Faust's lists show."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import faust

__all__ = [
    "changelogs_of_agents",
    "channels_of_agents",
    "outputs_of_agents",
    "regrouped_by_agents",
    "topics_of_agents",
]


def topics_of_agents(app: faust.App) -> list[str]:
    """The topics that the agents of an application read, without the sub-topologies."""
    return [topic for channel in channels_of_agents(app) for topic in channel.topics]


def channels_of_agents(app: faust.App) -> list[faust.Topic]:
    """The channels from which agents read topics. A channel in memory has no topics, and is left out."""
    return [agent.channel for agent in _agents(app) if hasattr(agent.channel, "topics")]


def outputs_of_agents(app: faust.App) -> list[str]:
    """The topics that are sinks of agents. Topics to which the code of an agent sends are not known."""
    return [topic for agent in _agents(app) for sink in agent._sinks for topic in getattr(sink, "topics", ())]


def regrouped_by_agents(app: faust.App, topics: Iterable[str], committed: Set[str]) -> list[str]:
    """The topics, among ``topics``, that Faust has made for ``group_by`` of an agent of this application.

    Faust makes such a topic when the agent runs. The topic's name ends with ``-repartition``. The name begins with the
    agent's name, or with the application id and the agent's name. A topic in which the group has ``committed`` no
    offset counts only if the name of a topic that the agent reads follows.
    """

    def beginnings(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"{before}{name}-" for name in names for before in ("", f"{app.conf.id}-"))

    agents = _agents(app)
    with_offsets = beginnings(agent.name for agent in agents)
    without = beginnings(f"{a.name}-{topic}" for a in agents for topic in getattr(a.channel, "topics", ()))
    known = {topic for agent in app.agents.values() for topic in getattr(agent.channel, "topics", ())}
    return sorted(
        topic
        for topic in topics
        if topic.endswith("-repartition")
        and topic.startswith(with_offsets if topic in committed else without)
        and topic not in known
    )


def _agents(app: faust.App) -> list[Any]:
    """The agents with code of their own. Their channels may be in memory, and then have no topics."""
    # Faust comes with this module, and commands without agents do without the import.
    from streamapp.runners.worker.agents.failures import WatchedAgent

    return [agent for agent in app.agents.values() if isinstance(agent, WatchedAgent)]


def changelogs_of_agents(app: faust.App) -> list[str]:
    """The changelogs of the tables of agents, without the stores of the topology."""
    from faust.tables.base import Collection

    return [
        table.changelog_topic.get_topic_name()
        for table in app.tables.values()
        if isinstance(table, Collection)
    ]
