"""Each format on a real worker with a real registry: read, keyed anew, kept in a table, written, shown over HTTP and by SQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from streamapp import AvroSerde, JsonSchemaSerde, ProtobufSerde
from streamapp.broker import KafkaAdmin, KafkaSettings, LocalKafka, TopicSpec
from streamapp.errors import StreamsError
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.apicurio import LocalRegistry
from streamapp.runners.last_records import last_records
from streamapp.testing import WorkerProcess
from tests.processes import free_port, until
from tests.unit.serdes.protos import shop

from .conftest import JavaProtobuf

pytestmark = pytest.mark.broker

FORMATS = ("avro", "json", "messages", "typed", "derived")
RECORDS = [("k1", "cup", 3), ("k2", "pot", 2**40), ("k3", "cup", 4)]
SUMS = {"cup": 7, "pot": 2**40}
SECONDS = 120.0
SETTINGS = {"use.deprecated.format": False, "skip.known.types": True}


class Item(msgspec.Struct):
    name: str
    cents: int = 0


class Ran:
    """What the worker has left, and where."""

    def __init__(self, topic: str, environ: dict[str, str], views: dict[str, dict[str, Any]]) -> None:
        self.topic, self.environ, self.views = topic, environ, views


def serializers(url: str) -> dict[str, Callable[[str, int, SerializationContext], bytes | None]]:
    """Confluent's own, which write each format but the one whose schema only the worker's type knows."""
    client = SchemaRegistryClient({"url": url})
    avro = AvroSerializer(client, json.dumps(AvroSerde(type=Item).schema))
    in_json = JSONSerializer(json.dumps(JsonSchemaSerde(type=Item).schema), client)
    proto = ProtobufSerializer(shop.Item, client, SETTINGS)
    derived = ProtobufSerde[Any](type=Item).message
    own = ProtobufSerializer(derived, client, SETTINGS)

    def as_dict(write: Any) -> Any:
        return lambda name, cents, context: write({"name": name, "cents": cents}, context)

    def as_message(write: Any, message: Any) -> Any:
        return lambda name, cents, context: write(message(name=name, cents=cents), context)

    return {
        "avro": as_dict(avro),
        "json": as_dict(in_json),
        "messages": as_message(proto, shop.Item),
        "typed": as_message(proto, shop.Item),
        "derived": as_message(own, derived),
    }


def readers(url: str, java: JavaProtobuf) -> dict[str, Callable[[bytes, SerializationContext], Any]]:
    """Confluent's deserializers, and for Protobuf Java's libraries: Confluent's takes no text of a schema."""
    client = SchemaRegistryClient({"url": url})
    in_json = JSONDeserializer(json.dumps(JsonSchemaSerde(type=Item).schema), schema_registry_client=client)

    def proto(data: bytes, context: SerializationContext) -> Any:
        return java.read(context.topic, data)[1]

    return {"avro": AvroDeserializer(client), "json": in_json} | dict.fromkeys(FORMATS[2:], proto)


@pytest.fixture(scope="module")
def ran(local: LocalRegistry, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One worker for all tests; it has stopped when they begin, so that its tables are committed."""
    folder = tmp_path_factory.mktemp("formats")
    name = f"formats-{os.getpid()}"
    admin = KafkaAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    admin.ensure_topics([TopicSpec(f"{name}-{each}{out}", 1) for each in FORMATS for out in ("", "-out")])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for each, write in serializers(local.url).items():
        for key, item, cents in RECORDS:
            data = write(item, cents, SerializationContext(f"{name}-{each}", MessageField.VALUE))
            producer.produce(f"{name}-{each}", data, key)
    assert producer.flush(60) == 0
    port = free_port()
    protos = str(Path(str(sys.modules["shop_pb2"].__file__)).parent)
    environ = {
        "STREAMAPP_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "STREAMAPP_SCHEMA_REGISTRY_URL": local.url,
        "FORMATS_NAME": name,
        "FORMATS_DATADIR": str(folder / "worker"),
        "FORMATS_WEB_PORT": str(port),
        "PYTHONPATH": os.pathsep.join((os.getcwd(), protos)),
    }
    log = folder / "worker.log"
    with WorkerProcess("tests.registry.formats_app", web_port=port, log=log, environ=environ) as worker:
        worker.wait_until_ready()
        views: dict[str, dict[str, Any]] = {}

        def complete() -> bool:
            worker.check()
            for each in FORMATS:
                try:
                    views[each] = {key: worker.get(f"/tables/{each}-sums/{key}")["value"] for key in SUMS}
                except (OSError, StreamsError, KeyError):
                    return False
            return all(int(rows[key]["cents"]) == SUMS[key] for rows in views.values() for key in SUMS)

        until(complete, SECONDS, log.read_text)
    return Ran(name, environ, views)


@pytest.mark.parametrize("format", FORMATS)
def test_the_view_shows_the_rows(ran: Ran, format: str) -> None:
    """The row of a message is Protobuf's JSON, in which a number of 64 bits is text."""
    shown = {key: value["cents"] for key, value in ran.views[format].items()}
    assert shown == ({key: str(cents) for key, cents in SUMS.items()} if format == "messages" else SUMS)
    assert {value["name"] for value in ran.views[format].values()} == set(SUMS)


@pytest.mark.parametrize("format", FORMATS)
def test_others_read_what_the_worker_has_written(
    ran: Ran,
    local: LocalRegistry,
    registry: ConfluentSchemaRegistry,
    kafka: LocalKafka,
    java_protobuf: JavaProtobuf,
    format: str,
) -> None:
    """The output and the rows of the changelog; the registry has the schema of the repartition topic, too."""
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    read = readers(local.url, java_protobuf)[format]
    out, kept = f"{ran.topic}-{format}-out", f"{ran.topic}-{format}-sums-changelog"
    for topic in (out, kept):
        context = SerializationContext(topic, MessageField.VALUE)
        rows = [read(each.value, context) for each in last_records(settings, topic, 10) if each.value]
        assert {row["name"]: int(row["cents"]) for row in rows} == SUMS, topic
    again = registry.version_of(f"{ran.topic}-{format}-by-name-repartition-value")
    assert again == registry.version_of(f"{out}-value")._replace(subject=again.subject)


@pytest.mark.spark
def test_sql_shows_the_rows(ran: Ran) -> None:
    """The fields of a type are columns; a message without type is JSON text."""
    columns = ", ".join(f"{each}.value.cents as {each}" for each in FORMATS if each != "messages")
    joins = " ".join(
        f"join {each}_sums {each} on avro.key = {each}.key" for each in FORMATS if each != "avro"
    )
    query = (
        f"select avro.key, {columns}, get_json_object(messages.value, '$.cents') as messages "
        f"from avro_sums avro {joins} order by avro.key"
    )
    command = [str(Path(sys.executable).with_name("streamapp")), "sql", "tests.registry.formats_app", query]
    shown = subprocess.run(
        [*command, "--format", "json"],
        env=os.environ | ran.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert shown.returncode == 0, shown.stderr[-2_000:]
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert rows == [
        {
            "key": key,
            **{each: SUMS[key] for each in FORMATS if each != "messages"},
            "messages": str(SUMS[key]),
        }
        for key in sorted(SUMS)
    ]
