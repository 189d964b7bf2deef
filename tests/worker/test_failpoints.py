from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamapp._base import failpoints
from streamapp.errors import ConfigError


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def test_acts_once_at_the_time_asked_for() -> None:
    failpoints.arm("state-flushed:raise:2")
    failpoints.hit("offsets-committed")
    failpoints.hit("state-flushed")
    with pytest.raises(failpoints.FailpointError, match="state-flushed"):
        failpoints.hit("state-flushed")
    failpoints.hit("state-flushed")


@pytest.mark.parametrize(
    "setting", ["nowhere:kill", "state-flushed", "state-flushed:explode", "state-flushed:raise:x"]
)
def test_a_setting_that_cannot_be_meant_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="STREAMAPP_FAILPOINT"):
        failpoints.arm(setting)
