"""The checks of a worker that the rows of tables belong to the offsets of the group."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamapp.broker.requests import LastingAdmin
from streamapp.records import TopicPartition
from streamapp.runners.lost_offsets import (
    fed_changelogs,
    lost_rows,
    lost_topics,
    offsets_from_outside,
    rows_of_other_offsets,
)
from streamapp.runners.worker.clients import find_committed
from streamapp.runners.worker.leftovers import with_records
from streamapp.topology.plan import Plan

__all__ = ["check_all_offsets", "check_offsets"]


def check_all_offsets(
    plan: Plan,
    admin: LastingAdmin,
    counts: Mapping[str, int],
    timeout: float,
    committed: Mapping[TopicPartition, tuple[int, str]],
) -> dict[TopicPartition, int]:
    """Does the work of `check_offsets`, and also raises `TopologyError` for tables with rows of lost offsets.

    ``committed`` has all inputs. The group may have lost the offsets of some topics, and other offsets note these
    topics.
    """
    outside = check_offsets(plan, admin, counts, timeout, committed)
    topics = {tp.topic for tp in committed}
    if _with_rows(plan, admin, counts, lost_topics(plan, topics, committed)) is not None:
        still = lost_topics(plan, topics, find_committed(plan.config, committed, timeout))
        if (found := _with_rows(plan, admin, counts, still)) is not None:
            raise lost_rows(plan, *found, still)
    return outside


def check_offsets(
    plan: Plan,
    admin: LastingAdmin,
    counts: Mapping[str, int],
    timeout: float,
    committed: Mapping[TopicPartition, tuple[int, str]],
    harmless: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Raises `TopologyError` if another tool has set some of these offsets, and tables that they feed have rows.

    Otherwise returns the offsets that another tool has set. ``harmless`` are offsets that an earlier call has returned:
    the first rows came after them. ``committed`` has offsets (negative: none) with their metadata. ``counts`` has the
    partition counts of the topics that exist. Brokers are only asked if another tool has set offsets. Raises
    `BrokerError` if they do not answer within ``timeout`` seconds.
    """
    outside = offsets_from_outside(committed)
    doubtful = {tp: offset for tp, offset in outside.items() if (harmless or {}).get(tp) != offset}
    if _with_rows(plan, admin, counts, {tp.topic for tp in doubtful}) is None:
        return outside
    # Other workers may have begun meanwhile: the first one commits such offsets anew, and later come the first rows.
    still = offsets_from_outside(find_committed(plan.config, doubtful, timeout))
    if (found := _with_rows(plan, admin, counts, {tp.topic for tp in still})) is not None:
        raise rows_of_other_offsets(plan.application_id, found[1], still)
    return {tp: offset for tp, offset in outside.items() if tp in still or tp not in doubtful}


def _with_rows(
    plan: Plan, admin: LastingAdmin, counts: Mapping[str, int], topics: Collection[str]
) -> tuple[TopicPartition, str] | None:
    """A changelog partition that has rows, and its store, if records of these topics feed the store's table."""
    changelogs = fed_changelogs(plan, topics, counts)
    found = next(with_records(plan.config, admin, dict.fromkeys(changelogs, 0)), None)
    return None if found is None else (found, changelogs[found])
