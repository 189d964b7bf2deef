"""Medians, ratios and a plot of the measurements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.throughput import Run

__all__ = ["plot", "ratio", "throughput_table"]

BASELINE = "kafka-streams"


def _grouped(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.workload, run.peer].append(run)
    return dict(sorted(groups.items()))


def ratio(runs: Iterable[Run], workload: str, peer: str, baseline: str = BASELINE) -> float | None:
    """CPU per event of a peer over that of another, medians; None if one of them was not run."""
    groups = _grouped(runs)
    if (workload, peer) not in groups or (workload, baseline) not in groups:
        return None
    ours, theirs = groups[workload, peer], groups[workload, baseline]
    return median(run.cpu_us for run in ours) / median(run.cpu_us for run in theirs)


def throughput_table(runs: list[Run]) -> Table:
    """One row for each workload and peer: medians."""
    table = Table(
        "workload", "peer", "runs", title=f"CPU per event; ratio: to {BASELINE}", title_justify="left"
    )
    for column in ("events/s", "CPU µs", "range", "second half", "ratio", "MiB", "correct"):
        table.add_column(column, justify="right", no_wrap=True)
    for (workload, peer), group in _grouped(runs).items():
        costs = [run.cpu_us for run in group]
        halves = [run.second_half_cpu_us for run in group if run.second_half_cpu_us is not None]
        share = ratio(runs, workload, peer)
        table.add_row(
            workload,
            peer,
            str(len(group)),
            f"{median(run.events_per_second for run in group):,.0f}",
            f"{median(costs):.2f}",
            f"{min(costs):.1f} to {max(costs):.1f}",
            f"{median(halves):.2f}" if halves else "",
            f"{share:.2f}" if share is not None else "",
            f"{median(run.memory_mib for run in group):,.0f}",
            ", ".join(
                sorted({{True: "yes", False: "NO", None: "ended early"}[run.correct] for run in group})
            ),
        )
    return table


def plot(runs: list[Run], file: Path) -> None:
    """CPU per event by workload, a bar for each peer, logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = _grouped(runs)
    workloads = sorted({workload for workload, _ in groups})
    peers = sorted({peer for _, peer in groups}, key=lambda peer: (peer != "streamapp", peer))
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    width = 0.8 / len(peers)
    for number, peer in enumerate(peers):
        there = [(at, groups[w, peer]) for at, w in enumerate(workloads) if (w, peer) in groups]
        heights = [median(run.cpu_us for run in group) for _, group in there]
        bars = axes.bar([at + number * width for at, _ in there], heights, width, label=peer)
        axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.set_yscale("log")
    axes.set_xticks([at + 0.4 - width / 2 for at in range(len(workloads))], workloads)
    axes.set_ylabel("CPU µs per event")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)
