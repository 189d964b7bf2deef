"""Applications of these tests, which get their name, folder and port by variables of a prefix."""

from __future__ import annotations

import os
from collections.abc import Callable

from streamapp import App, StreamsBuilder, StreamsConfig

__all__ = ["application"]


def application(prefix: str, describe: Callable[[StreamsBuilder], None]) -> App:
    name = os.environ[f"{prefix}_NAME"]
    return App(
        name,
        topology=describe,
        config=StreamsConfig(name, commit_interval_ms=200),
        datadir=os.environ[f"{prefix}_DATADIR"],
        web_port=int(os.environ.get(f"{prefix}_WEB_PORT", "6066")),
    )
