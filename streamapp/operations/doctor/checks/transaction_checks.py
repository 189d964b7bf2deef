"""SA7xx: transactions that readers of committed records wait for."""

from __future__ import annotations

import time

from streamapp.operations.doctor.registry import Found, check
from streamapp.operations.doctor.survey import Survey
from streamapp.records import TopicPartition

_LONG_MS = 60_000
"""For a group whose settings are not known; an application has its own `transaction_timeout_ms`."""
_SETTLE_SECONDS = 3.0
"""Brokers write the marker of a commit a moment after the commit."""


@check(
    "SA701",
    "a transaction is open for long",
    "stalls",
    reason="Readers of committed records wait at its first record until the transaction ends. Its producer hangs, is dead, or has a long "
    "transaction.timeout.ms.",
    remedy="Start its producer again, which ends the transaction. Or wait for the time-out that "
    "kafka-transactions --bootstrap-server ... describe --transactional-id ID shows.",
    page="https://kafka.apache.org/documentation/#producerconfigs_transaction.timeout.ms",
)
def long_transaction(survey: Survey) -> Found:
    ours = {
        TopicPartition(topic.name, each.number)
        for topic in survey.topics.values()
        for each in topic.partitions
    }
    long = _LONG_MS if survey.plan is None else survey.plan.config.transaction_timeout_ms
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
    reason="Records of a transaction are in the log, but no coordinator knows the transaction. So nothing ends it (KIP-664, KIP-890).",
    remedy="Run kafka-transactions --bootstrap-server ... abort --topic TOPIC --partition N --start-offset OFFSET with these values.",
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
    del survey.stable_ends, survey.transactions  # looked at anew
    still = {
        tp: offset
        for tp, offset in _held(survey, dict(survey.stable_ends)).items()
        if before.get(tp) == offset
    }
    if survey.transactions is None:
        return
    known = {tp for each in survey.transactions for tp in each.partitions}
    for tp in sorted(still.keys() - known):
        yield str(tp), f"abort --topic {tp.topic} --partition {tp.partition} --start-offset {still[tp]}"


def _held(survey: Survey, stable: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Partitions with records that readers of committed records do not get yet, and where these readers stand."""
    ends = survey.ends(stable)
    return {tp: offset for tp, offset in stable.items() if offset < ends[tp]}
