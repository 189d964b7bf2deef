from collections.abc import Iterator

import pytest

from .scripted import ScriptedRegistry


@pytest.fixture
def server() -> Iterator[ScriptedRegistry]:
    registry = ScriptedRegistry()
    yield registry
    registry.stop()
