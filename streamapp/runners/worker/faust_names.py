"""The parts of a topology under the names that Faust knows: a sub-topology is an agent, a store is a table.

They appear in ``faust agents``, ``faust tables`` and in Faust's monitor, and live and end with the
application. They move no records.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import faust
from mode import Service

from streamapp.runners.worker.agents.recovery import AgentTableManager
from streamapp.runners.worker.reset import delete_state
from streamapp.state.spec import StoreSpec
from streamapp.topology.plan import Plan, Subtopology

__all__ = ["StoreTable", "StreamsTableManager", "SubtopologyAgent", "register"]


class _SourceTopics(faust.Topic):  # type: ignore[misc]
    def get_topic_name(self) -> str:
        return ", ".join(self.topics)


async def _moves_no_records(stream: AsyncIterable[Any]) -> None:
    """An agent has a function; this one is never called."""


class SubtopologyAgent(faust.Agent):  # type: ignore[misc]
    """A sub-topology; the data plane runs it."""

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
        """Nothing to start: tasks come with assignments."""

    async def on_stop(self) -> None:
        """Nothing to stop: the runtime closes the tasks."""


class StoreTable(Service):  # type: ignore[misc]
    """A state store."""

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
        """Deletes the local state of the topology, for ``faust reset``; a task has that of all its stores together.

        Raises `StreamsError` while a worker has it.
        """
        folder = Path(self.app.config.state_dir) / self.app.conf.id
        if folder.exists():
            delete_state(folder)

    async def on_rebalance(self, *_: Any) -> None:
        """The data plane is told by the runtime."""

    async def on_recovery_completed(self, *_: Any) -> None:
        """Faust's recovery does not concern these tables."""


class StreamsTableManager(AgentTableManager):
    """Faust's tables, and beside them the topology's, which Faust shows but does not restore."""

    def __bool__(self) -> bool:
        return bool(self._changelogs)

    def show(self, table: StoreTable) -> None:
        if table.name in self.data:
            raise ValueError(f"there are two tables with the name {table.name!r}")
        self.data[table.name] = table
        self._channels[table] = None  # its changelog is not for Faust's consumer


def register(app: faust.App, plan: Plan) -> None:
    """Makes the parts of the plan known to the application."""
    for sub in plan.subtopologies:
        agent = SubtopologyAgent(app, sub)
        app.agents[agent.name] = agent
        for spec in sub.stores:
            changelog = sub.changelog_topics.get(spec.name)
            app.tables.show(StoreTable(app, spec, changelog.name if changelog else None))
    for store in plan.global_stores:
        app.tables.show(StoreTable(app, store.spec, store.topic, is_global=True))
