"""A consumer as a process: for the tests that kill it.

    python -m tests.consumer.consuming_process BOOTSTRAP GROUP GUARANTEE OUT

OUT is a file that gets a line for each record, or a database that gets a row, or the topic that follows "topic=".
Prints the account at the end.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import time
from typing import Any

from streamapp import Retry, StreamsConfig, StringSerde
from streamapp.consumer import (
    Batch,
    ConsumerRecord,
    KafkaOutput,
    OffsetSink,
    OutputTransaction,
    PostgresOffsets,
    SqliteOffsets,
    SyncReliableConsumer,
)
from streamapp.on_error import Backoff


def sink_at(address: str) -> OffsetSink:
    return PostgresOffsets(address) if "host=" in address else SqliteOffsets(address)


def main(bootstrap: str, group: str, guarantee: str, out: str, mode: str = "") -> None:
    def to_file(record: ConsumerRecord[str, str]) -> None:
        with open(out, "a", buffering=1) as file:
            file.write(f"{record.key} {record.value}\n")
        time.sleep(0.002)

    def to_database(given: Any, connection: Any) -> None:
        mark = "%s" if "host=" in out else "?"
        for record in given if mode == "batch" else [given]:
            connection.execute(
                f"INSERT INTO handled (key, value) VALUES ({mark}, {mark})", (record.key, int(record.value))
            )

    topic = out.removeprefix("topic=")

    def to_topic(record: ConsumerRecord[str, str], transaction: OutputTransaction[str, str]) -> None:
        transaction.send(topic, key=record.key, value=record.value)
        time.sleep(0.002)

    settings: dict[str, Any] = {"commit_interval_ms": 100, "parallelism": 4, "guarantee": guarantee}
    handler = to_topic if topic != out else to_database if guarantee == "exactly_once" else to_file
    config = StreamsConfig(group, transaction_timeout_ms=3_000)
    if topic != out:
        settings["output"] = KafkaOutput(key_serde=StringSerde(), value_serde=StringSerde())
        if mode == "static":
            config = config.replace(group_instance_id="one")
    elif guarantee == "exactly_once":
        settings["offsets"] = sink_at(out)
        settings["on_error"] = Retry.by_key(times=None, backoff=Backoff(50, jitter=0), then="fail")
        if mode == "batch":
            settings["batch"] = Batch(records=20)
    consumer = SyncReliableConsumer(
        group,
        f"{group}-in",
        handler,
        config=config,
        bootstrap_servers=bootstrap,
        key_serde=StringSerde(),
        value_serde=StringSerde(),
        client_properties={"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"},
        **settings,
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    with consumer:
        print("open", flush=True)
        while not consumer.status.state.startswith(("stop", "fail")):
            time.sleep(0.1)
    print(consumer.metrics, flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except sqlite3.Error as exc:
        sys.exit(str(exc))
