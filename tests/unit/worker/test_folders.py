"""The folders that an application makes when it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamapp import App


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_tables_of_faust_no_empty_folder_is_made(here: Path) -> None:
    App("shop")._create_directories()
    assert list(here.iterdir()) == []


def test_tables_of_faust_have_their_folder(here: Path) -> None:
    app = App("shop")
    app.Table("sales")
    app._create_directories()
    assert (here / "shop-data" / "v1" / "tables").is_dir()


def test_a_folder_that_was_asked_for_is_made(here: Path) -> None:
    App("shop", datadir=here / "data" / "worker-2")._create_directories()
    assert (here / "data" / "worker-2").is_dir()
