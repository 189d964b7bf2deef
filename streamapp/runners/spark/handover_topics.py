"""Refuses a backfill whose results brokers would refuse or soon delete, as the settings of the topics say.

Results of history have old timestamps, so a topic with a short retention loses them. A refusal while the backfill
writes comes late: workers may not start before the backfill has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streamapp._base.counted import counted
from streamapp._base.utc import utc
from streamapp.broker.refused import REMEDIES
from streamapp.broker.requests import describe_topic_settings
from streamapp.config import StreamsConfig
from streamapp.errors import BrokerError, ConfigError
from streamapp.records import TopicPartition
from streamapp.runners.connection import client_of
from streamapp.runners.spark.batch_source import Part

__all__ = ["Extent", "check_retention", "check_taken", "first_times"]

TIMEOUT_SECONDS = 30.0
CLIENT_BYTES = 1_000_000
"""The default of librdkafka's ``message.max.bytes``."""

Settings = Mapping[str, str]


@dataclass(frozen=True)
class Extent:
    """The extremes of the results for one topic. Times are in ms, and None if no result has a timestamp."""

    oldest: int | None
    newest: int | None
    largest: int
    """The bytes of the key and the value of the largest result. Brokers count a few bytes more."""
    keyless: int
    """The number of results without a key."""

    def __or__(self, other: Extent) -> Extent:
        """The extent of the results of two stages."""
        oldest = [time for time in (self.oldest, other.oldest) if time is not None]
        newest = [time for time in (self.newest, other.newest) if time is not None]
        return Extent(
            min(oldest, default=None),
            max(newest, default=None),
            max(self.largest, other.largest),
            self.keyless + other.keyless,
        )


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

    Raises `BrokerError` if Kafka does not tell the settings of a topic, for example because the topic does not exist.
    """
    now = int(time.time() * 1000)
    retentions = {topic: _retention(each) for topic, each in _settings(config, oldest).items()}
    short = {topic: ms for topic, ms in retentions.items() if ms is not None and oldest[topic] < now - ms}
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


def check_taken(config: StreamsConfig, extents: Mapping[str, Extent]) -> None:
    """Raises `ConfigError` if brokers or the client are sure to refuse a result. The reason is the size, the timestamp
    or the missing key of this result.

    Raises `BrokerError` if Kafka does not tell the settings of a topic, for example because the topic does not exist.
    """
    now = int(time.time() * 1000)
    client = client_of(config)
    refused = {
        said: code
        for topic, settings in sorted(_settings(config, extents).items())
        for said, code in _refused(topic, extents[topic], settings, client, now)
    }
    if refused:
        remedies = dict.fromkeys(REMEDIES[code] for code in refused.values())
        raise ConfigError(
            f"Kafka would refuse results, so the backfill has written nothing: {'; '.join(refused)}. "
            f"{'. '.join(remedies)}. Then run the backfill again"
        )


def _refused(
    topic: str, extent: Extent, settings: Settings, client: Mapping[str, object], now: int
) -> Iterator[tuple[str, int]]:
    """The reasons for which brokers, or the client, refuse results for a topic, with the codes of their errors."""
    limits = {"message.max.bytes of the client": int(str(client.get("message.max.bytes", CLIENT_BYTES)))}
    codecs = {client.get(name, "none") for name in ("compression.type", "compression.codec")}
    if codecs == {"none"}:  # otherwise, the limit is for compressed records
        limits["max.message.bytes"] = int(settings["max.message.bytes"])
    name, limit = min(limits.items(), key=lambda item: item[1])
    if extent.largest > limit:
        yield (
            f"{topic} has a result of {counted(extent.largest, 'byte')}, and {name} is {limit:,}",
            KafkaError.MSG_SIZE_TOO_LARGE,
        )
    if extent.keyless and "compact" in settings["cleanup.policy"]:
        yield (
            f"{topic} is compacted, and has {counted(extent.keyless, 'result')} without a key",
            KafkaError.INVALID_RECORD,
        )
    if (
        extent.oldest is None
        or extent.newest is None
        or settings["message.timestamp.type"] == "LogAppendTime"
    ):
        return
    # Brokers before Kafka 3.6 do not have these two settings.
    before, after = (settings.get(f"message.timestamp.{side}.max.ms") for side in ("before", "after"))
    if before is not None and extent.oldest < now - int(before):
        yield (
            f"{topic} has a result with the time {utc(extent.oldest)} (UTC), which is too old",
            KafkaError.INVALID_TIMESTAMP,
        )
    if after is not None and extent.newest > now + int(after):
        yield (
            f"{topic} has a result with the time {utc(extent.newest)} (UTC), which is in the future",
            KafkaError.INVALID_TIMESTAMP,
        )


def _retention(settings: Settings) -> int | None:
    """``retention.ms`` of a topic that deletes records by the age of their timestamps; otherwise None."""
    retention = int(settings["retention.ms"])
    by_age = "delete" in settings["cleanup.policy"] and retention >= 0
    # With the time of the broker, results of history are new.
    return retention if by_age and settings["message.timestamp.type"] != "LogAppendTime" else None


def _settings(config: StreamsConfig, topics: Iterable[str]) -> dict[str, Settings]:
    admin = AdminClient({**client_of(config), "log_level": 0})
    found: dict[str, Settings] = {}
    for topic, answer in describe_topic_settings(admin, topics, seconds=TIMEOUT_SECONDS).items():
        try:
            found[topic] = {name: entry.value for name, entry in answer.result().items()}
        except KafkaException as error:
            raise BrokerError(f"the settings of {topic} are not known: {error.args[0].str()}") from error
    return found
