"""TLS of the web server: workers and commands check its certificate, which may change while the worker runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography import x509

from streamapp._base.worker_client import open_worker
from streamapp.app import App
from streamapp.errors import ConfigError
from streamapp.web import connections
from streamapp.web.access import WebAccess
from streamapp.web.cluster import Peers
from tests.processes import free_port
from tests.secured import make_certificates

from .test_authentication import AS_ADA, ENVIRON, passing


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls") / "pem"
    make_certificates(folder)
    return folder


def environ_of(pem: Path) -> dict[str, str]:
    files = {"CERTIFICATE": "server.crt", "KEY": "server.key", "CA": "ca.pem"}
    return ENVIRON | {f"STREAMAPP_WEB_SSL_{name}_LOCATION": str(pem / file) for name, file in files.items()}


def put(pem: Path, folder: Path, name: str = "broker") -> None:
    """A certificate into its place, as an operator of Kubernetes does: each file is replaced."""
    for source, target in (
        (f"{name}.crt", "server.crt"),
        (f"{name}.raw", "server.key"),
        ("ca.pem", "ca.pem"),
    ):
        shutil.copy(pem / source, folder / "new")
        os.replace(folder / "new", folder / target)


async def serial_of(port: int, authority: Path) -> int:
    context = ssl.create_default_context(cafile=str(authority))
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    data = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(data).serial_number


def serial_in(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


async def test_a_new_certificate_counts_for_new_connections(
    pem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(pem, tmp_path)
    for name, value in environ_of(tmp_path).items():
        monkeypatch.setenv(name, value)
    app = App(
        "t",
        topology=passing,
        datadir=tmp_path / "data",
        bootstrap_servers="localhost:1",
        web_port=free_port(),
        web_bind="127.0.0.1",
    )
    app.web.prepare()
    app.web.init_server()
    await app.web.start_server()
    try:
        port = app.conf.web_port
        assert app.streams.url == f"https://{socket.gethostname().lower()}.localhost:{port}"
        assert await serial_of(port, pem / "ca.pem") == serial_in(pem / "broker.crt")
        url = f"https://127.0.0.1:{port}"
        async with aiohttp.ClientSession(headers=AS_ADA) as session:
            context = ssl.create_default_context(cafile=str(pem / "ca.pem"))
            async with session.get(f"{url}/status", ssl=context) as answer:
                assert answer.status == 200
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(f"{url}/status")
            again = tmp_path / "again"
            make_certificates(again)
            put(again, tmp_path)
            assert await serial_of(port, again / "ca.pem") == serial_in(again / "broker.crt")
            async with session.get(f"{url}/status", ssl=context) as answer:  # the open connection goes on
                assert answer.status == 200
        (tmp_path / "server.key").write_text("nonsense")
        assert await serial_of(port, again / "ca.pem") == serial_in(again / "broker.crt")
        assert "The previous certificate stays in use" in caplog.text
        monkeypatch.setenv("STREAMAPP_WEB_USER", "ada")
        monkeypatch.setenv("STREAMAPP_WEB_PASSWORD", "planted-passw0rd")
        answer = await asyncio.to_thread(open_worker, f"{url}/status", seconds=30)
        assert answer.status == 200
        monkeypatch.setenv("STREAMAPP_WEB_SSL_CA_LOCATION", str(pem / "ca.pem"))
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED.*Set STREAMAPP_WEB_SSL_CA_LOCATION"):
            await asyncio.to_thread(open_worker, f"{url}/status", seconds=30)
    finally:
        await app.web.stop_server()


async def test_workers_check_each_others_certificates(pem: Path, tmp_path: Path) -> None:
    put(pem, tmp_path)
    access = WebAccess(environ_of(tmp_path))

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"partitions": [0]})

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=access.server_context())
    url = f"https://127.0.0.1:{server.port}"
    request: Any = aiohttp.test_utils.make_mocked_request("GET", "/tables/t/")
    from streamapp.web.caller import CALLER, Caller

    CALLER.set(Caller())
    for tls, trusted in ((access.client_context, True), (ssl.create_default_context, False)):
        peers = Peers("flights", 30.0, tls=tls)
        async for _ in peers.run(app):
            if trusted:
                assert await peers.ask(url, request, [0]) == (200, {"partitions": [0]})
            else:
                with pytest.raises(Exception, match="certificate verify failed"):
                    await peers.ask(url, request, [0])
    await server.close()


def test_certificates_that_do_not_match_are_refused_at_the_start(pem: Path, tmp_path: Path) -> None:
    put(pem, tmp_path)
    shutil.copy(pem / "client.raw", tmp_path / "server.key")
    with pytest.raises(ConfigError, match="PEM files that match"):
        WebAccess(environ_of(tmp_path)).server_context()


async def test_connections_that_never_end_their_handshake_keep_nobody_out(
    pem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent connections, and half a greeting: beyond the limit and after the time they are closed."""
    put(pem, tmp_path)
    monkeypatch.setattr(connections, "most_connections", lambda: 10)
    for name, value in environ_of(tmp_path).items():
        monkeypatch.setenv(name, value)
    app = App(
        "t", topology=passing, datadir=tmp_path / "data", bootstrap_servers="localhost:1", web_port=free_port(),
        web_bind="127.0.0.1",
    )  # fmt: skip
    app.web.prepare()
    app.web.init_server()
    await app.web.start_server()
    port = app.conf.web_port
    silent = []
    try:
        for n in range(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(bytes.fromhex("16030102000100")[: n % 8])
            silent.append((reader, writer))
        assert await serial_of(port, pem / "ca.pem") == serial_in(pem / "broker.crt")
        for reader, _ in silent[:20]:  # asyncio's own time for a handshake is a minute
            assert await asyncio.wait_for(gone(reader), 30)
        monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        silent.append((reader, writer))
        assert await asyncio.wait_for(gone(reader), 30)
    finally:
        await app.web.stop_server()
        for _, writer in silent:
            writer.close()


async def gone(reader: asyncio.StreamReader) -> bool:
    try:
        return not await reader.read()
    except ConnectionError:
        return True
