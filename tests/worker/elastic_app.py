"""The counting application with any setting of `StreamsConfig`, as JSON in the environment."""

from __future__ import annotations

import json
import os

from streamapp.app import App
from streamapp.config import StreamsConfig

from .counting_app import counting

if "APP_ID" in os.environ:
    env = os.environ
    config = StreamsConfig(
        env["APP_ID"],
        bootstrap_servers=env["BOOTSTRAP"],
        **{"commit_interval_ms": 200, "session_timeout_ms": 6_000, **json.loads(env.get("CONFIG", "{}"))},
    )
    topology = counting(env["SOURCE"], env["SINK"], persistent=env.get("STORE", "rocksdb") == "rocksdb")
    app = App(
        env["APP_ID"], topology=topology, config=config, datadir=env["DATADIR"], web_port=int(env["WEB_PORT"])
    )
