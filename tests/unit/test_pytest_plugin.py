"""The fixtures that streamapp brings to pytest, as a user's project sees them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamapp import StringSerde

pytest_plugins = ["pytester"]
PAGE = Path(__file__).parents[2] / "docs/operators/testing.md"


def test_the_example_of_the_documentation_runs_and_can_fail(pytester: pytest.Pytester) -> None:
    section = PAGE.read_text().split("## With pytest")[1]
    example = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    pytester.makepyfile(test_right=example, test_wrong=example.replace("str.upper", "str.lower"))
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *('k', 'hello') == ('k', 'HELLO')"])


def test_several_drivers_close_after_the_test(streams_driver) -> None:
    text = StringSerde()

    def describe(builder) -> None:
        builder.stream("in", key_serde=text, value_serde=text).to("out")

    first, second = streams_driver(describe), streams_driver(describe, initial_wall_clock_ms=5)
    first.create_input_topic("in", text, text).pipe_input("k", "v")
    assert first.create_output_topic("out", text, text).read_key_value() == ("k", "v")
    assert (first.wall_clock_ms(), second.wall_clock_ms()) == (0, 5)
