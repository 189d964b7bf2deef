"""Metrics in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from streamapp.errors import ConfigError

__all__ = ["Metric", "MetricsSource", "exposition", "labelled", "metrics_text"]


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
    return _text(labelled(metrics, labels))


class MetricsSource(Protocol):
    """An object with counts: a producer, a consumer or the relay of an outbox."""

    def _families(self) -> Iterable[Metric]: ...


def metrics_text(*sources: MetricsSource) -> str:
    """The counts of several producers, consumers and relays in Prometheus' text format, for one metrics page.

    The text has each metric once, with the samples of all sources. Texts of ``exposition()`` that stand one after the
    other repeat metrics, and Prometheus refuses such a page. Raises `ConfigError` if two sources of a kind have the
    same name.

    >>> from streamapp.producer import SyncReliableProducer
    >>> text = metrics_text(SyncReliableProducer("orders-service"), SyncReliableProducer("payments-service"))
    >>> print("\\n".join(text.splitlines()[1:4]))
    # TYPE streamapp_producer_events_total counter
    streamapp_producer_events_total{producer="orders-service"} 0
    streamapp_producer_events_total{producer="payments-service"} 0
    """
    together: dict[str, tuple[Metric, list[tuple[Mapping[str, str], float]]]] = {}
    for source in sources:
        for metric in source._families():
            samples = together.setdefault(metric.name, (metric, []))[1]
            for labels, value in metric.samples:
                if any(labels == known for known, _ in samples):
                    named = ", ".join(f"{label} {text}" for label, text in labels.items())
                    raise ConfigError(
                        f"two sources have the counts of {named}, and Prometheus could not tell them apart: give each "
                        "source once, and each a name of its own"
                    )
                samples.append((labels, value))
    return _text(metric._replace(samples=samples) for metric, samples in together.values())


def labelled(metrics: Iterable[Metric], labels: Mapping[str, str]) -> Iterable[Metric]:
    """The metrics with further labels of each sample."""
    for metric in metrics:
        yield metric._replace(samples=[({**labels, **own}, value) for own, value in metric.samples])


def _text(metrics: Iterable[Metric]) -> str:
    lines = []
    for metric in metrics:
        samples = list(metric.samples)
        if not samples:
            continue
        name = f"streamapp_{metric.name}"
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
        for labels, value in samples:
            listed = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(
                f"{name}{{{listed}}} {value:.15g}"
                if isinstance(value, float)
                else f"{name}{{{listed}}} {int(value)}"
            )
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
