"""Texts of exceptions in messages: a record that an exception quotes writes no line of its own into a log."""

from __future__ import annotations

from streamapp import StreamsConfig
from streamapp.engine.judging import said, short

FORGED = ValueError("no flight\x1b[2J\r\n[2026-11-26 23:50:53,122] [1] [CRITICAL] this worker ends")


def test_a_message_has_no_further_line_of_a_log() -> None:
    first, *further = said(FORGED, StreamsConfig("app")).splitlines()
    assert first == "ValueError: no flight\\x1b[2J\\r"
    assert [line[:5] for line in further] == ["    ["]


def test_a_short_message_is_one_line() -> None:
    assert short(FORGED).splitlines() == [short(FORGED)]
    assert "\x1b" not in short(FORGED)


def test_a_message_has_only_the_beginning_of_a_long_text() -> None:
    told = said(ValueError("B" * 300_000), StreamsConfig("app"))
    assert (len(told) < 3_000, told.endswith("... (300,000 characters)")) == (True, True)
