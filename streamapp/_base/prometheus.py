"""Metrics in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["Metric", "exposition"]


class Metric(NamedTuple):
    """A metric with its samples. A sample is a pair of labels and value, for example ``({"task": "0_1"}, 3)``."""

    name: str
    kind: str
    help: str
    samples: Iterable[tuple[Mapping[str, str], float]]


def exposition(metrics: Iterable[Metric], labels: Mapping[str, str]) -> str:
    """The text of some metrics. ``labels`` are added to each sample, and a metric without samples is left out.

    >>> print(exposition([Metric("lag", "gauge", "Behind.", [({"task": "0_1"}, 3)])], {"application": "a"}), end="")
    # HELP streamapp_lag Behind.
    # TYPE streamapp_lag gauge
    streamapp_lag{application="a",task="0_1"} 3
    """
    lines = []
    for metric in metrics:
        samples = list(metric.samples)
        if not samples:
            continue
        name = f"streamapp_{metric.name}"
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
        for own, value in samples:
            listed = ",".join(f'{key}="{_escaped(text)}"' for key, text in {**labels, **own}.items())
            lines.append(
                f"{name}{{{listed}}} {value:g}"
                if isinstance(value, float)
                else f"{name}{{{listed}}} {int(value)}"
            )
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
