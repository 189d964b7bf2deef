"""Takes an application back to its beginning, like Kafka Streams' application reset tool, and deletes local state."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException

from streamapp.broker.consumer_groups import check_at_rest, look_at_group
from streamapp.broker.requests import REQUEST_SECONDS, LastingAdmin, ask, ask_controller
from streamapp.errors import BrokerError
from streamapp.runners.worker.clients import unreachable
from streamapp.state.directory import StateDirectory
from streamapp.topology.plan import Plan

__all__ = ["Reset", "delete_state", "plan_reset"]

_SECONDS = 30.0


@dataclass(frozen=True)
class Reset:
    """Deletes internal topics, the offsets of the group, and the state on this machine (``folder`` None: no state).

    ``backfilled`` is a second group, whose offsets have the fingerprint of a backfill's topology in their metadata.
    None: there is no such group, because no backfill has ended since the last reset.
    """

    group: str
    backfilled: str | None
    topics: tuple[str, ...]
    folder: Path | None
    _admin: LastingAdmin

    def __str__(self) -> str:
        """
        >>> print(Reset("flights", None, ("flights-counts-changelog",), None, None))
        topic   flights-counts-changelog
        offsets of the consumer group flights
        """
        state = [] if self.folder is None else [f"folder  {self.folder}"]
        topics = [f"topic   {topic}" for topic in self.topics]
        groups = [f"offsets of the consumer group {group}" for group in self._groups]
        return "\n".join([*topics, *groups, *state])

    @property
    def _groups(self) -> list[str]:
        return [*([] if self.backfilled is None else [self.backfilled]), self.group]

    def carry_out(self) -> None:
        """Deletes the state on this machine, then the internal topics, then the offsets of the group.

        The offsets go last: a worker with tables that starts meanwhile finds offsets but no changelogs, and ends with
        an error. Raises `StreamsError` when a worker has started meanwhile, or when brokers refuse a request. Another
        reset can delete the rest.
        """
        if self.folder is not None:
            delete_state(self.folder)
        if self.topics:
            deleted = ask_controller(self._admin.delete_topics, self.topics, seconds=_SECONDS)
            for topic, answer in deleted.items():
                _passes(answer.result, f"the topic {topic}", KafkaError.UNKNOWN_TOPIC_OR_PART)
        for group in self._groups:
            ((_, answer),) = ask(self._admin.delete_consumer_groups, [group], seconds=_SECONDS).items()
            _passes(answer.result, f"the consumer group {group}", KafkaError.GROUP_ID_NOT_FOUND)


def delete_state(folder: Path) -> None:
    """Deletes the state of an application on this machine. Raises `StreamsError` if a worker uses the state."""
    with StateDirectory(folder.parent, folder.name):
        shutil.rmtree(folder)


def plan_reset(plan: Plan, admin: LastingAdmin) -> Reset:
    """Prepares the reset of an application. Raises `StreamsError` while the application has workers.

    The reset deletes internal topics of this topology. Topics of an older topology stay, and so does the state on other
    machines.
    """
    group = plan.application_id
    try:
        existing = admin.list_topics(timeout=REQUEST_SECONDS).topics
    except KafkaException as exc:
        raise unreachable(plan.config, exc) from exc
    check_at_rest(admin, group, plan.config.session_timeout_ms)
    folder = Path(plan.config.state_dir) / group
    left = look_at_group(admin, plan.backfill_group).state != "dead"
    return Reset(
        group,
        plan.backfill_group if left else None,
        tuple(topic.name for topic in plan.internal_topics if topic.name in existing),
        folder if folder.exists() else None,
        admin,
    )


def _passes(result: Callable[[], object], what: str, absent: int) -> None:
    try:
        result()
    except KafkaException as exc:
        if exc.args[0].code() != absent:
            raise BrokerError(f"{what} could not be deleted: {exc.args[0].str()}") from exc
