"""Progress bars for Spark jobs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Listener", "Reporter", "polling", "progress_bar", "records_bar"]

INTERVAL_SECONDS = 0.3


class RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


def progress_bar() -> Progress:
    """A bar with counts, rate, time and time left on standard error; silent if standard error is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


@contextmanager
def polling(report: Callable[[], None] | None) -> Iterator[None]:
    """Calls ``report`` every 0.3 seconds from a thread while the body runs, and once after the body has succeeded.

    Errors of ``report`` during the body are ignored, because a progress bar must not end a job.
    """
    if report is None:
        yield
        return
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(INTERVAL_SECONDS):
            try:
                report()
            except Exception:
                continue

    thread = threading.Thread(target=poll, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    report()


@dataclass(frozen=True)
class Reporter:
    """Sends the driver the number of records that a task has processed, in UDP datagrams.

    A bar that counts only finished tasks would stand still for most of the time. UDP is enough, because a lost datagram
    does no harm and no task has to wait.
    """

    host: str
    port: int

    def start(self, task: str) -> Callable[[int], None]:
        """The function that a task calls with its count; at most one call in 0.3 seconds sends a datagram."""
        out, due = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0.0
        out.setblocking(False)

        def tell(processed: int) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + INTERVAL_SECONDS
                try:
                    out.sendto(f"{task} {processed}".encode(), (self.host, self.port))
                except OSError:
                    due = float("inf")

        return tell


class Listener:
    """The driver's end of the datagrams: keeps the last count of each task."""

    def __init__(self, host: str) -> None:
        """``host`` is the driver's address that the executors use."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self._socket.setblocking(False)
        self._counts: dict[str, int] = {}
        self.reporter: Reporter = Reporter(host, self._socket.getsockname()[1])

    def processed(self, subtopology: int) -> int:
        """The number of records that the tasks of a sub-topology have processed."""
        while True:
            try:
                task, count = self._socket.recv(100).decode().split()
            except BlockingIOError:
                break
            # A task that Spark has started again counts from the beginning.
            self._counts[task] = int(count)
        return sum(count for task, count in self._counts.items() if task.startswith(f"{subtopology}_"))

    def close(self) -> None:
        self._socket.close()


@contextmanager
def records_bar(spark: SparkSession, subtopology: int, name: str, total: int) -> Iterator[Listener]:
    """A bar over the records that a sub-topology processes while the body runs."""
    listener = Listener(spark.conf.get("spark.driver.host", "localhost") or "localhost")
    with closing(listener), progress_bar() as bar:
        line = bar.add_task(f"{subtopology}: {name}", total=total)
        with polling(lambda: bar.update(line, completed=listener.processed(subtopology))):
            yield listener
        bar.update(line, completed=total)
