"""How far a Spark job is, shown while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

__all__ = ["polling", "progress_bar"]

INTERVAL_SECONDS = 0.3


class RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


def progress_bar() -> Progress:
    """A bar with counts, rate and time on standard error; silent where that is not a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


@contextmanager
def polling(report: Callable[[], None] | None) -> Iterator[None]:
    """Calls ``report`` now and then from a thread while the body runs, and once after the body succeeded.

    What it raises during the body is ignored: a bar that lags must not end a job.
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
