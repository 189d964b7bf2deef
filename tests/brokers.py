"""Brokers for tests that break none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from streamapp.broker import LocalKafka
from streamapp.broker.properties import parse, render

__all__ = ["LightKafka", "SteadyKafka", "read_settings", "set_settings"]


class LightKafka(LocalKafka):
    """Brokers for a short life: they are not compiled for speed, which takes more CPU than all that tests send."""

    def _java(self) -> list[str]:
        java, *options = super()._java()
        return [java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options]


class SteadyKafka(LightKafka):
    """Its broker does not count as gone when the machine stands still for some seconds. (Local brokers have a short session,
    so that one that was killed is soon back; nobody kills this one.)"""

    more_settings: ClassVar[Mapping[str, str]] = {}
    """What the settings of a derived class are beside those of a local broker."""

    def _write_cluster(self, cluster: Any) -> None:
        super()._write_cluster(cluster)
        set_settings(self, 1, {"broker.session.timeout.ms": "120000", **self.more_settings})


def read_settings(kafka: LocalKafka, number: int) -> dict[str, str]:
    """The settings in the file of a broker."""
    return parse(_file(kafka, number).read_text())


def set_settings(kafka: LocalKafka, number: int, settings: Mapping[str, str]) -> None:
    """Writes settings into the file of a broker."""
    known = read_settings(kafka, number) | settings
    _file(kafka, number).write_text(render(known))


def _file(kafka: LocalKafka, number: int) -> Path:
    return kafka.data_dir / f"broker-{number}" / "server.properties"
