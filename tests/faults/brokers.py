"""A local cluster that workers can reach through proxies. The driver reaches the cluster directly."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from ..brokers import LightKafka, read_settings, set_quota, set_settings
from ..processes import free_port
from .proxy import Link, Proxy

__all__ = ["LINKS", "FaultyKafka"]

LINKS = ("A",)


class FaultyKafka(LightKafka):
    """A cluster in which each broker has a listener for each link. The listener advertises the address of a proxy."""

    def __init__(self, data_dir: Path, brokers: int, port: int = 0) -> None:
        super().__init__(data_dir, brokers=brokers, port=port, heap_mb=384)
        self._ports = {(link, n): (free_port(), free_port()) for link in LINKS for n in range(1, brokers + 1)}
        """(link, broker) -> (port of the listener, port of the proxy)."""
        self.links: dict[str, Link] = {}
        self.link_in_use = threading.Lock()

    def start(self, *, detached: bool = False) -> None:
        super().start(detached=detached)
        for link in LINKS:
            ports = [self._ports[key] for key in sorted(self._ports) if key[0] == link]
            self.links[link] = Link([Proxy(proxy, listener) for listener, proxy in ports])

    def stop(self) -> None:
        for link in self.links.values():
            link.close()
        super().stop()

    @property
    def numbers(self) -> range:
        return range(1, len(self.status().brokers) + 1)

    def set_quota(self, client_id: str, **limits: int) -> None:
        set_quota(self, client_id, **limits)

    def dropped_markers(self, application: str) -> str | None:
        """The line of a broker's log that says that the broker has skipped the markers of a transaction of this
        application. None: there is no such line."""
        for log in sorted(self.data_dir.glob("broker-*/broker.log")):
            for line in log.read_text(errors="replace").splitlines():
                if (
                    "TransactionMarkerChannelManager" in line
                    and "leader endpoint" in line
                    and application in line
                ):
                    return line
        return None

    def _write_cluster(self, cluster: Any) -> None:
        super()._write_cluster(cluster)
        for number in range(1, len(cluster.ports) + 1):
            settings = read_settings(self, number)
            for link in LINKS:
                listener, proxy = self._ports[link, number]
                settings["listeners"] += f",{link}://127.0.0.1:{listener}"
                settings["advertised.listeners"] += f",{link}://127.0.0.1:{proxy}"
                settings["listener.security.protocol.map"] += f",{link}:PLAINTEXT"
            set_settings(self, number, settings)
