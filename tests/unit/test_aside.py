"""Calls that may wait for a schema registry, beside an event loop."""

from __future__ import annotations

import asyncio

import pytest

from streamapp._base.aside import aside


async def test_a_call_that_raises_stop_iteration_ends() -> None:
    """asyncio's futures refuse this exception, so the caller waited for ever."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(aside(lambda: next(iter(())), "test"), 10)
