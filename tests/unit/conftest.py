"""Certificates of a client that tests replace; a log in which each line of a test stands."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from streamapp._base.repetitions import LOGGERS_OF_DROPS
from streamapp.broker import certificates
from tests.secured import make_certificates


@pytest.fixture(autouse=True)
def each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the filter of repeated lines that another test's runner has left in this process."""
    for name in LOGGERS_OF_DROPS:
        monkeypatch.setattr(logging.getLogger(name), "filters", [])


@pytest.fixture(scope="session")
def pems(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pem")
    make_certificates(folder / "a")
    make_certificates(folder / "b")
    return folder / "a", folder / "b"


@pytest.fixture
def mine(pems: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a client, at first those of the first folder. Clients see each change at once."""
    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0.0)
    shutil.copytree(pems[0], tmp_path / "mine")
    return tmp_path / "mine"
