"""The state of a worker without a topology, which runs agents and consumers (`App.consume`)."""

from __future__ import annotations

from typing import Any

from streamapp.runners.worker.status import WorkerState

__all__ = ["worker_state"]


def worker_state(app: Any) -> tuple[WorkerState, str | None]:
    """The state of an `App` without a topology, and the reason of the states ``failed`` and ``stuck``.

    While the worker runs or restores, the reason names the partitions for whose leaders the agents wait.

    The worker is ``running`` if it is a member of the group of its agents, and all consumers (`App.consume`) run.
    While the worker restores tables of agents, the state is ``restoring``. An `App` without agents needs no group. If
    ``failed``, ``stopping`` or ``stuck`` applies, too, this state is the answer. Any thread may ask.
    """
    consumer, watchdog = app._consumer, app._watchdog
    consumers = app.consumers
    ended = [each.reason for each in consumers if each.state == "failed"]
    failure = app.crash_reason
    if failure is not None or ended:
        return "failed", ended[0] if failure is None else f"{type(failure).__name__}: {failure}"
    if app.should_stop:
        return "stopping", None
    stuck = (watchdog and watchdog.stuck) or (consumer and consumer.stuck)
    if stuck:
        return "stuck", stuck
    if app.agents and not (consumer and consumer.is_member):
        return "rebalancing" if app.rebalancing_count > 1 else "starting", None
    if any(each.state != "running" for each in consumers):
        return "starting", None
    state: WorkerState = "restoring" if app.tables.restoring else "running"
    return state, consumer.leaderless if app.agents else None
