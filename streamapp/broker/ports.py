"""TCP ports for local brokers."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable

from streamapp.broker.properties import HOST
from streamapp.errors import BrokerError

__all__ = ["check_port", "free_port"]

# Linux takes the ports of outgoing connections from 32768 on, macOS from 49152 on. Below these ranges, a broker that
# starts again after a kill finds its port free.
_FREE_PORTS = range(20_000, 32_000)


def check_port(
    port: int,
    server: str = "Kafka",
    option: str = "--port",
    variable: str = "STREAMAPP_BOOTSTRAP_SERVERS",
) -> None:
    """Raise `BrokerError` unless a server can listen on ``port``; ``option`` of the command names another port."""
    if not _is_free(port):
        raise BrokerError(
            f"Port {port} is in use, so {server} cannot listen on it. Stop the program on this port, or choose another "
            f"port with {option}. To use a {server} that runs there, set {variable}."
        )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # The broker sets the same option: a port whose last connections are only in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise BrokerError(
                f"Port {port} of {HOST} cannot be used: {error}. Choose another port."
            ) from error
    # On macOS, the bind succeeds beside a listener on all interfaces.
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


def free_port(taken: Iterable[int]) -> int:
    """Return a port without a listener that is not in ``taken``. Raise `BrokerError` if none of 1,000 random ports is
    free."""
    for port in random.sample(_FREE_PORTS, 1_000):
        if port not in taken and _is_free(port):
            return port
    raise BrokerError(
        f"None of 1,000 random ports from {_FREE_PORTS.start} to {_FREE_PORTS.stop - 1} is free: name a port."
    )
