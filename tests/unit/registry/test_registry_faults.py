"""Each fault of a schema registry has one outcome: docs/schemas.md has the table, in this order."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from streamapp import BytesSerde, JsonSerde, StreamsBuilder, StreamsConfig, StringSerde, TopologyTestDriver
from streamapp.errors import SchemaRegistryError, SerializationError
from streamapp.records import Windowed
from streamapp.registry import ConfluentSchemaRegistry, RegistrySettings
from streamapp.registry.questions import schema_text
from streamapp.registry.rest import RestClient
from streamapp.serdes import AvroSerde, JsonSchemaSerde, ProtobufSerde, Serde, TimeWindowedSerde
from tests.unit.serdes.protos import shop

from ...processes import until
from .scripted import Refused, ScriptedRegistry

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "delay", "type": "int"}]}
LATER = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "delay", "type": "int"}, {"name": "dest", "type": "string"}],
}


VALUES: dict[str, Any] = {
    "Avro": {"delay": 3},
    "Protobuf": shop.Item(name="cup"),
    "windowed Avro": Windowed({"delay": 3}, 0, 60_000),
}


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.on_sleep: Any = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()

    def __call__(self) -> float:
        return self.now


def client_of(
    server: ScriptedRegistry, clock: Clock | None = None, **settings: Any
) -> ConfluentSchemaRegistry:
    clock = clock or Clock()
    cache = settings.pop("cache", None)
    made = RegistrySettings(url=settings.pop("url", server.url), **settings)
    return ConfluentSchemaRegistry(cache=cache, client=RestClient(made, sleep=clock.sleep, clock=clock))


def serde_of(format: str, server: ScriptedRegistry) -> Serde[Any]:
    """A serde that has asked the registry for nothing yet."""
    if format == "Protobuf":
        return ProtobufSerde(shop.Item, registry=client_of(server))
    inner: Serde[Any] = AvroSerde(FLIGHT, registry=client_of(server))
    return inner if format == "Avro" else TimeWindowedSerde(inner, 60_000)


def test_the_page_names_a_test_for_each_fault() -> None:
    page = (Path(__file__).parents[3] / "docs" / "schemas.md").read_text()
    table = page.partition("## Faults and outcomes")[2].partition("## Evolution")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    names = [row[3].strip().strip("`") for row in rows if not row[1].startswith(" ---")]
    assert len(names) >= 16
    assert [name for name in names if not callable(globals().get(name))] == []


def test_down_at_the_start_it_is_asked_again_until_it_answers(server: ScriptedRegistry) -> None:
    server.stop()
    clock = Clock()
    clock.on_sleep = lambda: (
        server.start() if 3 < clock.now < 20 and not server.requests and restarted() else None
    )
    starts: list[int] = []

    def restarted() -> bool:
        starts.append(1)
        return len(starts) == 1

    assert client_of(server, clock).id_of("flights-value", FLIGHT) == 1
    assert clock.now > 3


def test_down_for_longer_than_patience_is_an_error_that_names_the_registry(server: ScriptedRegistry) -> None:
    server.stop()
    clock = Clock()
    with pytest.raises(SchemaRegistryError, match=f"registry {server.url} does not answer: .*refused"):
        client_of(server, clock).id_of("flights-value", FLIGHT)
    assert 50 < clock.now <= 60
    server.start()


def test_down_at_a_restart_the_answers_of_the_process_before_are_used(
    server: ScriptedRegistry, tmp_path: Path
) -> None:
    first = client_of(server, cache=tmp_path)
    schema_id = first.id_of("flights-value", FLIGHT)
    assert first.version_of("flights-value").version == 1
    assert client_of(server, cache=tmp_path).schema_of(schema_id) == FLIGHT
    server.stop()

    clock = Clock()
    again = client_of(server, clock, cache=tmp_path)
    assert again.id_of("flights-value", FLIGHT) == schema_id
    assert again.version_of("flights-value").schema == FLIGHT
    assert client_of(server, clock, cache=tmp_path).schema_of(schema_id) == FLIGHT
    assert clock.now == 0
    with pytest.raises(SchemaRegistryError, match="does not answer"):
        again.id_of("flights-value", LATER)  # nobody has asked for this one before
    server.start()


def test_a_registry_that_answers_is_believed_more_than_the_folder(
    server: ScriptedRegistry, tmp_path: Path
) -> None:
    client_of(server, cache=tmp_path).id_of("flights-value", FLIGHT)
    server.ids.clear()
    server.subjects.clear()
    server.add("another", {"schema": '"long"'})
    assert client_of(server, cache=tmp_path).id_of("flights-value", FLIGHT) == 2
    assert client_of(server, cache=tmp_path).schema_of(1) == "long"


def test_down_in_the_middle_known_schemas_go_on(server: ScriptedRegistry) -> None:
    serde = AvroSerde[Any](FLIGHT, registry=client_of(server)).bind("flights", False)
    data = serde.serialize({"delay": 3})
    assert serde.deserialize(data) == {"delay": 3}
    server.stop()
    assert serde.deserialize(serde.serialize({"delay": 4})) == {"delay": 4}
    server.start()


@pytest.mark.parametrize("handler", ["fail", "continue"])
@pytest.mark.parametrize("format", ["Avro", "Protobuf", "windowed Avro"])
def test_a_new_id_while_it_is_down_is_no_fault_of_the_record(
    server: ScriptedRegistry, format: str, handler: Any
) -> None:
    """With "continue" the record would be dropped if the handler were asked."""
    data = serde_of(format, server).bind("in", False).serialize(VALUES[format])
    asked = StreamsConfig(
        "app", deserialization_exception_handler=handler, production_exception_handler=handler
    )
    builder = StreamsBuilder(asked)
    fresh = serde_of(format, server)
    builder.stream("in", key_serde=StringSerde(), value_serde=fresh).to("out", value_serde=fresh)
    with TopologyTestDriver(builder.build()) as driver:
        server.stop()
        with pytest.raises(SchemaRegistryError, match="does not answer"):
            driver.pipe_raw("in", b"k", data, 0)
        server.start()


def test_threads_that_wait_for_the_registry_are_patient_together(server: ScriptedRegistry) -> None:
    """Each was patient after the others: a consumer with 16 calls waited for 16 minutes, beyond its time-outs."""
    server.stop()
    clock, asking = Clock(), set[int]()

    def time_of_thread() -> float:
        asking.add(threading.get_ident())
        return clock.now

    clock.on_sleep = lambda: until(lambda: len(asking) == 4, 10, lambda: asking)
    made = RegistrySettings(url=server.url)
    registry = ConfluentSchemaRegistry(client=RestClient(made, sleep=clock.sleep, clock=time_of_thread))
    errors: list[SchemaRegistryError] = []

    def ask() -> None:
        with pytest.raises(SchemaRegistryError, match="does not answer") as raised:
            registry.schema_of(1)
        errors.append(raised.value)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 4
    assert clock.now <= 60
    server.start()
    assert registry.id_of("flights-value", FLIGHT) == 1
    assert registry.schema_of(1) == FLIGHT


def test_a_thread_that_has_waited_for_the_registry_goes_on_with_its_earlier_answer(
    server: ScriptedRegistry, tmp_path: Path
) -> None:
    """The thread got the error of the other one, although the cache has the answer."""
    client_of(server, cache=tmp_path).id_of("flights-value", FLIGHT)
    client_of(server, cache=tmp_path).schema_of(1)
    server.stop()
    clock, asking, found = Clock(), set[int](), list[Any]()

    def time_of_thread() -> float:
        asking.add(threading.get_ident())
        return clock.now

    registry = ConfluentSchemaRegistry(
        cache=tmp_path,
        client=RestClient(RegistrySettings(url=server.url), sleep=clock.sleep, clock=time_of_thread),
    )
    second = threading.Thread(target=lambda: found.append(registry.schema_of(1)))

    def while_the_first_waits() -> None:
        if not second.ident:
            second.start()
        until(lambda: len(asking) == 2, 10, lambda: asking)

    clock.on_sleep = while_the_first_waits
    with pytest.raises(SchemaRegistryError, match="does not answer"):
        registry.schema_of(7)
    second.join()
    assert found == [FLIGHT]
    server.start()


def test_an_absent_registry_is_asked_once_for_the_words_about_unreadable_json(
    server: ScriptedRegistry,
) -> None:
    """Each record that is no JSON waited for a minute, only for the text of its error."""
    server.stop()
    clock = Clock()
    serde = JsonSchemaSerde[Any](type=dict[str, int], registry=client_of(server, clock)).bind("in", False)
    for _ in range(5):
        with pytest.raises(SerializationError, match="their schema is not known: .* does not answer"):
            serde.deserialize(b"\0\0\0\0\1{")
    assert clock.now <= 60
    server.start()


def test_slow_answers_are_given_up_and_asked_for_again(server: ScriptedRegistry) -> None:
    release = threading.Event()

    def slow(number: int) -> None:
        if number == 1:
            release.wait(30)

    server.fault = slow
    try:
        assert client_of(server, request_timeout_ms=200).id_of("flights-value", FLIGHT) == 1
    finally:
        release.set()


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 408])
def test_a_server_in_trouble_is_asked_again(server: ScriptedRegistry, status: int) -> None:
    def troubled(number: int) -> None:
        if number <= 3:
            raise Refused(status, 50002, "Operation timed out")

    server.fault = troubled
    clock = Clock()
    assert client_of(server, clock).id_of("flights-value", FLIGHT) == 1
    assert clock.now > 0


def test_a_server_that_stays_in_trouble_is_an_error_with_its_words(server: ScriptedRegistry) -> None:
    def troubled(number: int) -> None:
        raise Refused(500, 50001, "Error in the backend data store")

    server.fault = troubled
    with pytest.raises(SchemaRegistryError, match="answers 500: Error in the backend data store"):
        client_of(server).schema_of(1)


def test_a_subject_with_another_format_is_no_outage(server: ScriptedRegistry) -> None:
    """Apicurio answers 500 to a schema of another format, and each record was tried for a minute."""
    client_of(server).id_of("flights-value", FLIGHT)

    def troubled(number: int) -> None:
        if server.requests[-1][0] == "POST":
            raise Refused(500, 50001, "Syntax error in :1:1: expected a word")

    server.fault = troubled
    clock = Clock()
    with pytest.raises(
        SchemaRegistryError, match="flights-value has schemas of AVRO, so .* no schema of JSON"
    ):
        client_of(server, clock).id_of("flights-value", {"type": "object"}, "JSON")
    assert clock.now == 0


def test_a_subject_that_has_both_formats_is_an_outage(server: ScriptedRegistry) -> None:
    """The error said that the registry takes no schema of JSON, although the subject has one."""
    client_of(server).id_of("flights-value", {"type": "object"}, "JSON")
    client_of(server).id_of("flights-value", FLIGHT)

    def troubled(number: int) -> None:
        if server.requests[-1][0] == "POST":
            raise Refused(500, 50001, "Error in the backend data store")

    server.fault = troubled
    with pytest.raises(SchemaRegistryError, match="answers 500: Error in the backend data store"):
        client_of(server).id_of("flights-value", {"type": "object"}, "JSON")


def test_an_answer_about_versions_that_is_none_of_a_registry_leaves_the_outage(
    server: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy answered for the registry, and the writer ended with a TypeError."""
    client_of(server).id_of("flights-value", FLIGHT)
    answered = server._answered

    def proxied(method: str, path: str, body: Any) -> Any:
        if path.endswith("/versions"):
            return {"status": "maintenance"}
        if method == "POST":
            raise Refused(500, 50001, "Error in the backend data store")
        return answered(method, path, body)

    monkeypatch.setattr(server, "_answered", proxied)
    with pytest.raises(SchemaRegistryError, match="answers 500: Error in the backend data store"):
        client_of(server).id_of("flights-value", {"type": "object"}, "JSON")


@pytest.mark.parametrize(("status", "code"), [(503, 503), (500, 50004)])
def test_an_outage_says_nothing_about_the_formats_of_a_subject(
    server: ScriptedRegistry, status: int, code: int
) -> None:
    """A registry without a compatibility level takes schemas of several formats. The writer of the older format ended
    with the words that the registry takes no such schema, although the registry only had no leader for a moment."""
    client_of(server).id_of("flights-value", FLIGHT)
    before = len(server.requests)

    def troubled(number: int) -> None:
        if number == before + 1:
            raise Refused(status, code, "Unknown leader while forwarding the request")

    server.fault = troubled
    assert client_of(server).id_of("flights-value", {"type": "object"}, "JSON") == 2
    assert {method for method, *_ in server.requests[before:]} == {"POST"}


def test_another_server_of_the_registry_answers(server: ScriptedRegistry) -> None:
    clock = Clock()
    both = client_of(server, clock, url=f"http://127.0.0.1:9,{server.url}/")
    assert both.id_of("flights-value", FLIGHT) == 1
    assert clock.now == 0


def test_a_subject_that_another_client_registers_at_the_same_time(server: ScriptedRegistry) -> None:
    """Several tasks write the first records of a topic. Apicurio refuses all registrations but the first."""

    def conflict(number: int) -> None:
        if number == 2:
            server.add("orders-value", {"schema": schema_text(FLIGHT, "AVRO")})
            raise Refused(409, 409, "An artifact with ID 'orders-value' already exists.")

    server.fault = conflict
    registry = client_of(server)
    schema_id = registry.id_of("orders-value", FLIGHT)
    assert [(method, path) for method, path, _ in server.requests] == [
        ("POST", "/subjects/orders-value"),
        ("POST", "/subjects/orders-value/versions"),
        ("POST", "/subjects/orders-value"),
    ]
    assert registry.schema_of(schema_id) == FLIGHT


def test_409_names_both_schemas_and_their_difference(server: ScriptedRegistry) -> None:
    client_of(server).id_of("flights-value", FLIGHT)

    def incompatible(number: int) -> None:
        if server.requests[-1][:2] == ("POST", "/subjects/flights-value/versions"):
            raise Refused(409, 409, "READER_FIELD_MISSING_DEFAULT_VALUE")

    server.fault = incompatible
    serde = AvroSerde[Any](LATER, registry=client_of(server)).bind("flights", False)
    with pytest.raises(SchemaRegistryError) as raised:
        serde.serialize({"delay": 1, "dest": "JFK"})
    said = str(raised.value)
    assert "new schema of flights-value" in said
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in said
    assert "Version 1 (id 1) and the new schema differ: fields.dest: new" in said


def test_42201_shows_the_schema(server: ScriptedRegistry) -> None:
    def invalid(number: int) -> None:
        raise Refused(422, 42201, "Invalid schema")

    server.fault = invalid
    with pytest.raises(SchemaRegistryError, match=r'as invalid \(Invalid schema\): \{"type":"record"'):
        client_of(server).id_of("flights-value", FLIGHT)


def test_a_refused_schema_drops_no_result(server: ScriptedRegistry) -> None:
    def invalid(number: int) -> None:
        raise Refused(422, 42201, "Invalid schema")

    builder = StreamsBuilder(StreamsConfig("app", production_exception_handler="continue"))
    serde: Serde[Any] = AvroSerde(FLIGHT, registry=client_of(server))
    builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde()).map_values(
        lambda v: {"delay": 1}
    ).to("out", value_serde=serde)
    server.fault = invalid
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(SchemaRegistryError, match="Invalid schema"),
    ):
        driver.pipe_raw("in", b"k", b"v", 0)


def test_without_auto_registration_a_new_schema_is_an_error_that_says_what_to_do(
    server: ScriptedRegistry,
) -> None:
    closed = client_of(server, auto_register_schemas=False)
    with pytest.raises(
        SchemaRegistryError, match=r"streamapp schema register\). flights-value has no version yet"
    ):
        closed.id_of("flights-value", FLIGHT)
    assert server.subjects == {}
    client_of(server).id_of("flights-value", FLIGHT)
    assert closed.id_of("flights-value", FLIGHT) == 1
    with pytest.raises(SchemaRegistryError, match="fields.dest: new"):
        closed.id_of("flights-value", LATER)


def test_a_latest_version_that_cannot_be_read_is_not_said_to_be_missing(server: ScriptedRegistry) -> None:
    closed = client_of(server, auto_register_schemas=False)
    client_of(server).id_of("flights-value", FLIGHT)

    def no_versions(number: int) -> None:
        if server.requests[-1][1].startswith("/subjects/flights-value/versions/latest"):
            raise Refused(403, 40301, "Forbidden")

    server.fault = no_versions
    with pytest.raises(
        SchemaRegistryError,
        match=r"The latest version of flights-value cannot be read .*refuses these credentials",
    ):
        closed.id_of("flights-value", LATER)


@pytest.mark.parametrize("status", [401, 403])
def test_wrong_credentials_are_said_at_once_and_not_shown(server: ScriptedRegistry, status: int) -> None:
    def closed(number: int) -> None:
        raise Refused(status, status, "Unauthorized")

    server.fault = closed
    clock = Clock()
    with pytest.raises(SchemaRegistryError, match="refuses these credentials") as raised:
        client_of(server, clock, basic_auth_user_info="ada:lovelace").schema_of(1)
    assert "lovelace" not in str(raised.value)
    assert clock.now == 0


def test_an_unknown_id_is_the_records_fault_and_is_not_asked_for_with_each_record(
    server: ScriptedRegistry,
) -> None:
    registry = client_of(server)
    for _ in range(3):
        with pytest.raises(SerializationError, match="has no schema with id 77"):
            registry.schema_of(77)
    assert len(server.requests) == 2  # the second one for followers that lag behind


def test_a_reference_that_is_deleted_for_good_is_the_records_fault(server: ScriptedRegistry) -> None:
    """The error named the registry as its cause, so one such record ended each worker."""
    gate = {"name": "Gate", "subject": "gate", "version": 1}
    number = server.add("a", {"schema": '{"type":"array","items":"Gate"}', "references": [gate]})
    registry = client_of(server)
    for _ in range(3):
        with pytest.raises(
            SerializationError, match="id 1 refers to another schema, and gate has no such version"
        ):
            registry.schema_of(number)
    assert len(server.requests) == 2 * 2


@pytest.mark.parametrize("serde_of", [AvroSerde, lambda _, **more: ProtobufSerde(shop.Item, **more)])
def test_a_number_that_is_no_id_is_the_records_fault_and_is_not_asked_for(
    server: ScriptedRegistry, serde_of: Any
) -> None:
    """The registry answered as for a wrong path, and one record with such bytes ended each worker."""

    def without_the_path(number: int) -> None:
        raise Refused(404, 404, "HTTP 404 Not Found")

    serde = serde_of(FLIGHT, registry=client_of(server)).bind("flights", False)
    server.fault = without_the_path
    for number in (2**31, 2**32 - 1):
        with pytest.raises(
            SerializationError, match=f"no schema has id {number}, because ids have at most 31 bits"
        ):
            serde.deserialize(b"\0" + number.to_bytes(4, "big") + b"\0\0")
    assert not server.requests


def test_many_unknown_ids_are_asked_for_once(server: ScriptedRegistry) -> None:
    """Bytes of something else that begin with 0 must not cost half a second each."""
    clock = Clock()
    registry = client_of(server, clock)
    for number in range(100, 120):
        with pytest.raises(SerializationError):
            registry.schema_of(number)
    assert len(server.requests) == 5 * 2 + 15
    assert clock.now == 5 * 0.5
    clock.now += 11
    with pytest.raises(SerializationError):
        registry.schema_of(100)
    assert len(server.requests) == 5 * 2 + 15 + 2


def test_an_id_of_another_format_is_said(server: ScriptedRegistry) -> None:
    server.add("a", {"schema": "{}", "schemaType": "JSON"})
    with pytest.raises(SerializationError, match="id 1 is JSON, not AVRO"):
        client_of(server).schema_of(1)


@pytest.mark.parametrize("body", [b"<html>welcome</html>", b"[" * 100_000])
def test_what_is_no_registry_is_said_at_once(server: ScriptedRegistry, monkeypatch: Any, body: bytes) -> None:
    monkeypatch.setattr(server, "_answered", lambda *_: body)
    with pytest.raises(SchemaRegistryError, match="Is the path right"):
        client_of(server).schema_of(1)


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        None,
        b"",
        True,
        "down",
        {"message": "maintenance"},
        {"schema": 7, "id": "x", "version": None},
        {"schema": 7, "id": 2**40, "version": 1},
        {"schema": 7, "id": -1, "version": 1},
    ],
)
@pytest.mark.parametrize("format", ["Avro", "Protobuf"])
def test_json_of_another_server_is_no_fault_of_the_record(
    server: ScriptedRegistry, monkeypatch: Any, tmp_path: Path, format: str, body: Any
) -> None:
    """A proxy may answer 200 for the registry. With "continue", the record and the result were dropped."""
    data = serde_of(format, server).bind("in", False).serialize(VALUES[format])
    asked = StreamsConfig(
        "app", deserialization_exception_handler="continue", production_exception_handler="continue"
    )
    with monkeypatch.context() as answers:
        answers.setattr(server, "_answered", lambda *_: body)
        for source, sink in ((serde_of(format, server), None), (None, serde_of(format, server))):
            builder = StreamsBuilder(asked)
            records = builder.stream("in", key_serde=StringSerde(), value_serde=source or BytesSerde())
            records.map_values(lambda value: VALUES[format]).to("out", value_serde=sink or JsonSerde())
            with (
                TopologyTestDriver(builder.build()) as driver,
                pytest.raises(SchemaRegistryError, match="Is the path right"),
            ):
                driver.pipe_raw("in", b"k", data, 0)
        cached = client_of(server, cache=tmp_path)
        for ask in (lambda: cached.schema_of(1), lambda: cached.version_of("in-value")):
            with pytest.raises(SchemaRegistryError, match="Is the path right"):
                ask()
    assert not [
        *tmp_path.rglob("*.json")
    ]  # no later start without registry takes such an answer for a schema


OTHER_SCHEMAS: dict[str, dict[str, str]] = {
    "Avro": {"schema": '{"type": "record"}'},
    "JSON": {"schema": '{"type": 7}', "schemaType": "JSON"},
    "Protobuf": {"schema": "package streamapp.shop; message Order {}", "schemaType": "PROTOBUF"},
    "Protobuf without messages": {"schema": "package streamapp.shop;", "schemaType": "PROTOBUF"},
}


@pytest.mark.parametrize("format", OTHER_SCHEMAS)
def test_a_version_that_the_serde_cannot_write_is_no_fault_of_the_record(
    server: ScriptedRegistry, format: str
) -> None:
    """With "continue", each result was dropped."""
    server.add("out-value", OTHER_SCHEMAS[format])
    registry = client_of(server)
    sink: Serde[Any] = ProtobufSerde(shop.Item, registry=registry, version="latest")
    if format == "Avro":
        sink = AvroSerde(FLIGHT, registry=registry, version="latest")
    if format == "JSON":
        sink = JsonSchemaSerde({"type": "object"}, registry=registry, version="latest")
    builder = StreamsBuilder(StreamsConfig("app", production_exception_handler="continue"))
    builder.stream("in", key_serde=BytesSerde(), value_serde=JsonSerde()).map_values(
        lambda value: shop.Item() if "Protobuf" in format else {"delay": 3}
    ).to("out", value_serde=sink)
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(SchemaRegistryError, match="cannot write with version latest of out-value"),
    ):
        driver.pipe_raw("in", b"k", b"{}", 0)


def test_a_read_only_registry_is_not_said_to_find_the_schema_invalid(server: ScriptedRegistry) -> None:
    def read_only(number: int) -> None:
        if server.requests[-1][1].endswith("/versions"):
            raise Refused(422, 42205, "Subject flights-value is in read-only mode")

    server.fault = read_only
    with pytest.raises(SchemaRegistryError, match="says 42205: Subject flights-value is in read-only mode"):
        client_of(server).id_of("flights-value", FLIGHT)


@pytest.mark.parametrize("body", [{"schema": "{"}, {"schema": "[" * 100_000}])
def test_an_answer_without_schema_is_an_error(server: ScriptedRegistry, monkeypatch: Any, body: Any) -> None:
    monkeypatch.setattr(server, "_answered", lambda *_: body)
    with pytest.raises(SerializationError, match="is no schema"):
        client_of(server).schema_of(1)
