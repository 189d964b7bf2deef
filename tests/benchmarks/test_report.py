"""Medians and ratios, without a broker."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.programs.meter import Job
from benchmarks.report import plot, ratio, throughput_table
from benchmarks.throughput import Run


def run(peer: str, cpu_us: float, workload: str = "w1") -> Run:
    return Run(peer, workload, 1_000, 0.1, cpu_us / 1e3, None, 1.0, 100, True)


RUNS = [
    *(run("streamapp", us) for us in (2.0, 3.0, 90.0)),
    *(run("kafka-streams", us) for us in (9.0, 12.0, 15.0)),
]


def test_a_ratio_is_one_of_medians() -> None:
    assert ratio(RUNS, "w1", "streamapp") == pytest.approx(3 / 12)
    assert ratio(RUNS, "w2", "streamapp") is None


def test_the_table_has_a_row_for_each_workload_and_peer() -> None:
    text = StringIO()
    Console(file=text, width=200).print(throughput_table([*RUNS, run("loop", 1.0, "w2")]))
    assert "0.25" in text.getvalue()
    assert len([line for line in text.getvalue().splitlines() if "w1" in line or "w2" in line]) == 3


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot([*RUNS, run("loop", 1.0, "w2")], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_program_gets_its_job_as_arguments() -> None:
    job = Job("w1", "localhost:9092", "app", "in", "out", "planes", 1_000, "/state", limit=2.5)
    assert Job.from_arguments(job.arguments()) == job
