"""Records that wait for a retry which the topology does not make any more: its operator, or its `Retry`, is gone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import accumulate

from confluent_kafka import Consumer

from streamapp.broker.bounded_reads import TO_THE_END, read_to_end
from streamapp.broker.consumer_groups import look_at_group
from streamapp.engine.parked import begins_record
from streamapp.errors import BrokerError
from streamapp.operations.offsets.positions import positions
from streamapp.operations.offsets.subject import Subject

__all__ = ["left_retries"]

_STORES = re.compile(r".+-(parked|retry-\d+-waiting)-changelog")
_TOPICS = re.compile(r".+-retry-(\d+|back)")
_SECONDS = 20.0


def left_retries(subject: Subject) -> tuple[dict[str, int], list[str]]:
    """The number of waiting records by topic, without topics in which none waits; and the topics that could not be
    read, with the reasons."""
    assert subject.plan is not None
    prefix = f"{subject.group}-"
    ours = {topic.name for topic in subject.plan.internal_topics} | {*subject.inputs({})}
    ours |= {topic for sub in subject.plan.subtopologies for topic in sub.sink_topics}
    found: dict[str, int] = {}
    problems = []
    for topic in sorted(name for name in subject.topics if name.startswith(prefix) and name not in ours):
        rest = topic.removeprefix(prefix)
        if not _STORES.fullmatch(rest) and not _TOPICS.fullmatch(rest):
            continue
        try:
            count = _waiting(subject, topic)
        except BrokerError as error:
            problems.append(f"the topic {topic}: {error}")
            continue
        if count and not any(
            look_at_group(subject.admin, each).state != "dead" for each in _others(topic, prefix)
        ):
            found[topic] = count
    return found, problems


def _others(topic: str, prefix: str) -> Iterator[str]:
    """The ids of other applications that may own the topic, because their ids begin with this one's."""
    words = topic.removeprefix(prefix).split("-")[:-1]
    yield from accumulate((prefix + words[0], *words[1:]), lambda left, word: f"{left}-{word}")


def _waiting(subject: Subject, topic: str) -> int:
    """The number of records in a retry topic behind the group's position; of a changelog, the records in its rows."""
    changelog = _STORES.fullmatch(topic) is not None
    places = {each.partition: each for each in positions(subject, [topic]) if each.partition.topic == topic}
    starts = {
        tp: each.start if changelog or each.committed is None else max(each.start, each.committed)
        for tp, each in places.items()
    }
    waiting = {tp: start for tp, start in starts.items() if start < places[tp].end}
    rows: Counter[tuple[int | None, bytes | None]] = Counter()
    settings = {
        **subject.client,
        "group.id": "streamapp-doctor",
        **TO_THE_END,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    with closing(Consumer(settings)) as consumer:
        for message in read_to_end(consumer, waiting, _SECONDS):
            place = message.partition(), message.key()
            if changelog:
                rows[place] = int(message.value() is not None and begins_record(message.key() or b""))
            else:
                rows[place] += 1
    return rows.total()
