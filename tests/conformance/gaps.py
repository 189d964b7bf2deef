"""What does not hold, and why. A gap that holds after all fails the run, so that this list cannot grow stale.

``GAPS[case or family, level]`` is the reason. A family's gap says that some of its cases do not hold at that
level.
"""

from __future__ import annotations

_SLIDING_ZERO = (
    "A time difference of zero is refused when the topology is described; Kafka Streams accepts it and fails "
    "on the first record."
)

GAPS: dict[tuple[str, int], str] = {
    ("sliding_window/difference_zero", 1): _SLIDING_ZERO,
    ("sliding_window/difference_zero", 4): _SLIDING_ZERO,
    ("stream_stream_join/difference_zero", 2): (
        "Kafka Streams cannot show the rows of these stores, as their windows have no length; ours can."
    ),
    (
        "aggregate/plain_store",
        2,
    ): "A plain store has no timestamps; Kafka Streams' adapter shows -1 for each row.",
    (
        "aggregate/lru_store",
        3,
    ): "Not yet: an evicted row leaves a tombstone in the changelog, in Kafka Streams it does not.",
    ("query/versioned", 2): "A KeyQuery on a versioned store fails with a reason; Kafka Streams throws.",
}
