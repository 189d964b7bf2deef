"""The application of docs/how-to/find-missing-records.md: its lines up to the test driver."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from streamapp import App, StreamsConfig

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "find-missing-records.md"


def topology_of_the_page(prefix: str) -> Any:
    """Its topics have names that begin with ``prefix``."""
    (code,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    lines = code.partition("with TopologyTestDriver")[0]
    names: dict[str, Any] = {}
    exec(re.sub(r'"(orders[a-z-]*)"', rf'"{prefix}-\1"', lines), names)
    return names["builder"].build()


if "APP_ID" in os.environ:
    env = os.environ
    app = App(
        env["APP_ID"],
        topology=topology_of_the_page(env["APP_ID"]),
        config=StreamsConfig(env["APP_ID"], bootstrap_servers=env["BOOTSTRAP"], commit_interval_ms=100),
        datadir=env["DATADIR"],
        web_port=int(env["WEB_PORT"]),
    )
