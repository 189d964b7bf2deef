"""TCP ports for local brokers, and for workers of tests."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import random
import socket
import threading
from functools import cache

from streamapp.broker.distribution import cache_folder
from streamapp.broker.properties import HOST
from streamapp.errors import BrokerError

__all__ = ["check_port", "free_port"]

_logger = logging.getLogger(__name__)

# Linux takes the ports of outgoing connections from 32768 on, macOS from 49152 on. Below these ranges, a broker that
# starts again after a kill finds its port free.
_FREE_PORTS = range(20_000, 32_000)
_MOST_TRIES = 1_000
_reserving = threading.Lock()
_reserved: set[int] = set()
"""The ports that this process has reserved. A lock keeps out other processes only."""


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


def free_port() -> int:
    """Return a port without a listener, and reserve the port until this process ends.

    Meanwhile no other call returns the port, in this process or in another one that can write the same cache folder.
    So the caller has time to start the program that listens on the port, also once more after a kill.

    Raises `BrokerError` if none of 1,000 random ports is free.
    """
    for port in random.sample(_FREE_PORTS, _MOST_TRIES):
        with _reserving:
            reserved = _reserve(port)
        if reserved and _is_free(port):
            return port
    raise BrokerError(
        f"None of {_MOST_TRIES:,} random ports from {_FREE_PORTS.start} to {_FREE_PORTS.stop - 1} is free: name a port."
    )


def _reserve(port: int) -> bool:
    """Locks the byte of the port in a file. The system ends the lock with the process, however the process ends.

    If the file cannot be opened or locked, for example in a cache folder of another user, the port is reserved in this
    process only.
    """
    if port in _reserved:
        return False
    file = _reservations()
    if file is not None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            _logger.debug("ports are not reserved for other processes: %s", error)
    _reserved.add(port)
    return True


@cache
def _reservations() -> int | None:
    """The file of all reservations, which stays open: a process that closes the file loses its locks."""
    try:
        return os.open(cache_folder() / "ports.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except (OSError, BrokerError) as error:
        _logger.debug("ports are not reserved for other processes: %s", error)
        return None
