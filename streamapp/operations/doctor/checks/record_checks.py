"""SA3xx: the last records in each partition of the inputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import itemgetter
from statistics import median

from streamapp._base.counted import counted
from streamapp.operations.doctor.registry import Found, check
from streamapp.operations.doctor.survey import Survey

_ENOUGH = 200
"""The smallest number of records from which a share of keys or partitions says something."""
_SKEW = 4
"""The largest number of records of a partition without a finding, as a multiple of the median over the partitions."""
_HOT = 0.3
"""The largest share of the records that a key may have without a finding."""
_AHEAD_MS = 60_000


@check(
    "SA301",
    "one partition has far more records than the others",
    "starves",
    reason="One task processes all records of a partition, and runs on one worker. So the largest partition takes "
    "longest, and more workers do not help.",
    remedy="Use a key with more values, or the partitioner of Kafka's Java clients (murmur2). SA302 finds single "
    "hot keys.",
    page="performance.md",
)
def skew(survey: Survey) -> Found:
    for topic in survey.of_role("input"):
        sizes = {
            p.partition.partition: p.end - p.start
            for p in survey.positions
            if p.partition.topic == topic.name
        }
        usual = median(sizes.values()) if len(sizes) > 1 else 0
        largest = max(sizes, key=lambda number: sizes[number], default=0)
        if len(sizes) > 1 and sizes[largest] >= _ENOUGH and sizes[largest] > _SKEW * max(usual, 1):
            yield (
                topic.name,
                f"partition {largest} has {counted(sizes[largest], 'record')}, the median is {usual:,.0f}",
            )


@check(
    "SA302",
    "one key has a large share of the records",
    "starves",
    reason="One task processes all records of a key, in order. A hot key keeps the task busy, and the other "
    "keys of its partition wait.",
    remedy="Aggregate in two steps: first by the key and a random number, then by the key. Or process the key's "
    "records in a branch of their own, with split().",
    page="performance.md",
)
def hot_key(survey: Survey) -> Found:
    for topic in survey.of_role("input"):
        if topic.name in survey.global_topics:
            continue
        samples = {
            tp: each.keys for tp, each in survey.records.items() if tp.topic == topic.name and each.keys
        }
        total, partitions = sum(map(len, samples.values())), len(topic.partitions)
        if total < _ENOUGH or partitions < 2:
            continue
        # Each partition has about the same number of records in the sample, but a hot key makes its partition long.
        sizes = {p.partition: p.end - p.start for p in survey.positions if p.partition in samples}
        whole = sum(sizes.values())
        if not whole:  # all records came after the look at the positions
            continue
        shares: defaultdict[bytes, float] = defaultdict(float)
        for tp, keys in samples.items():
            weight = sizes.get(tp, 0) / len(keys) / whole
            for key, count in Counter(key for key in keys if key is not None).items():
                shares[key] += weight * count
        key, share = max(shares.items(), key=itemgetter(1), default=(b"", 0.0))
        if share > max(_HOT, 1.5 / partitions):
            yield (
                topic.name,
                f"about {share:.0%} of its records have the key {key[:40]!r}, by the last {counted(total, 'record')}",
            )


@check(
    "SA303",
    "timestamps lie in the future",
    "loses",
    reason="Windows close by stream time, the largest timestamp that has reached their operator. A producer whose "
    "clock is ahead closes windows too early. The operator then drops the records of other producers as late. If the "
    "changelog of a table refuses such a timestamp, the worker ends.",
    remedy="Set the clock of the producer (NTP). Or set message.timestamp.after.max.ms of the topic, so that "
    "brokers refuse such records.",
    page="operators/windows.md",
)
def clock_ahead(survey: Survey) -> Found:
    now = survey.now_ms
    for tp, each in sorted(survey.records.items()):
        ahead = [at - now for at in each.timestamps if at - now > _AHEAD_MS]
        if ahead:
            last = counted(len(each.timestamps), "record")
            yield str(tp), f"{len(ahead)} of the last {last}, by up to {max(ahead) / 1000:,.0f} s"
