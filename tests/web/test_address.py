"""A worker claims its web address before it does anything else."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from streamapp import App, StreamsBuilder, StringSerde
from streamapp.web.cluster import open_session
from tests.processes import free_port


def _passing(builder: StreamsBuilder) -> None:
    text = StringSerde()
    builder.stream("in", key_serde=text, value_serde=text).to("out")


def _app(tmp_path: Path, port: int, **settings: Any) -> App:
    return App(
        "t",
        topology=_passing,
        datadir=tmp_path / "data",
        bootstrap_servers="localhost:1",
        web_port=port,
        **settings,
    )


async def test_a_worker_whose_port_is_taken_leaves_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use") as refused:
        await _app(tmp_path, taken.getsockname()[1]).on_first_start()
    assert refused.value.errno == errno.EADDRINUSE
    assert not (tmp_path / "data").exists()


async def test_the_port_is_free_again_for_the_server_itself(tmp_path: Path) -> None:
    port = free_port()
    await _app(tmp_path, port).on_first_start()
    assert (tmp_path / "data").is_dir()
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_a_worker_without_web_server_asks_for_no_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        await _app(tmp_path, taken.getsockname()[1], web_enabled=False).on_first_start()
    assert (tmp_path / "data").is_dir()


async def test_a_worker_on_loopback_of_another_machine_is_named_with_the_remedy() -> None:
    """The error had only the host and [None]."""
    async with open_session() as session:
        with pytest.raises(aiohttp.ClientConnectorError, match=r"other\.localhost listens on.*set web_bind"):
            await session.get("http://other.localhost:6066/")
