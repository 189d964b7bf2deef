"""Metadata of committed offsets, as confluent-kafka hands it out: without its end."""

from __future__ import annotations

from typing import Any

import pytest

from streamapp.broker.consumer import committed_metadata
from streamapp.engine.metadata import decode_metadata, encode_metadata


class Answer:
    """A partition whose metadata is followed by other bytes in memory."""

    def __init__(self, metadata: bytes) -> None:
        self._metadata = metadata

    @property
    def metadata(self) -> str:
        return self._metadata.decode()


@pytest.mark.parametrize("behind", [b"", b"\xff\xfe", b"!", b"A!", b"\x07abc\xff"])
@pytest.mark.parametrize("remembered", [{"store": 7}, {"a": 1, "bb": 2}, {"abc": 3}])
def test_bytes_behind_the_end_do_no_harm(behind: bytes, remembered: dict[str, int]) -> None:
    answer: Any = Answer(encode_metadata(5, remembered).encode() + behind)
    assert decode_metadata(committed_metadata(answer)) == (5, remembered)
