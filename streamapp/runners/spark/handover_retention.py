"""Refuses a backfill whose results Kafka would soon delete: results of history have old timestamps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streamapp.broker.requests import describe_topic_settings
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of
from streamapp.runners.spark.batch_source import Part

__all__ = ["check_retention", "first_times"]

TIMEOUT_SECONDS = 30.0


def first_times(parts: Mapping[TopicPartition, Part]) -> dict[TopicPartition, int]:
    """The timestamp in ms of the first record of each part; parts without records are left out."""
    found = {}
    for tp, part in parts.items():
        with closing(part.open(tp)) as reader:
            while (batch := reader.read()) is not None:
                if batch.timestamps:
                    found[tp] = batch.timestamps[0]
                    break
    return found


def check_retention(config: StreamsConfig, oldest: Mapping[str, int]) -> None:
    """Raises `ConfigError` for topics that do not keep records as old as ``oldest`` (topic -> timestamp in ms).

    Raises `BrokerError` for a topic that Kafka does not have.
    """
    now = int(time.time() * 1000)
    short = {
        topic: retention
        for topic, retention in _retentions(config, list(oldest)).items()
        if oldest[topic] < now - retention
    }
    if not short:
        return
    named = ", ".join(f"{topic} ({timedelta(milliseconds=ms)})" for topic, ms in sorted(short.items()))
    since = datetime.fromtimestamp(min(oldest[topic] for topic in short) / 1000, UTC)
    raise ConfigError(
        f"Kafka would soon delete results: they are from {since:%Y-%m-%d} on, and retention.ms is shorter for "
        f"{named}. Change retention.ms of each topic first, for example: kafka-configs.sh --bootstrap-server "
        f"{config.bootstrap_servers} --alter --entity-type topics --entity-name {min(short)} --add-config "
        "retention.ms=-1"
    )


def _retentions(config: StreamsConfig, topics: list[str]) -> dict[str, int]:
    """``retention.ms`` of the topics that delete records by the age of their timestamps."""
    if not topics:
        return {}
    admin = AdminClient({**client_of(config), "log_level": 0})
    found = {}
    for topic, answer in describe_topic_settings(admin, topics, seconds=TIMEOUT_SECONDS).items():
        try:
            settings = answer.result()
        except KafkaException as error:
            raise BrokerError(f"the settings of {topic} are not known: {error.args[0].str()}") from error
        retention = int(settings["retention.ms"].value)
        by_age = "delete" in settings["cleanup.policy"].value and retention >= 0
        # With the time of the broker, results of history are new.
        if by_age and settings["message.timestamp.type"].value != "LogAppendTime":
            found[topic] = retention
    return found
