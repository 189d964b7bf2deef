"""The place at which an application begins to read after its position is gone, and the records that it leaves out."""

from __future__ import annotations

import logging

import pytest

from streamapp import StreamsConfig, TopicPartition
from streamapp.runners.first_offsets import first_offset

IN = TopicPartition("in", 0)
GONE = "in-0: records 3 to 9 are gone (retention) before they were processed"


@pytest.mark.parametrize(
    ("reset", "end", "begin", "told"),
    [
        ("earliest", 50, 10, GONE),
        ("latest", 50, 50, f"{GONE}. auto_offset_reset is latest, so records 10 to 49 are left out, too"),
        ("latest", 10, 10, GONE),
    ],
)
def test_all_records_that_are_left_out_are_told(
    caplog: pytest.LogCaptureFixture, reset: str, end: int, begin: int, told: str
) -> None:
    config = StreamsConfig("app", auto_offset_reset=reset)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        assert first_offset(config, IN, 3, 10, end) == begin
    assert caplog.messages == [told]


@pytest.mark.parametrize(("reset", "begin"), [("earliest", 10), ("latest", 50)])
def test_a_new_application_leaves_nothing_out(
    caplog: pytest.LogCaptureFixture, reset: str, begin: int
) -> None:
    config = StreamsConfig("app", auto_offset_reset=reset)  # type: ignore[arg-type]
    assert first_offset(config, IN, -1, 10, 50) == begin
    assert first_offset(config, IN, 20, 10, 50) == 20
    assert not caplog.messages
