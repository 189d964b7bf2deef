"""Cases on real workers against a real broker; see `workers` and `meaning`, and ``docs/conformance.md``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamapp.broker import LocalKafka

from .meaning import Comparison, differences
from .outcome import Outcome
from .workers import partitions_of, run_on_workers

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, kafka: LocalKafka) -> dict[str, Outcome]:
    """The outcomes of all cases that were chosen, which are run together."""
    chosen = [item.callspec.params["worker_case"] for item in request.session.items if _is_live(item)]
    return run_on_workers(chosen, kafka.bootstrap_servers)


def _is_live(item: Any) -> bool:
    return "worker_case" in getattr(getattr(item, "callspec", None), "params", {})


def test_case(
    worker_case: dict[str, Any],
    outcomes: dict[str, Outcome],
    record_property: Callable[[str, object], None],
) -> None:
    name = worker_case["name"]
    lines = differences(
        worker_case, outcomes[name], Comparison(worker_case, partitions=partitions_of(worker_case))
    )
    record_property("runner", (name, "workers", not lines))
    if lines:
        pytest.fail("\n".join([f"{name}: {worker_case['about']}", *lines]), pytrace=False)
