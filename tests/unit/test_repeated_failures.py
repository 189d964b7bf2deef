"""A work that fails again and again: the first failure has a line, later ones at growing intervals, and so has the end."""

from __future__ import annotations

import logging

import pytest

from streamapp._base.repeated_failures import RepeatedFailures


def test_an_hour_of_failures_has_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    failures = RepeatedFailures(logging.getLogger("relay"), "relay orders", clock=lambda: now)
    failures.over()
    assert caplog.messages == []
    times = []
    while now < 3_600:
        before = len(caplog.messages)
        failures.failed("the database does not answer")
        if len(caplog.messages) > before:
            times.append(now)
        now += 0.5
    assert times == [0, 10, 30, 70, 150, 310, 630, 1_230, 1_830, 2_430, 3_030]
    assert caplog.messages[:2] == [
        "relay orders: the database does not answer; it tries again",
        "relay orders: the database does not answer; it tries again (21 failures so far)",
    ]
    caplog.clear()
    failures.over()
    failures.over()
    failures.failed("the database does not answer")
    assert caplog.messages == [
        "relay orders works again, after 7,200 failures",
        "relay orders: the database does not answer; it tries again",
    ]


def test_another_reason_has_a_line_at_once_but_no_changing_number_fills_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = RepeatedFailures(logging.getLogger("relay"), "relay orders", clock=lambda: 0.0)
    for reason in ("away", "away", "starting", "away", *(f"port {port}" for port in range(100))):
        failures.failed(reason)
    assert len(caplog.messages) == 5
