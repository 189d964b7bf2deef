"""A soak by tenths, the verdict on each quantity, and the plot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.soak import Sample, Soaked
from streamapp._base.counted import counted

__all__ = ["QUANTITIES", "grows", "plot", "show", "tenths_table"]


class Quantity(NamedTuple):
    title: str
    of: Callable[[Sample], float | None]
    """Gives None for a sample without this quantity."""
    growth: float
    """The largest ratio of the medians of the last and the middle third of a run; the first third warms up.

    The limit of latency is wider, because latency depends on the other work of the machine.
    """


def _latency(workload: str, share: str) -> Callable[[Sample], float | None]:
    return lambda sample: getattr(sample, share) if sample.workload == workload else None


QUANTITIES = (
    Quantity("RSS one", lambda sample: sample.taken.rss_mib[0], 1.05),
    Quantity("RSS two", lambda sample: sample.taken.rss_mib[1], 1.05),
    Quantity("files one", lambda sample: sample.taken.files[0], 1.05),
    Quantity("files two", lambda sample: sample.taken.files[1], 1.05),
    Quantity("disk", lambda sample: sample.taken.disk_mib, 1.05),
    Quantity("counts p50", _latency("counts", "p50"), 1.5),
    Quantity("counts p99", _latency("counts", "p99"), 1.5),
    Quantity("sessions p50", _latency("sessions", "p50"), 1.5),
    Quantity("sessions p99", _latency("sessions", "p99"), 1.5),
    Quantity("lag", lambda sample: sample.lag, 1.5),
)


def _median(samples: list[Sample], quantity: Quantity) -> float | None:
    values = [value for value in map(quantity.of, samples) if value is not None]
    return median(values) if values else None


def _parts(samples: list[Sample], count: int) -> list[list[Sample]]:
    """The samples of equal parts of the time."""
    end = samples[-1].minute
    parts: list[list[Sample]] = [[] for _ in range(count)]
    for sample in samples:
        parts[min(count - 1, int(sample.minute / end * count))].append(sample)
    return parts


def grows(samples: list[Sample], quantity: Quantity) -> bool | None:
    """True if the last third is larger than the middle third by more than the limit. None: a third has no value."""
    _, middle, last = (_median(third, quantity) for third in _parts(samples, 3))
    if middle is None or last is None:
        return None
    return last > middle * quantity.growth


def tenths_table(samples: list[Sample]) -> Table:
    """The median of each tenth of the run, and the verdicts."""
    table = Table("tenth", title="Soak: medians (MiB, files, MiB on disk, ms, events)", title_justify="left")
    for quantity in QUANTITIES:
        table.add_column(quantity.title, justify="right")
    for number, part in enumerate(_parts(samples, 10), 1):
        table.add_row(str(number), *(_text(_median(part, quantity)) for quantity in QUANTITIES))
    for title, number in (("middle third", 1), ("last third", 2)):
        part = _parts(samples, 3)[number]
        table.add_row(title, *(_text(_median(part, quantity)) for quantity in QUANTITIES))
    words = {True: "GROWS", False: "flat", None: ""}
    table.add_row("verdict", *(words[grows(samples, quantity)] for quantity in QUANTITIES))
    return table


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def show(found: Soaked, console: Console) -> None:
    console.print(tenths_table(found.samples))
    waits = [
        max((s.worst or 0.0) for s in found.samples if begin <= s.minute <= end)
        for begin, end in zip(found.kills, [*found.kills[1:], found.samples[-1].minute], strict=True)
        if any(begin <= s.minute <= end for s in found.samples)
    ]
    if waits:
        console.print(
            f"{len(found.kills)} kills; the result that waited longest after a kill: "
            f"{median(waits) / 1e3:.1f} s (median), {max(waits) / 1e3:.1f} s (most)"
        )
    console.print(f"{counted(found.events, 'event')}, {counted(found.results_twice, 'result')} came twice")
    console.print("\n".join(["[red]WRONG[/red]", *found.wrong]) if found.wrong else "every result is right")


def plot(found: Soaked, file: Path) -> None:
    """Memory, files, disk and latency over the minutes; kills are thin lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "soak", "font.size": 8}
    samples = found.samples
    minutes = [sample.minute for sample in samples]
    figure, (memory, files, disk, latency) = pyplot.subplots(4, sharex=True, figsize=(9, 9))
    memory.plot(minutes, [s.taken.rss_mib[0] for s in samples], label="worker one, which lives on")
    memory.plot(minutes, [s.taken.rss_mib[1] for s in samples], label="worker two, which is killed")
    files.plot(minutes, [s.taken.files[0] for s in samples])
    files.plot(minutes, [s.taken.files[1] for s in samples])
    disk.plot(minutes, [s.taken.disk_mib for s in samples], color="tab:green")
    for name, colour in (("counts", "tab:purple"), ("sessions", "tab:brown")):
        for share, style in (("p50", "-"), ("p99", ":")):
            values = [getattr(s, share) if s.workload == name else None for s in samples]
            line = [float("nan") if value is None else value for value in values]
            latency.plot(minutes, line, style, color=colour, label=f"{name} {share}")
    latency.set_yscale("log")
    latency.set_xlabel("minutes; thin lines: kill -9 of worker two")
    for axes, label in (
        (memory, "RSS, MiB"),
        (files, "open files"),
        (disk, "state on disk, MiB"),
        (latency, "ms"),
    ):
        axes.set_ylabel(label)
        if axes is not latency:
            axes.set_ylim(bottom=0)
        for kill in found.kills:
            axes.axvline(kill, color="grey", linewidth=0.3)
    memory.legend()
    latency.legend(ncols=4)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
