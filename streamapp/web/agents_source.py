"""`AgentsSource`: gives the views the state of a worker without a topology (a `ViewSource`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from streamapp.records import TopicPartition
from streamapp.runners.worker.agents.state import worker_state
from streamapp.web.runtime_source import input_status
from streamapp.web.view_source import NotAvailable, TableInfo, TopologyGraph, WorkerStatus

__all__ = ["AgentsSource"]

R = TypeVar("R")


class AgentsSource:
    """The views of an `App` with agents or consumers only. There are no tasks and no tables."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.application_id: str = app.conf.id

    def status(self) -> WorkerStatus:
        app = self._app
        state, reason = worker_state(app)
        url = str(app.conf.canonical_url)
        agents = app._consumer
        return WorkerStatus(
            state,
            reason,
            url,
            consumers=app.consumers,
            agent_inputs=() if agents is None else tuple(map(input_status, agents.inputs)),
            agent_failed_records={} if agents is None else agents.failed_records,
            agents_wait_for=app.assignor.waits_for,
            missing_topics=() if agents is None else agents.missing_topics,
            has_tasks=False,
            removed_records={} if agents is None else agents.removed.found,
        )

    def topology(self) -> TopologyGraph:
        return TopologyGraph("", "")

    def tables(self) -> Mapping[str, TableInfo]:
        return {}

    def partition_for(self, table: str, key: bytes) -> int:
        self._refuse()

    async def read(
        self,
        table: str,
        partition: int,
        fn: Callable[[Any], R],
        *,
        stale: bool = False,
        at_least: Mapping[TopicPartition, int] | None = None,
    ) -> R:
        self._refuse()

    def pause(self) -> None:
        self._refuse()

    def resume(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotAvailable("this application has no topology")
