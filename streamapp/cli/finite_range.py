"""Numbers on the command line."""

from __future__ import annotations

import math

import click

__all__ = ["FiniteRange"]


class FiniteRange(click.FloatRange):
    """A range of numbers. The class of click lets ``nan`` pass, and ``inf`` in a range without a maximum."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number
