"""Times and offsets on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import click

from streamapp.records import TopicPartition

__all__ = ["CUT", "PAST_CUT", "TIME", "Cut"]

Cut = int | Mapping[TopicPartition, int] | None
"""Milliseconds since 1970, or the offset of each partition, or None for now."""

_OFFSETS = re.compile(r"([A-Za-z0-9._-]+):(\d+)=(\d+)")


_NUMBER = re.compile("[0-9]+")
_LEAST_DIGITS = 12
"""The digits of milliseconds since 1970, from the year 1973 on. A year, a date and seconds have fewer."""


class _Milliseconds(click.ParamType):
    def _milliseconds(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value != "0" and len(value) < _LEAST_DIGITS:
            meant = datetime.fromtimestamp(int(value) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
            self.fail(
                f"{value} milliseconds after the beginning of 1970 is {meant}. Give this time in this form if you mean "
                f"it; otherwise give a date such as 2020-01-01, or milliseconds with {_LEAST_DIGITS} digits or more",
                param,
                ctx,
            )
        return int(value)


class _CutType(_Milliseconds):
    """A date or time, milliseconds, offsets as ``topic:partition=offset,...``, or ``now``, if that makes sense."""

    def __init__(self, now: bool) -> None:
        self.now = now
        self.name = "now|time|offsets" if now else "time|offsets"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Cut:
        if value == "now" and self.now:
            return None
        if _NUMBER.fullmatch(value):
            return self._milliseconds(value, param, ctx)
        found = [_OFFSETS.fullmatch(part.strip()) for part in value.split(",")]
        if all(found):
            return {TopicPartition(m[1], int(m[2])): int(m[3]) for m in found if m}
        time_ms = _time_ms(value)
        if time_ms is None:
            self.fail(
                f"{value!r} is not a point in history: give {'now, ' if self.now else ''}a time such as 2013-12-01 "
                "or 2013-12-01T00:00-05:00 (default: UTC), milliseconds since 1970, or offsets such as "
                "flights:0=1200,flights:1=900",
                param,
                ctx,
            )
        return time_ms


class _TimeType(_Milliseconds):
    """A date or time, or milliseconds since 1970; the value is an int of milliseconds."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if _NUMBER.fullmatch(value):
            return self._milliseconds(value, param, ctx)
        time_ms = _time_ms(value)
        if time_ms is None:
            self.fail(
                f"{value!r} is not a time: give a time such as 2013-12-01 or 2013-12-01T00:00-05:00 "
                "(default: UTC), or milliseconds since 1970",
                param,
                ctx,
            )
        return time_ms


def _time_ms(value: str) -> int | None:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


CUT = _CutType(now=True)
PAST_CUT = _CutType(now=False)
TIME = _TimeType()
