"""SA7xx: open transactions, for which readers of committed records wait."""

from __future__ import annotations

import time

from streamapp.operations.doctor.registry import Found, check
from streamapp.operations.doctor.survey import Survey
from streamapp.records import TopicPartition

_LONG_MS = 60_000
"""The longest transaction of a group without known settings; an application has `transaction_timeout_ms`."""
_SETTLE_SECONDS = 3.0
"""The time for brokers to write the markers of transactions that have just ended."""


@check(
    "SA701",
    "a transaction is open for a long time",
    "stalls",
    reason="Readers of committed records wait at the first record of an open transaction until the transaction ends. "
    "Its producer hangs, is dead, or has a long transaction.timeout.ms. The doctor reports a "
    "transaction that is open for longer than transaction_timeout_ms of the application (with --group: 60 s).",
    remedy="Start the producer again, because its start ends the transaction. Or wait for the transaction's time-out, "
    "which kafka-transactions --bootstrap-server ... describe --transactional-id ID shows.",
    page="https://kafka.apache.org/documentation/#producerconfigs_transaction.timeout.ms",
)
def long_transaction(survey: Survey) -> Found:
    ours = {
        TopicPartition(topic.name, each.number)
        for topic in survey.topics.values()
        for each in topic.partitions
    }
    long = _LONG_MS if survey.config is None else survey.config.transaction_timeout_ms
    for each in survey.transactions or ():
        age = survey.now_ms - each.began_ms
        held = sorted(set(each.partitions) & ours)
        if held and age > long:
            yield (
                each.transactional_id,
                f"for {age / 1000:,.0f} s, time-out {each.timeout_ms / 1000:g} s; holds {held[0]}",
            )


@check(
    "SA702",
    "a transaction hangs for ever",
    "stalls",
    reason="Records or committed offsets of a transaction are in the log, but no coordinator knows the transaction, so "
    "it never ends (KIP-664, KIP-890). Readers of committed records read no record behind its first record. If its "
    "offsets are those of a group, the members of the group cannot read their committed offsets, and do not start.",
    remedy="Run kafka-transactions --bootstrap-server ... abort --topic TOPIC --partition N --start-offset "
    "OFFSET, with the values of the finding. Readers then pass over these records or offsets. If the topic is "
    "__consumer_offsets, the group may process some records once more.",
    page="https://cwiki.apache.org/confluence/spaces/KAFKA/pages/158873417/KIP-664+Provide+tooling+to+detect+and+abort+hanging+transactions",
)
def hanging_transaction(survey: Survey) -> Found:
    if survey.transactions is None:
        return
    known = {tp for each in survey.transactions for tp in each.partitions}
    held = _held(survey, dict(survey.stable_ends)).keys() - known
    if not held:
        return
    time.sleep(_SETTLE_SECONDS)
    before = {tp: survey.stable_ends[tp] for tp in held}
    del survey.stable_ends, survey.transactions  # the next use asks the brokers again
    still = {
        tp: offset
        for tp, offset in _held(survey, dict(survey.stable_ends)).items()
        if before.get(tp) == offset
    }
    if survey.transactions is None:
        return
    known = {tp for each in survey.transactions for tp in each.partitions}
    if survey.hides_transactions:
        # Brokers list only transactions that this client may describe, so these may be as alive as any.
        survey.unseen += [
            f"the transaction that holds {tp} at offset {still[tp]}: it hangs, or this client has no DESCRIBE on its "
            "transactional id. kafka-transactions --bootstrap-server ... find-hanging, as a super user, tells"
            for tp in sorted(still.keys() - known)
        ]
        return
    for tp in sorted(still.keys() - known):
        yield str(tp), f"abort --topic {tp.topic} --partition {tp.partition} --start-offset {still[tp]}"


def _held(survey: Survey, stable: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Partitions where readers of committed records wait for an open transaction, each with the offset where they
    wait."""
    ends = survey.ends(stable)
    return {tp: offset for tp, offset in stable.items() if offset < ends[tp]}
