"""The metadata of committed offsets."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp.engine.metadata import BACKFILL, decode_metadata, encode_metadata
from streamapp.errors import StreamsError


@pytest.mark.parametrize("text", ["", "garbage", "e30="])
def test_what_others_wrote_counts_as_empty(text: str) -> None:
    assert decode_metadata(text) == (-1, {})


def test_a_negative_length_of_a_name_is_no_number() -> None:
    """The reader went back, so text that another program wrote could keep it busy for 2,147,483,647 rounds."""
    data = struct.pack(">bqiiq", 2, 5, 3, -12, 7)
    assert decode_metadata(base64.b64encode(data).decode()) == (5, {})


def test_an_unfinished_backfill_is_refused_and_says_how_to_go_on() -> None:
    with pytest.raises(StreamsError, match="has not come to its end.*Repeat the same `streamapp backfill`"):
        decode_metadata(BACKFILL + "{}")


@given(
    st.integers(-1, 2**62),
    st.dictionaries(st.text(max_size=8), st.integers(0, 2**62), max_size=3),
    st.text(max_size=9),
)
def test_what_is_read_behind_the_end_changes_nothing(
    time: int, remembered: dict[str, int], rest: str
) -> None:
    text = encode_metadata(time, remembered)
    assert decode_metadata(text + rest) == (time, remembered)


def test_java_s_metadata_without_numbers() -> None:
    text = base64.b64encode(struct.pack(">bq", 2, 1_700_000_000_000)).decode()
    for rest in ("", "\x7f", "ab", "////AAAA"):
        assert decode_metadata(text + rest) == (1_700_000_000_000, {})
