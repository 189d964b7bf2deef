"""The example of event sourcing on the page about events, with any commands, facts that come twice, and gaps."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamapp import StreamsBuilder, TopologyTestDriver

from .test_examples import ROOT, blocks

PAGE = ROOT / "docs" / "events.md"


@pytest.fixture(scope="module")
def page() -> Any:
    module = ModuleType("example_of_event_sourcing")
    sys.modules[module.__name__] = module
    for block in blocks(Path(PAGE)):
        exec(compile(block.code, str(PAGE), "exec"), vars(module))
    yield module
    del sys.modules[module.__name__]


steps = st.tuples(
    st.sampled_from("ab"), st.sampled_from(["paid in", "paid out"]), st.integers(1, 9), st.integers(0, 2)
)


@settings(max_examples=30)
@given(st.lists(steps, max_size=12), st.randoms())
def test_an_aggregate_is_its_facts_at_each_version(page: Any, steps: Any, random: Any) -> None:
    builder = StreamsBuilder()
    page.describe(builder)
    with TopologyTestDriver(builder.build()) as driver:
        asked = driver.create_input_topic("commands", page.text, page.commands)
        versions, held = {"a": [page.Account()], "b": [page.Account()]}, 0
        for id, kind, cents, behind in steps:
            before = versions[id][-1]
            stale = behind > 0 and before.version >= behind
            asked.pipe_input(id, page.Command(kind, cents, before.version - (behind if stale else 0)))
            after = driver.store("current").get(id)
            if stale or (kind == "paid out" and cents > before.cents):
                held += 1
                assert (after or page.Account()) == before
            else:
                versions[id].append(after)
                assert after.version == before.version + 1
                assert after.cents >= 0
        facts = driver.create_output_topic("decisions", page.text, page.numbered).read_key_values()
        assert len(driver.create_output_topic("refusals", page.text, page.commands).read_values()) == held
    for id, accounts in versions.items():
        own = [fact for key, fact in facts if key == id]
        assert page.rebuild(id, own) == accounts[-1]
        for account in accounts:
            assert page.rebuild(id, own, version=account.version) == account
        twice = [fact for fact in own for _ in range(random.randint(1, 2))]
        assert page.rebuild(id, twice) == accounts[-1]
        if len(own) > 1:
            with pytest.raises(ValueError, match=f"{id} has no fact"):
                page.rebuild(id, own[: -1 - random.randrange(len(own) - 1) - 1] + own[-1:])
