from __future__ import annotations

from collections.abc import Iterable

import pytest

from streamapp.broker import LocalKafka

from .feeding import Feed


@pytest.fixture
def feed(kafka: LocalKafka) -> Feed:
    return Feed(kafka.bootstrap_servers)


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if "kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.broker)
