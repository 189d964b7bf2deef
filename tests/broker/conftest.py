"""Fixtures for the tests of `streamapp.broker`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def fake_java(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """Put a ``java`` first on the PATH that is nothing but the shell script given."""

    def install(script: str) -> Path:
        folder = tmp_path_factory.mktemp("bin")
        java = folder / "java"
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return java

    return install
