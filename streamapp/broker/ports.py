"""TCP ports for local brokers."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable

from streamapp.broker.properties import HOST
from streamapp.errors import BrokerError

__all__ = ["check_port", "free_port"]

# Below the ranges from which Linux (32768) and macOS (49152) take the ports of outgoing connections: a
# broker that was killed finds its port free again.
_FREE_PORTS = range(20_000, 32_000)


def check_port(
    port: int,
    server: str = "Kafka",
    option: str = "--kafka-port",
    variable: str = "STREAMAPP_BOOTSTRAP_SERVERS",
) -> None:
    """Raise `BrokerError` unless a server can listen on ``port``."""
    if not _is_free(port):
        raise BrokerError(
            f"Port {port} is in use, so {server} cannot listen on it. Stop what uses it, choose another port "
            f"with --port ({option} where there are several), or, if a {server} of yours runs there, use it: set {variable}."
        )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the broker does it: a port whose last connections are only fading away counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise BrokerError(f"Port {port} of {HOST} cannot be listened on: {error}.") from error
    # macOS lets that bind succeed beside a listener on all interfaces.
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


def free_port(taken: Iterable[int]) -> int:
    """Return a port that nothing listens on and that is not in ``taken``."""
    for port in random.sample(_FREE_PORTS, 1_000):
        if port not in taken and _is_free(port):
            return port
    raise BrokerError(f"No free port was found from {_FREE_PORTS.start} to {_FREE_PORTS.stop}.")
