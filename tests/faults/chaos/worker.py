"""A worker process of the chaos runs: the topology and the agents. ``STREAMAPP_CHAOS`` is the id of the application."""

from __future__ import annotations

import os

from streamapp import App, StreamsConfig

from ..feed import PARTITIONS
from .agents import add_agents
from .application import describe

__all__ = ["app"]

_ID = os.environ["STREAMAPP_CHAOS"]

app = App(
    _ID,
    topology=lambda builder: describe(builder, _ID),
    config=StreamsConfig(
        _ID,
        bootstrap_servers=os.environ["BOOTSTRAP"],
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=200,
        session_timeout_ms=6_000,
        statestore_cache_max_bytes=0,
        processing_exception_handler="continue",
        deserialization_exception_handler="continue",
        production_exception_handler="continue",
        # Without this setting, an inner join may keep the dead row of an overtaken answer, as in Kafka Streams
        # (docs/operators/joins.md).
        foreign_key_join_recheck=True,
        dead_letter_queue_topic=f"{_ID}-dead",
        # A quota belongs to the name of a client. By default, the name has the id of the worker's process.
        client_properties={"client.id": _ID},
    ),
    datadir=os.environ["DATADIR"],
    web_port=int(os.environ["WEB_PORT"]),
    topic_partitions=PARTITIONS,
)
add_agents(app, _ID)
