"""Certificates of clients that change in their files."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import OffsetSpec
from cryptography import x509

from streamapp.broker import KafkaSettings, bounded_reads, certificates
from streamapp.broker.certificates import CertificateFiles
from streamapp.broker.lasting_consumer import LastingConsumer, open_consumer
from streamapp.broker.requests import LastingAdmin
from streamapp.config import StreamsConfig
from streamapp.desk import desk
from streamapp.errors import ConfigError
from streamapp.producer import SyncReliableProducer, idempotent, transactional
from streamapp.producer.plain_client import PlainClient
from streamapp.producer.session import Bookmark, BookmarkedSession
from streamapp.records import OutputRecord, TopicPartition
from streamapp.runners.worker import producer
from streamapp.runners.worker.clients import consumer_settings
from streamapp.runners.worker.producer import RecordProducer
from streamapp.runners.worker.sender import open_sender
from tests.processes import until
from tests.secured import KEY_PASSWORD

from .test_consumer import MockKafka


def properties(folder: Path) -> dict[str, Any]:
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(folder / "client.crt"),
        "ssl.key.location": str(folder / "client.key"),
        "ssl.key.password": KEY_PASSWORD,
    }


def test_files_have_changed_when_they_belong_together(
    pems: tuple[Path, Path], mine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = CertificateFiles(properties(mine))
    assert not files.changed()
    shutil.copy(pems[1] / "client.crt", mine)
    assert not files.changed(), "the key is still the old one"
    assert len(caplog.messages) == 1
    assert not files.changed()
    assert len(caplog.messages) == 1, "said once"
    (mine / "client.key").unlink()
    assert not files.changed()
    shutil.copy(pems[1] / "client.key", mine)
    assert files.changed()
    assert not files.changed(), "once"
    assert KEY_PASSWORD not in caplog.text


def test_a_file_that_changes_during_the_look_is_one_change(
    pems: tuple[Path, Path], mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key came between the look at the files and their reading, so the client connected anew twice."""
    files, context_of = CertificateFiles(properties(mine)), certificates.context_of

    def late_key(*given: Any) -> ssl.SSLContext:
        shutil.copy(pems[1] / "client.key", mine)
        return context_of(*given)

    shutil.copy(pems[1] / "client.crt", mine)
    monkeypatch.setattr(certificates, "context_of", late_key)
    looks = [files.changed()]
    monkeypatch.setattr(certificates, "context_of", context_of)
    looks += [files.changed() for _ in range(2)]
    assert looks == [False, True, False]


def test_a_client_without_files_never_changes() -> None:
    assert not CertificateFiles({"sasl.password": "x"}).changed()


def opened(folder: Path) -> list[Any]:
    """A client of each kind."""
    settings = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0, **properties(folder)}
    group = settings | {"group.id": "g"}
    return [
        LastingAdmin(settings),
        open_consumer(group),
        open_sender(settings, lambda _: None),
        PlainClient(settings | {"enable.idempotence": True}, lambda _: None, lambda *_: None, together=True),
    ]


def test_clients_that_open_in_the_middle_of_a_replacement_have_the_files_before(
    pems: tuple[Path, Path], mine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker opens clients at any moment: a consumer for a restore, or new ones after an outage of all brokers."""
    first = opened(mine)
    shutil.copy(pems[1] / "client.crt", mine)
    caplog.clear()
    second = opened(mine)
    first[0]._reopen()
    first[1]._reopen()
    assert {each.message.split(": ")[0] for each in caplog.records} == {
        "The files of the certificate do not match now"
    }
    assert "PRIVATE KEY" not in caplog.text
    shutil.copy(pems[1] / "client.key", mine)
    assert second[0]._files.changed(), "the client gets the new files as soon as they match"
    caplog.clear()
    opened(mine)
    assert caplog.messages == []


def test_a_look_for_left_records_in_the_middle_of_a_replacement_has_the_files_before(
    pems: tuple[Path, Path], mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents look at each rebalance for records that an earlier version has left."""
    config = StreamsConfig("app", bootstrap_servers="127.0.0.1:9", client_properties=properties(mine))
    opened(mine)
    shutil.copy(pems[1] / "client.crt", mine)
    first = OffsetSpec.earliest()
    monkeypatch.setattr(
        bounded_reads,
        "list_offsets",
        lambda _, tps, spec, **__: dict.fromkeys(tps, 0 if spec == first else 5),
    )
    monkeypatch.setattr(bounded_reads, "read_to_end", lambda *_: iter([b"a record"]))
    admin: Any = None
    left = TopicPartition("app-old-repartition", 0)
    assert [*bounded_reads.with_records(consumer_settings(config), admin, {left: 2}, 30)] == [left]


def test_the_desk_reads_in_the_middle_of_a_replacement(pems: tuple[Path, Path], mine: Path) -> None:
    """A worker has the views of dead letters, too."""
    config = StreamsConfig("app", bootstrap_servers="127.0.0.1:9", client_properties=properties(mine))
    opened(mine)
    shutil.copy(pems[1] / "client.crt", mine)
    with desk._consumer(config) as consumer:
        assert consumer is not None


def test_files_that_are_replaced_while_a_client_opens_are_not_kept(
    pems: tuple[Path, Path], mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old key was kept beside the new certificate, and the next client in a replacement was refused."""
    settings, check = properties(mine), certificates.context_of
    assert certificates.with_matching_files(settings) == settings
    shutil.copy(pems[1] / "client.crt", mine)

    def check_late(*files: Any) -> ssl.SSLContext:
        shutil.copy(pems[1] / "client.key", mine)
        return check(*files)

    with monkeypatch.context() as patch:
        patch.setattr(certificates, "context_of", check_late)
        assert certificates.with_matching_files(settings) == settings
    (mine / "client.key").unlink()
    kept = certificates.with_matching_files(settings)
    assert kept["ssl.certificate.pem"] == (pems[0] / "client.crt").read_text()
    assert kept["ssl.key.pem"] == (pems[0] / "client.key").read_text()


def test_files_that_never_matched_are_refused_by_each_client(pems: tuple[Path, Path], mine: Path) -> None:
    shutil.copy(pems[1] / "client.crt", mine)
    with pytest.raises(ConfigError, match="librdkafka refuses its settings"):
        LastingAdmin({"bootstrap.servers": "127.0.0.1:9", "log_level": 0, **properties(mine)})


class Client:
    """Counts what it is made for."""

    made: list[Any]

    def __init__(self, *_: Any) -> None:
        self.made.append(self)
        self.waiting, self.positions = 0, {}

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 0

    def __len__(self) -> int:
        return self.waiting

    def poll(self, *_: Any) -> Any:
        return [], []

    def assign(self, positions: Any, epochs: object) -> None:
        self.positions = dict(positions)

    def take_lost(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def forget() -> None:
    Client.made = []


def test_a_consumer_connects_anew_and_goes_on_where_it_was(pems: tuple[Path, Path], mine: Path) -> None:
    consumer = LastingConsumer(Client, CertificateFiles(properties(mine)))  # type: ignore[arg-type]
    consumer.assign({TopicPartition("t", 0): 7})
    consumer.poll(1, 0)
    assert len(Client.made) == 1
    for name in ("client.crt", "client.key"):
        shutil.copy(pems[1] / name, mine)
    consumer.poll(1, 0)
    consumer.poll(1, 0)
    assert [client.positions for client in Client.made] == [{("t", 0): 7}, {("t", 0): 7}]


@pytest.mark.parametrize("name", [None, "tx"])
def test_a_producer_connects_anew_where_nothing_is_on_its_way(
    pems: tuple[Path, Path], mine: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    monkeypatch.setattr(producer, "open_sender", Client)
    monkeypatch.setattr(producer, "open_transactions", lambda *_: None)
    config = StreamsConfig("app", bootstrap_servers="127.0.0.1:9", client_properties=properties(mine))
    outputs = RecordProducer(config, {}, name)
    for file in ("client.crt", "client.key"):
        shutil.copy(pems[1] / file, mine)
    outputs.poll()
    if name is None:
        outputs.client.waiting = 1  # type: ignore[attr-defined]
        outputs.committed()
        assert len(Client.made) == 1, "a record is on its way"
        outputs.client.waiting = 0  # type: ignore[attr-defined]
    assert len(Client.made) == 1
    outputs.begin() if name else outputs.committed()
    assert len(Client.made) == 2
    assert outputs._in_transaction is (name is not None)


def test_a_reliable_producer_connects_anew_and_loses_no_record(
    pems: tuple[Path, Path], mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, opened = MockKafka(), list[Any]()
    # The broker of the tests has no TLS, so the files are not settings of the client.
    monkeypatch.setattr(idempotent, "CertificateFiles", lambda _: CertificateFiles(properties(mine)))

    def open_client(*arguments: Any, **options: Any) -> PlainClient:
        opened.append(PlainClient(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(idempotent, "PlainClient", open_client)
    with SyncReliableProducer("shop", bootstrap_servers=broker.settings["bootstrap.servers"]) as producer:
        offsets = [producer.send("delays", partition=0).offset for _ in range(2)]
        assert len(opened) == 1
        for file in ("client.crt", "client.key"):
            shutil.copy(pems[1] / file, mine)
        offsets += [producer.send("delays", partition=0).offset for _ in range(5)]
        until(lambda: len(opened) == 2, 60, lambda: "no new client")
        offsets += [producer.send("delays", partition=0).offset for _ in range(2)]
    assert len(opened) == 2
    assert offsets == list(range(9))


def test_a_producer_with_transactions_connects_anew_between_two_of_them(
    pems: tuple[Path, Path], mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []

    class Session(BookmarkedSession):
        def __init__(self, name: str, *_: Any, **__: Any) -> None:
            self._files = CertificateFiles(properties(mine))
            events.append("open")

        def bookmarks(self, topics: Iterable[str], seconds: float) -> list[Bookmark]:
            return [Bookmark(number) for number in events if isinstance(number, int)]

        def send(self, records: Sequence[OutputRecord], bookmark: Bookmark, seconds: float) -> Any:
            events.append(bookmark.number)
            return [(0, bookmark.number)] * len(records)

        def idle(self) -> None:
            pass

        def abandon(self) -> None:
            events.append("close")

    monkeypatch.setattr(transactional, "BookmarkedSession", Session)
    with SyncReliableProducer("shop", bootstrap_servers="127.0.0.1:9", transactions=True) as producer:
        producer.send("delays")
        for file in ("client.crt", "client.key"):
            shutil.copy(pems[1] / file, mine)
        producer.send("delays")
        producer.send("delays")
    assert events == ["open", 1, "close", "open", 2, 3, "close"]


async def test_fausts_client_shows_the_new_certificate(pems: tuple[Path, Path], mine: Path) -> None:
    shown: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        shown.append(format(x509.load_der_x509_certificate(data).serial_number, "x"))
        writer.write(b"x")
        writer.close()

    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pems[0] / "broker.crt", pems[0] / "broker.raw")
    server_side.verify_mode = ssl.CERT_REQUIRED
    for pem in pems:
        server_side.load_verify_locations(pem / "ca.pem")
    server = await asyncio.start_server(note, "127.0.0.1", 0, ssl=server_side)
    context = KafkaSettings.from_env({}, **{
        name.replace(".", "_"): value for name, value in properties(mine).items()
    }).ssl_context()  # fmt: skip

    async def connect() -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.sockets[0].getsockname()[1], ssl=context
        )
        await reader.read()
        writer.close()

    await connect()
    shutil.copy(pems[1] / "client.key", mine)
    await connect()  # key and certificate do not fit: the pair before stays
    shutil.copy(pems[1] / "client.crt", mine)
    await connect()
    shutil.copy(pems[1] / "ca.pem", mine)
    with pytest.raises(ssl.SSLCertVerificationError):  # the old authority is not trusted any more
        await connect()
    serials = [
        format(x509.load_pem_x509_certificate((pem / "client.crt").read_bytes()).serial_number, "x")
        for pem in pems
    ]
    assert shown == [serials[0], serials[0], serials[1]]
    server.close()


def test_files_that_do_not_match_are_refused(pems: tuple[Path, Path], mine: Path) -> None:
    shutil.copy(pems[1] / "client.key", mine)
    with pytest.raises(ConfigError, match="not PEM files that match"):
        KafkaSettings.from_env(
            {}, **{name.replace(".", "_"): value for name, value in properties(mine).items()}
        ).ssl_context()


def test_secrets_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("lovelace\n")
    environ = {
        "STREAMAPP_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "STREAMAPP_SASL_MECHANISM": "PLAIN",
        "STREAMAPP_SASL_USERNAME": "ada",
        "STREAMAPP_SASL_PASSWORD_FILE": str(tmp_path / "password"),
    }
    assert KafkaSettings.from_env(environ).sasl_password == "lovelace"
    assert KafkaSettings.from_env(environ, sasl_password="given").sasl_password == "given"
    with pytest.raises(ConfigError, match="both set"):
        KafkaSettings.from_env(environ | {"STREAMAPP_SASL_PASSWORD": "x"})
    with pytest.raises(ConfigError, match="cannot be read"):
        KafkaSettings.from_env(environ | {"STREAMAPP_SASL_PASSWORD_FILE": "/nowhere"})
