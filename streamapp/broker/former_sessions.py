"""Ends the sessions of killed brokers before these brokers start again.

A killed broker counts as alive until its session has run out. If the broker starts meanwhile, it takes its partitions
at once, and loses them for a moment when the session ends. At this moment, Kafka 4.3 drops the markers of transactions
that its coordinator is ending. Such transactions hang, or the next commit makes their aborted records visible.

So the controllers first run without the brokers until they have noticed that the brokers are gone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM

from streamapp.broker.broker_process import BrokerProcess, write_atomically
from streamapp.broker.properties import LOG_FOLDER, controller_properties, parse, render

__all__ = ["end_former_sessions", "was_killed"]

_PROPERTIES = "controller.properties"
_SECONDS = 30.0
"""The time that the controllers have to elect one of them."""
_ACTIVE_SECONDS = 3.0
"""The time that the elected controller has to fence the brokers. A broker that was killed early has no session."""
_ORDERLY_SECONDS = 2.0
"""The time for an orderly stop. A controller of three often waits for another one that has ended."""
_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.05


def was_killed(folder: Path) -> bool:
    """True if the broker of a folder has run, and was not shut down."""
    logs = folder / LOG_FOLDER
    return (logs / "__cluster_metadata-0").exists() and not (logs / ".kafka_cleanshutdown").exists()


def end_former_sessions(
    java_command: Sequence[str], brokers: Mapping[int, Path], killed: Sequence[int]
) -> None:
    """Ends the sessions of the ``killed`` brokers. ``brokers`` has the folder of each broker of the cluster by id.

    No broker of the cluster may run. The brokers find a controller that fails by themselves, so this function reports
    no failure.
    """
    controllers = [BrokerProcess(folder, "controller") for folder in brokers.values()]
    try:
        for folder, controller in zip(brokers.values(), controllers, strict=True):
            node = parse((folder / "server.properties").read_text())
            write_atomically(folder / _PROPERTIES, render(controller_properties(node)))
            # The program runs for some seconds, which are too short for the optimising compiler.
            command = [
                java_command[0],
                "-XX:TieredStopAtLevel=1",
                *java_command[1:],
                "kafka.Kafka",
                _PROPERTIES,
            ]
            controller.start(command, detached=False)
        _await_fencing(controllers, killed)
        for controller in controllers:
            controller.signal(SIGTERM)
        deadline = time.monotonic() + _ORDERLY_SECONDS
        for controller in controllers:
            controller.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for controller in controllers:
            controller.signal(SIGKILL)
            controller.wait(_STOP_SECONDS)


def _await_fencing(controllers: Sequence[BrokerProcess], killed: Sequence[int]) -> None:
    def logged(text: str) -> bool:
        return any(each.has_logged(text) for each in controllers)

    deadline = time.monotonic() + _SECONDS
    while not all(logged(f"Fencing broker {number} at epoch") for number in killed):
        if logged("Activated periodic tasks"):
            deadline = min(deadline, time.monotonic() + _ACTIVE_SECONDS)
        if time.monotonic() > deadline or any(each.pid is None for each in controllers):
            return
        time.sleep(_LOOK_SECONDS)
