"""The reference application: New York's flights of 2013. `faust -A agents worker -l info` starts a worker.

Read `agents/topology.py` first; each part of it has a file of its own, and each file of `tables/` holds what they share.
"""

from __future__ import annotations

import os

from agents import late_carriers
from agents.topology import describe
from streamapp import App, StreamsConfig

app = App(
    "flights",
    topology=describe,
    config=StreamsConfig(
        "flights",
        commit_interval_ms=int(os.environ.get("FLIGHTS_COMMIT_INTERVAL_MS", "1000")),
        session_timeout_ms=6_000,
        topology_optimization="all",
    ),
    bootstrap_servers=os.environ.get("STREAMAPP_BOOTSTRAP_SERVERS", "localhost:9092"),
    datadir=os.environ.get("FLIGHTS_DATADIR", "data/worker"),
    web_port=int(os.environ.get("FLIGHTS_WEB_PORT", "6066")),
)
late_carriers.register(app)
