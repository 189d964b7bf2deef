from __future__ import annotations

import pytest

from streamapp.broker import LocalKafka

from .topics import Topics


@pytest.fixture
def topics(kafka: LocalKafka) -> Topics:
    return Topics(kafka.bootstrap_servers)
