"""The first line in the log of a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["introduction"]


def introduction(app: Any, state: Path | None) -> str:
    """The addresses of Kafka and of this worker's web server, and the state folder. ``state`` is None for a worker
    without a topology, whose web server has no page."""
    config = app.config
    security = config.client_properties.get("security.protocol", "PLAINTEXT")
    parts = [
        f"{config.application_id} starts: Kafka at {config.bootstrap_servers}"
        + ("" if security == "PLAINTEXT" else f" ({security})")
    ]
    if state is not None:
        parts.append(f"state in {state}")
    if app.conf.web_enabled:
        address = app.web_server_url
        # A worker on loopback has the name <host>.localhost, which not every browser can resolve.
        if str(address.host).endswith(".localhost"):
            address = address.with_host("localhost")
        parts.append(
            f"status at {address.with_path('/status')}"
            if state is None
            else f"page and tables at {address.with_path('/')}"
        )
    return ", ".join(parts)
