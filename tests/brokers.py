"""Brokers for tests that break none."""

from __future__ import annotations

from typing import Any

from streamapp.broker import LocalKafka

__all__ = ["SteadyKafka"]


class SteadyKafka(LocalKafka):
    """Its broker does not count as gone when the machine stands still for some seconds. (Local brokers have a short session,
    so that one that was killed is soon back; nobody kills this one.)"""

    def _write_cluster(self, cluster: Any) -> None:
        super()._write_cluster(cluster)
        path = self.data_dir / "broker-1" / "server.properties"
        lines = [
            line for line in path.read_text().splitlines() if not line.startswith("broker.session.timeout.ms")
        ]
        path.write_text("\n".join([*lines, "broker.session.timeout.ms=120000", ""]))
