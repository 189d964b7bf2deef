"""The metadata of committed offsets."""

from __future__ import annotations

import pytest

from streamapp.engine.metadata import BACKFILL, decode_metadata, encode_metadata
from streamapp.errors import StreamsError


@pytest.mark.parametrize("text", ["", "garbage", "e30=", encode_metadata(5, {"a": 1})[:-6]])
def test_what_others_wrote_counts_as_empty(text: str) -> None:
    assert decode_metadata(text) == (-1, {})


def test_an_unfinished_backfill_is_refused_and_says_how_to_go_on() -> None:
    with pytest.raises(StreamsError, match="has not come to its end.*Repeat the same `streamapp backfill`"):
        decode_metadata(BACKFILL + "{}")
