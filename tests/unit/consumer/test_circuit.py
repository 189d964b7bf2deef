"""The circuit breaker of a consumer as a table of cases and as properties, without clocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamapp import ConfigError, Retry
from streamapp.consumer import Batch, CircuitBreaker
from streamapp.consumer.circuit import Circuit
from streamapp.on_error import Backoff

from .test_dispatcher import BACKOFF, SOURCES, _Run, options, records

DOWN = ConnectionError("down")
WAIT = Backoff(1_000, jitter=0)


def states(breaker: CircuitBreaker, calls: str) -> str:
    """The state after each call: c(losed), o(pen) or h(alf-open). A call is F(ailed), S(ucceeded), or f and s if it is
    a trial call. A dot lets the wait of the back-off pass."""
    circuit, now, found = Circuit("shop", breaker), 0.0, ""
    for call in calls:
        if call == ".":
            now = max(now, circuit.due)
        else:
            circuit.called(DOWN if call in "Ff" else None, WAIT, now, trial=call in "fs")
        found += "c" if circuit.error is None else "o" if now < circuit.due else "h"
    return found


@pytest.mark.parametrize(
    ("breaker", "calls", "expected"),
    [
        (CircuitBreaker(), "F", "c"),  # one failure opens nothing
        (CircuitBreaker(), "FFFFF", "cccco"),
        (CircuitBreaker(), "SFSFSF", "ccccco"),  # 3 of 6
        (CircuitBreaker(), "SSSSSSFFFFFF", "ccccccccccco"),  # 6 of 12
        (CircuitBreaker(), "SSSSFFFF", "ccccccco"),
        (CircuitBreaker(minimum_calls=1), "F", "o"),
        (CircuitBreaker(minimum_calls=3, window=3), "FFS", "cco"),  # the success makes the calls enough
        (CircuitBreaker(window=4, minimum_calls=4), "SSSSFF", "ccccco"),  # old calls leave the window
        (CircuitBreaker(failure_rate=100, window=3, minimum_calls=3), "FFSFFF", "ccccco"),
        (CircuitBreaker(minimum_calls=1), "F.s", "ohc"),
        (CircuitBreaker(minimum_calls=1), "F.f.s", "ohohc"),
        (
            CircuitBreaker(minimum_calls=1),
            "FSs.SF",
            "ooohhh",
        ),  # calls from before it opened, and late trial calls
        (CircuitBreaker(minimum_calls=1, half_open_calls=3), "F.ssf", "ohhhc"),  # a third fails
        (CircuitBreaker(minimum_calls=1, half_open_calls=3), "F.fsf", "ohhho"),
        (CircuitBreaker(minimum_calls=1, half_open_calls=3), "F.ff", "ohho"),  # no third call is needed
        (CircuitBreaker(minimum_calls=2), "FF.sF", "cohcc"),  # counts anew after it has closed
    ],
)
def test_the_state_after_each_call(breaker: CircuitBreaker, calls: str, expected: str) -> None:
    assert states(breaker, calls) == expected


breakers = st.builds(
    lambda rate, minimum, more, trials: CircuitBreaker(
        failure_rate=rate, minimum_calls=minimum, window=minimum + more, half_open_calls=trials
    ),
    st.floats(1, 100),
    st.integers(1, 8),
    st.integers(0, 8),
    st.integers(1, 4),
)


@given(breakers, st.lists(st.booleans(), max_size=60))
def test_it_opens_at_the_first_window_over_the_failure_rate(
    breaker: CircuitBreaker, failed: list[bool]
) -> None:
    circuit = Circuit("shop", breaker)
    for count, each in enumerate(failed, 1):
        circuit.called(DOWN if each else None, WAIT, 0.0, trial=False)
        last = failed[max(0, count - breaker.window) : count]
        over = len(last) >= breaker.minimum_calls and sum(last) * 100 >= breaker.failure_rate * len(last)
        assert (circuit.error is not None) == over
        assert (circuit.since is not None) == over
        if over:
            return


@given(breakers, st.lists(st.booleans(), min_size=1, max_size=30))
def test_each_round_of_trial_calls_closes_it_or_makes_it_wait_longer(
    breaker: CircuitBreaker, failed: list[bool]
) -> None:
    circuit, now, opened = Circuit("shop", breaker), 0.0, 1
    while circuit.error is None:
        circuit.called(DOWN, WAIT, now, trial=False)
    trials: list[bool] = []
    for each in failed:
        assert not circuit.allows_trial(now, 0) or now >= circuit.due
        now = max(now, circuit.due)
        begun = sum(circuit.allows_trial(now, running) for running in range(20))
        assert begun == breaker.half_open_calls - len(trials)
        circuit.called(DOWN if each else None, WAIT, now, trial=True)
        trials.append(each)
        if sum(trials) * 100 >= breaker.failure_rate * breaker.half_open_calls:
            opened += 1
            trials.clear()
            assert circuit.due == now + WAIT.delay_ms(opened) / 1000
        elif len(trials) == breaker.half_open_calls:
            assert (circuit.error, circuit.since) == (None, None)
            return
        assert circuit.error is not None


@given(breakers, st.lists(st.booleans(), max_size=40))
def test_calls_without_failures_never_open_it(breaker: CircuitBreaker, trial: list[bool]) -> None:
    circuit = Circuit("shop", breaker)
    for each in trial:
        circuit.called(None, WAIT, 0.0, trial=each)
        assert circuit.error is None


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"failure_rate": 0}, "failure_rate of CircuitBreaker is above 0 and at most 100 percent, not 0"),
        ({"failure_rate": float("nan")}, "failure_rate"),
        ({"failure_rate": True}, "failure_rate"),
        ({"window": 0}, "window of CircuitBreaker"),
        ({"half_open_calls": 1.5}, "half_open_calls of CircuitBreaker"),
        ({"minimum_calls": 30}, "minimum_calls=30 of CircuitBreaker is more than its window=20"),
    ],
)
def test_wrong_numbers_are_refused(given: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        CircuitBreaker(**given)


def test_a_circuit_breaker_needs_a_retry() -> None:
    with pytest.raises(ConfigError, match="circuit_breaker goes with a Retry as on_error"):
        options(circuit_breaker=CircuitBreaker(), on_error="dead_letter")
    with pytest.raises(ConfigError, match="circuit_breaker is a CircuitBreaker, not 5"):
        options(circuit_breaker=5, on_error=Retry.by_key())


def test_one_failure_among_parallel_calls_stops_only_its_key() -> None:
    """The first failure stopped all keys."""
    run = _Run(on_error=Retry.by_key(times=1, backoff=BACKOFF), parallelism=16)
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, *(b"%d" % (number % 8) for number in range(16))))
    first, *others = run.start()
    run.end(first, DOWN)
    assert run.dispatcher.circuit.error is None
    for unit in others:
        run.end(unit)
    run.all()
    assert (run.metrics.done, run.metrics.waiting) == (
        14,
        2,
    )  # the failed record, and the next one of its key
    with run.dispatcher.changed:
        assert run.dispatcher.next_time() == BACKOFF.delay_ms(1) / 1000
    run.now += BACKOFF.delay_ms(1) / 1000
    run.all()
    run.all()
    assert (run.metrics.done, run.metrics.dead) == (16, 0)


def test_records_behind_a_record_that_waits_for_a_service_are_never_turned_away() -> None:
    """``when_full`` is for records behind an error."""
    retry = Retry.by_key(times=1, backoff=BACKOFF, max_records=1, when_full="skip")
    run = _Run(on_error=retry)
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a", b"a"))
    run.all(DOWN)
    run.dispatcher.take_in(SOURCES[0], records(2, b"a", b"a"))
    run.all()
    assert (run.metrics.skipped, run.metrics.parked, run.metrics.waiting) == (0, 0, 4)
    run.now += 10
    for _ in range(4):
        run.all()
    assert run.metrics.done == 4


def test_a_batch_that_waits_for_a_service_does_not_wait_for_more_records() -> None:
    """The batch waited until ``linger_ms`` was over, which may be much later than the back-off."""
    run = _Run(on_error=Retry.by_key(backoff=BACKOFF), batch=Batch(records=4, linger_ms=60_000))
    run.dispatcher.open(SOURCES[0], 0)
    run.dispatcher.take_in(SOURCES[0], records(0, b"a"))
    run.all()  # batches have up to two records from now on
    run.dispatcher.take_in(SOURCES[0], records(1, b"a"))
    run.now += 60
    run.all(DOWN)
    assert (run.metrics.done, run.metrics.waiting, run.dispatcher.circuit.error) == (1, 1, None)
    run.now += 10
    run.all()
    assert run.metrics.done == 2
