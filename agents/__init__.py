"""The reference application: New York's flights of 2013. `streamapp worker agents` starts a worker.

Read `agents/topology.py` first. Each part of the topology has a file of its own, and the parts share `tables/`.
"""

from __future__ import annotations

import os

from agents import late_carriers
from agents.topology import DEAD_LETTERS, describe
from streamapp import App, StreamsConfig

app = App(
    "flights",
    topology=describe,
    config=StreamsConfig(
        "flights",
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=1_000,
        session_timeout_ms=6_000,
        dead_letter_queue_topic=DEAD_LETTERS,
    ),
    datadir=os.environ.get("FLIGHTS_DATADIR", "data/worker"),
    web_port=int(os.environ.get("FLIGHTS_WEB_PORT", "6066")),
)
late_carriers.register(app)
