"""The position to commit, and what is known behind it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp.consumer.done_offsets import MOST_AHEAD, DoneOffsets, decode_done, encode_done
from streamapp.engine.metadata import metadata_of, topic_ids_in

_LIMIT = 4_096
_MOST = 3_500
"""``offset.metadata.max.bytes`` of a broker that nobody has configured."""


@given(st.data())
def test_a_restart_repeats_what_is_not_done_and_nothing_else(data: st.DataObject) -> None:
    """Records with gaps, done in any order; the consumer is replaced at any time, several times."""
    offsets = sorted(data.draw(st.sets(st.integers(0, 300), min_size=1, max_size=60)))
    done: set[int] = set()
    committed: tuple[int, str] | None = None
    for _ in range(data.draw(st.integers(1, 4))):
        position, metadata = committed or (None, "")
        known = decode_done(position, metadata) if position is not None else []
        tracker = DoneOffsets(position, known)
        to_come = [offset for offset in offsets if position is None or offset >= position]
        open: set[int] = set()
        for _ in range(data.draw(st.integers(0, 80))):
            if to_come and (not open or data.draw(st.booleans())):
                offset = to_come.pop(0)
                assert tracker.take(offset) == (offset not in done), "neither repeated nor passed over"
                if offset not in done:
                    open.add(offset)
            elif open:
                offset = data.draw(st.sampled_from(sorted(open)))
                tracker.finish([offset])
                open.discard(offset)
                done.add(offset)
            _check_position(tracker, offsets, done)
        committed = tracker.committed()


def _check_position(tracker: DoneOffsets, offsets: list[int], done: set[int]) -> None:
    committed = tracker.committed()
    if committed is None:
        return
    position, metadata = committed
    assert all(offset in done for offset in offsets if offset < position), (
        "nothing that is not done is passed"
    )
    behind = {offset for offset in decode_done(position, metadata) if offset in offsets}
    assert behind == {offset for offset in done if offset >= position}


@given(st.integers(0, 2**60), st.sets(st.integers(0, MOST_AHEAD - 1), max_size=200))
def test_metadata_gives_back_what_it_was_given(position: int, ahead: set[int]) -> None:
    text = encode_done(position, {position + each for each in ahead})
    assert decode_done(position, text) == sorted(position + each for each in ahead)
    # librdkafka gives metadata without an end, so something else may follow.
    assert decode_done(position, text + "1:x.") == (sorted(position + each for each in ahead) if text else [])


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_metadata_has_room_whatever_is_done(share: float) -> None:
    chosen = random.Random(7)
    done = [offset for offset in range(MOST_AHEAD) if chosen.random() < share] + [MOST_AHEAD - 1]
    text = encode_done(0, done)
    assert len((text + metadata_of("yqIzLm0ZQ1y0dEBdyeMlHw")).encode()) <= _MOST < _LIMIT
    assert decode_done(0, text) == sorted(set(done))


@pytest.mark.parametrize("ahead", [[], [12, 13]])
def test_metadata_names_the_topic_beside_the_records_that_are_done(ahead: list[int]) -> None:
    position, text = DoneOffsets(10, ahead, "yqIzLm0ZQ1y0dEBdyeMlHw").committed() or (0, "")
    assert decode_done(position, text) == decode_done(position, text + "\x7f.1:x.") == ahead
    assert topic_ids_in(text) == topic_ids_in(text + "\x7f.1:x.") == {"yqIzLm0ZQ1y0dEBdyeMlHw"}


@given(st.text(max_size=50))
def test_metadata_of_others_is_passed_over(text: str) -> None:
    assert decode_done(7, text) == []


@given(st.integers(0, 40), st.characters(), st.sets(st.integers(0, 500), min_size=1, max_size=50))
def test_broken_metadata_is_no_error(at: int, other: str, ahead: set[int]) -> None:
    text = encode_done(0, ahead)
    broken = text[: at % len(text)] + other + text[at % len(text) + 1 :]
    decode_done(0, broken)
    assert decode_done(0, text[: at % len(text)]) == []


def test_a_position_without_records_is_kept() -> None:
    assert DoneOffsets(17).committed() == (17, "")
    assert DoneOffsets().committed() is None
    tracker = DoneOffsets(10, [12, 13])
    assert decode_done(10, (tracker.committed() or (0, ""))[1]) == [12, 13]
