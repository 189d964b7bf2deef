"""Points in the history of topics, as they are named on the command line."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from streamapp.cli import main
from streamapp.cli.times import CUT, PAST_CUT, TIME, Cut
from streamapp.records import TopicPartition


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", None),
        ("1385856000000", 1385856000000),
        ("0", 0),
        ("1970-01-01T00:00:02.020", 2_020),
        ("2013-12-01", 1385856000000),
        ("2013-12-01T00:00", 1385856000000),
        ("2013-12-01T00:00-05:00", 1385874000000),
        ("flights:0=12", {TopicPartition("flights", 0): 12}),
        ("a.b:0=1, a.b:11=2", {TopicPartition("a.b", 0): 1, TopicPartition("a.b", 11): 2}),
    ],
)
def test_what_is_meant(text: str, meant: Cut) -> None:
    assert CUT.convert(text, None, None) == meant


@pytest.mark.parametrize("text", ["yesterday", "flights=3", "flights:0=3,", "2013-13-01", ""])
def test_what_is_not_understood_is_answered_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match="2013-12-01.*flights:0=1200"):
        CUT.convert(text, None, None)


@pytest.mark.parametrize("kind", [CUT, TIME])
@pytest.mark.parametrize("text", ["2020", "20131201", "1385856000"])  # a year, a date, seconds
def test_a_number_too_small_for_milliseconds_is_refused(kind: click.ParamType, text: str) -> None:
    with pytest.raises(click.BadParameter, match=rf"{text} milliseconds .* is 1970-01-.*2020-01-01"):
        kind.convert(text, None, None)


@pytest.mark.parametrize("kind", [CUT, TIME])
def test_digits_that_are_no_number_are_refused(kind: click.ParamType) -> None:
    with pytest.raises(click.BadParameter, match="2013-12-01"):
        kind.convert("²", None, None)


def test_now_is_refused_where_it_would_be_taken_for_nothing_given() -> None:
    assert PAST_CUT.convert("2013-12-01", None, None) == 1385856000000
    with pytest.raises(click.BadParameter, match="give a time such as"):
        PAST_CUT.convert("now", None, None)


@pytest.mark.parametrize(
    "command",
    [
        ["replay", "agents", "x", "--since", "now"],
        ["replay", "agents", "x", "--until", "now"],
        ["reconcile", "t", "--source", "s", "--from", "now"],
        ["reconcile", "t", "--source", "s", "--to", "now"],
    ],
)
def test_commands_that_need_a_time_refuse_now(command: list[str]) -> None:
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "'now' is not a" in refused.output
