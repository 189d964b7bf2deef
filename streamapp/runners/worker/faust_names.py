"""Shows the parts of a topology in Faust's own commands: a sub-topology as an agent, a store as a table.

The shown agents and tables appear in ``faust agents``, ``faust tables`` and in Faust's monitor. They process no
records: the data plane does.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import faust
from mode import Service

from streamapp.runners.worker.agents.recovery import AgentTableManager
from streamapp.runners.worker.agents.topics import topics_of_agents
from streamapp.state.directory import delete_state
from streamapp.state.spec import StoreSpec
from streamapp.topology.plan import Plan, Subtopology

__all__ = [
    "StoreTable",
    "StreamsTableManager",
    "SubtopologyAgent",
    "agents_snapshot",
    "register",
]


class _SourceTopics(faust.Topic):  # type: ignore[misc]
    def get_topic_name(self) -> str:
        return ", ".join(self.topics)


async def _moves_no_records(stream: AsyncIterable[Any]) -> None:
    """The function of each `SubtopologyAgent`. Faust needs a function for each agent, but never calls this one."""


class SubtopologyAgent(faust.Agent):  # type: ignore[misc]
    """A sub-topology, shown as an agent of Faust. The data plane runs the sub-topology."""

    def __init__(self, app: faust.App, subtopology: Subtopology) -> None:
        stores = ", ".join(spec.name for spec in subtopology.stores)
        super().__init__(
            _moves_no_records,
            app=app,
            name=f"streams.{subtopology.name}",
            channel=_SourceTopics(app, topics=list(subtopology.source_topics), acks=False),
            help=f"Sub-topology {subtopology.id}" + (f" with the stores {stores}" if stores else ""),
        )

    def _agent_label(self, name_suffix: str = "") -> str:
        return f"{self.help}{name_suffix}"

    async def on_start(self) -> None:
        """Does nothing: the data plane starts tasks when the group assigns them."""

    async def on_stop(self) -> None:
        """Does nothing: the runtime closes the tasks."""


class StoreTable(Service):  # type: ignore[misc]
    """A state store, shown as a table of Faust."""

    is_global = False

    def __init__(
        self, app: faust.App, spec: StoreSpec, topic: str | None, *, is_global: bool = False
    ) -> None:
        super().__init__()
        self.app = app
        self.name: str = spec.name
        self.spec = spec
        self.store_is_global = is_global
        place = "in every worker, from" if is_global else "changelog"
        self.help: str = (
            f"{spec.kind} store, {place} {topic}" if topic else f"{spec.kind} store, no changelog"
        )

    @property
    def label(self) -> str:
        return f"Table: {self.name}"

    shortlabel = label

    def reset_state(self) -> None:
        """Deletes the local state of the whole topology, for ``faust reset``, because the stores of a task share a
        folder.

        Raises `StreamsError` if a worker uses the state.
        """
        folder = Path(self.app.config.state_dir) / self.app.conf.id
        if folder.exists():
            delete_state(folder)

    async def on_rebalance(self, *_: Any) -> None:
        """Does nothing: the runtime tells the data plane about rebalances."""

    async def on_recovery_completed(self, *_: Any) -> None:
        """Does nothing: the data plane restores the stores of the topology."""


class StreamsTableManager(AgentTableManager):
    """Faust's tables together with the topology's. Faust shows the latter, but does not restore them."""

    def __bool__(self) -> bool:
        return bool(self._changelogs)

    def show(self, table: StoreTable) -> None:
        if table.name in self.data:
            raise ValueError(f"there are two tables with the name {table.name!r}")
        self.data[table.name] = table
        self._channels[table] = None  # its changelog is not for Faust's consumer


def register(app: faust.App, plan: Plan) -> None:
    """Adds the sub-topologies and stores of a plan to the agents and tables that Faust shows."""
    for sub in plan.subtopologies:
        agent = SubtopologyAgent(app, sub)
        app.agents[agent.name] = agent
        for spec in sub.stores:
            changelog = sub.changelog_topics.get(spec.name)
            app.tables.show(StoreTable(app, spec, changelog.name if changelog else None))
    for store in plan.global_stores:
        app.tables.show(StoreTable(app, store.spec, store.topic, is_global=True))


def agents_snapshot(app: faust.App) -> dict[str, Any]:
    """The topics and tables of agents as JSON values, for `compare_topologies`."""
    return {
        "topics": sorted(topics_of_agents(app)),
        "tables": {
            table.name: {
                "changelog": table.changelog_topic.get_topic_name(),
                "partitions": table.partitions,
                "key_type": _type_name(table.key_type),
                "value_type": _type_name(table.value_type),
                "window": _window_name(table.window),
            }
            for table in app.tables.values()
            if not isinstance(table, StoreTable)
        },
    }


def _type_name(kind: Any) -> str | None:
    return getattr(kind, "__name__", None if kind is None else str(kind))


def _window_name(window: Any) -> str | None:
    if window is None:
        return None
    sizes = [f"{name} {getattr(window, name):g} s" for name in ("size", "step") if hasattr(window, name)]
    return " ".join([type(window).__name__, *sizes])
