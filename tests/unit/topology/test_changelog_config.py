"""Changelog topics keep what belongs to the state, however old it is."""

from __future__ import annotations

from streamapp.state.kinds import Versioned
from streamapp.state.spec import StoreSpec
from streamapp.topology.planner import changelog_config


def test_no_version_is_compacted_by_the_clock_of_the_broker() -> None:
    config = changelog_config(StoreSpec(name="prices", kind=Versioned(retention_ms=1_000)))
    assert config["cleanup.policy"] == "compact"
    assert config["min.compaction.lag.ms"] == str(2**63 - 1)


def test_what_the_user_sets_wins() -> None:
    chosen = {"min.compaction.lag.ms": "86401000"}
    spec = StoreSpec(name="prices", kind=Versioned(retention_ms=1_000), topic_config=chosen)
    assert changelog_config(spec)["min.compaction.lag.ms"] == "86401000"
