"""``streamapp topic``: creates, lists, describes, writes, reads and deletes topics."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import click
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as RdTopicPartition

from streamapp._base.counted import counted
from streamapp._base.utc import utc
from streamapp.broker.admin import KafkaAdmin, TopicSpec
from streamapp.broker.bounded_reads import TO_THE_END, next_message, read_to_end
from streamapp.broker.requests import reach
from streamapp.broker.settings import KafkaSettings
from streamapp.cli.application import clear_errors
from streamapp.cli.spark_options import pairs
from streamapp.cli.text_table import TextTable
from streamapp.errors import BrokerError
from streamapp.operations.cluster_topics import ClusterTopics, Reading
from streamapp.records import TopicPartition

__all__ = ["topic_group"]

NAME = click.argument("name")
_MOST_PARTITIONS = 100_000
"""The limit of librdkafka for a new topic."""
_FLUSH_SECONDS = 0.5
_SILENCE_SECONDS = 30.0
"""After this time without an answer, the command that reads a topic to its end fails."""
Report = Callable[[KafkaError | None, Message | None], None]
"""Takes what became of a record: the error, or None."""


@click.group("topic")
def topic_group() -> None:
    """Create, list, describe, write, read and delete topics of the Kafka at STREAMAPP_BOOTSTRAP_SERVERS.

    The default address is that of the local broker.
    """


@topic_group.command("list")
@click.option(
    "--all", "everything", is_flag=True, help="Also list Kafka's own topics, such as __consumer_offsets."
)
def list_topics(everything: bool) -> None:
    """List the topics with their numbers of partitions and replicas."""
    with clear_errors():
        found = ClusterTopics(_settings()).names()
    table = TextTable("topic", "partitions", "replicas")
    for name, (partitions, replicas) in found.items():
        if everything or not name.startswith("__"):
            table.add_row(name, str(partitions), str(replicas))
    if not len(table):
        click.echo("no topics")
        return
    table.print()


@topic_group.command()
@NAME
def describe(name: str) -> None:
    """Show the partitions, the settings and the readers of topic NAME.

    FIRST is the offset of the first record, END that of the next record. Only settings that the topic itself has are
    shown.
    """
    with clear_errors():
        topics = ClusterTopics(_settings())
        partitions, settings, readings = topics.partitions(name), topics.settings(name), topics.readings(name)
    table = TextTable("partition", "first", "end", "leader", "replicas", "in sync")
    for each in partitions:
        leader = "none" if each.leader < 0 else str(each.leader)
        table.add_row(
            str(each.number),
            _offset(each.first),
            _offset(each.end),
            leader,
            _numbers(each.replicas),
            _numbers(each.in_sync),
        )
    table.print()
    click.echo(
        "settings: " + (", ".join(f"{key}={value}" for key, value in settings.items()) or "those of brokers")
    )
    click.echo("readers:  " + (_readers(readings) or "no consumer group"))


@topic_group.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask. Needed in scripts.")
def delete(names: tuple[str, ...], yes: bool) -> None:
    """Delete topics NAMES with all their records. The command first prints what will be lost, and asks.

    Kafka's own topics cannot be deleted, nor internal topics of an application that runs.
    """
    with clear_errors():
        topics = ClusterTopics(_settings())
        for name in names:
            partitions = topics.partitions(name)
            topics.check_deletable(name)
            told = [(each.first, each.end) for each in partitions]
            records = sum(end - first for first, end in told if first is not None and end is not None)
            lost = f"{name}: {counted(len(partitions), 'partition')}, up to {counted(records, 'record')}"
            if silent := sum(first is None for first, _ in told):
                lost += f", and those of {counted(silent, 'partition')} without a leader"
            readers = _readers(topics.readings(name))
            click.echo(lost + (f". Readers: {readers}" if readers else ""), err=True)
        if not yes:
            click.confirm(
                f"Delete {counted(len(names), 'topic')}? The records cannot be brought back",
                abort=True,
                err=True,
            )
        topics.delete(names)
    click.echo(f"{counted(len(names), 'topic')} deleted: {', '.join(names)}")


@topic_group.command()
@NAME
@click.option(
    "--partitions",
    type=click.IntRange(1, _MOST_PARTITIONS),
    default=4,
    show_default=True,
    help="The number of partitions.",
)
@click.option(
    "--config",
    multiple=True,
    metavar="NAME=VALUE",
    callback=pairs,
    help="A setting of the topic, such as cleanup.policy=compact; several can be given.",
)
def create(name: str, partitions: int, config: dict[str, str]) -> None:
    """Create topic NAME. If the topic exists already, nothing changes.

    If the existing topic has another number of partitions, or another value of a setting of --config, the command ends
    with an error.
    """
    with clear_errors():
        admin = KafkaAdmin(_settings())
        exists = name in admin.partition_counts([name])
        admin.ensure_topics([TopicSpec(name, partitions, config)])
        if exists and config:
            _check_settings(name, config, admin.topic_config(name))
    click.echo(f"{name} has {counted(partitions, 'partition')}")


@topic_group.command()
@NAME
@click.option(
    "--separator",
    default="\t",
    help="Text between key and value (default: a tab). A line without the separator is a value without a key.",
)
def write(name: str, separator: str) -> None:
    """Write each line of the standard input to topic NAME: key, separator, value.

    A line with nothing after the separator writes a null value (a tombstone, which deletes the key from a table). The
    bytes of key and value are written as they are. The command ends at the first line that cannot be written.
    """
    if not separator:
        raise click.UsageError("--separator cannot be empty: give the text between key and value")
    split, refused, number = os.fsencode(separator), _Refused(), 0
    with clear_errors():
        settings = _settings()
        _partitions(settings, name)
        producer = Producer(
            {
                **settings.librdkafka(),
                "client.id": "streamapp",
                "partitioner": "murmur2_random",
                "linger.ms": 5,
            }
        )
        try:
            for number, line in enumerate(click.get_binary_stream("stdin"), 1):
                key, found, value = line.removesuffix(b"\n").removesuffix(b"\r").partition(split)
                record = (key, value or None) if found else (None, key)
                _produce(producer, name, record, refused.at(number))
                if refused.count:
                    break
        finally:  # a signal may end the command, and the client still has records of the lines before
            while producer.flush(_FLUSH_SECONDS):
                pass
            if refused.count:
                written = number - refused.count
                raise BrokerError(
                    f"line {refused.first} cannot be written to {name}: {refused.reason}. The command has read "
                    f"{counted(number, 'line')} and written {counted(written, 'line')}"
                )
    click.echo(f"{counted(number, 'record')} written to {name}", err=True)


@topic_group.command()
@NAME
@click.option("--follow", is_flag=True, help="Wait for further records until Ctrl-C.")
@click.option(
    "--long", "place", is_flag=True, help="Print partition, offset and timestamp (UTC) before key and value."
)
def read(name: str, follow: bool, place: bool) -> None:
    """Print the committed records of topic NAME from its beginning: key, tab, value.

    Bytes that are not UTF-8 text are escaped.
    """
    with clear_errors():
        settings = _settings()
        starts = {TopicPartition(name, number): OFFSET_BEGINNING for number in _partitions(settings, name)}
        consumer = Consumer(
            {
                **settings.librdkafka(),
                "client.id": "streamapp",
                "group.id": "streamapp-topic-read",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                **({} if follow else TO_THE_END),
            }
        )
        try:
            messages = (
                _follow(consumer, name, starts) if follow else read_to_end(consumer, starts, _SILENCE_SECONDS)
            )
            for message in messages:
                click.echo((_place(message) if place else "") + _line(message))
        except KeyboardInterrupt:
            sys.exit(0)
        finally:
            consumer.close()


def _settings() -> KafkaSettings:
    """The settings of the cluster. Raises `BrokerError` if the cluster does not answer soon."""
    settings = KafkaSettings.from_env()
    reach(settings.librdkafka())
    return settings


def _follow(consumer: Consumer, topic: str, starts: Mapping[TopicPartition, int]) -> Iterator[Message]:
    """The records of the topic's partitions from ``starts``, without end."""
    consumer.assign([RdTopicPartition(*tp, offset) for tp, offset in starts.items()])
    while True:
        yield next_message(consumer, topic, math.inf)


def _check_settings(name: str, wanted: Mapping[str, str], present: Mapping[str, str | None]) -> None:
    other = [f"{key}={present.get(key)}" for key, value in wanted.items() if present.get(key) != value]
    if other:
        settings = ",".join(f"{key}={value}" for key, value in wanted.items())
        raise BrokerError(
            f"the topic {name} exists already and has {', '.join(other)}. This command changes no settings; "
            f"kafka-configs does: --alter --entity-type topics --entity-name {name} --add-config {settings}"
        )


def _partitions(settings: KafkaSettings, name: str) -> range:
    admin = KafkaAdmin(settings)
    counts = admin.partition_counts([name])
    if name not in counts:
        admin.check_shown(name)
        raise BrokerError(
            f"there is no topic {name} at {settings.bootstrap_servers}; create it with: streamapp topic create {name}"
        )
    return range(counts[name])


def _produce(
    producer: Producer, topic: str, record: tuple[bytes | None, bytes | None], report: Report
) -> None:
    """Hands a record to the client. If the client's queue is full, waits until brokers have taken some records."""
    key, value = record
    while True:
        try:
            producer.produce(topic, key=key, value=value, on_delivery=report)
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            # The client itself refuses the record, for example because the record is too large.
            report(error.args[0], None)
            return
        else:
            producer.poll(0)
            return


class _Refused:
    """The number of lines that were not written, and the first of them."""

    def __init__(self) -> None:
        self.count: int = 0
        self.first: int = 0
        self.reason: str = ""

    def at(self, line: int) -> Report:
        """The delivery report of a line."""

        def report(error: KafkaError | None, message: Message | None) -> None:
            if error is not None:
                if not self.count or line < self.first:
                    self.first, self.reason = line, error.str()
                self.count += 1

        return report


def _place(message: Message) -> str:
    kind, ms = message.timestamp()
    time = "-" if kind == TIMESTAMP_NOT_AVAILABLE else _utc(ms)
    return f"{message.partition()}\t{message.offset()}\t{time}\t"


def _utc(ms: int) -> str:
    text = utc(ms)
    return text if text.endswith("ms") else f"{text}.{ms % 1000:03}"


def _offset(offset: int | None) -> str:
    return "unknown" if offset is None else str(offset)


def _numbers(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _readers(readings: Sequence[Reading]) -> str:
    return ", ".join(
        f"{each.group} ({counted(each.members, 'member') if each.members else 'stopped'})"
        for each in readings
    )


def _line(message: Message) -> str:
    return "\t".join("null" if each is None else _text(each) for each in (message.key(), message.value()))


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else repr(data)[2:-1]
