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
_METADATA = f"{LOG_FOLDER}/__cluster_metadata-0"
_SECONDS = 30.0
"""The time that the controllers have to elect one of them."""
_ACTIVE_SECONDS = 3.0
"""The time that the elected controller has to declare the brokers gone (Kafka: to fence them).

A broker that was killed early has no session.
"""
_ORDERLY_SECONDS = 2.0
"""The time for an orderly stop. A controller of three often waits for another one that has ended."""
_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.05


def was_killed(folder: Path) -> bool:
    """True if the broker of a folder has run, and was not shut down."""
    return (folder / _METADATA).exists() and not (folder / LOG_FOLDER / ".kafka_cleanshutdown").exists()


def end_former_sessions(
    java_command: Sequence[str], brokers: Mapping[int, Path], killed: Sequence[int]
) -> None:
    """Runs the controllers without the brokers until the sessions of the ``killed`` brokers have ended.

    ``brokers`` has the folder of each broker of the cluster by id. No broker of the cluster may run.

    If a controller fails, or the sessions have not ended in time, the function returns without an error. The time limit
    is 30 s until a controller is elected, and 3 s from then on. At the end, the function stops the controllers. The
    caller next starts controllers and brokers together, and this start reports a controller that fails.
    """
    folders = list(brokers.values())
    controllers = [BrokerProcess(folder, "controller") for folder in folders]
    try:
        for folder, controller in zip(folders, controllers, strict=True):
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
        if _fenced(controllers, killed):
            _await_next_record(folders)
        for controller in controllers:
            controller.signal(SIGTERM)
        deadline = time.monotonic() + _ORDERLY_SECONDS
        for controller in controllers:
            controller.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for controller in controllers:
            controller.signal(SIGKILL)
            controller.wait(_STOP_SECONDS)


def _fenced(controllers: Sequence[BrokerProcess], killed: Sequence[int]) -> bool:
    """Waits until a controller has declared the brokers gone (Kafka: has fenced them).

    False: the time is over, or a controller has ended.
    """

    def logged(text: str) -> bool:
        return any(each.has_logged(text) for each in controllers)

    deadline = time.monotonic() + _SECONDS
    while not all(logged(f"Fencing broker {number} at epoch") for number in killed):
        if logged("Activated periodic tasks"):
            deadline = min(deadline, time.monotonic() + _ACTIVE_SECONDS)
        if time.monotonic() > deadline or any(each.pid is None for each in controllers):
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _await_next_record(folders: Sequence[Path]) -> None:
    """Waits until the metadata log of each controller has grown.

    A controller decides first and writes then, and an idle controller writes a record each 0.5 s. So when a log has
    grown after the decision, the log has the decision.
    """
    logs = [folder / _METADATA for folder in folders]
    before = [_size(log) for log in logs]
    deadline = time.monotonic() + _ACTIVE_SECONDS
    while (
        any(_size(log) == size for log, size in zip(logs, before, strict=True))
        and time.monotonic() < deadline
    ):
        time.sleep(_LOOK_SECONDS)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))
