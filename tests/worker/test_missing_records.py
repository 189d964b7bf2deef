"""Reconciliation on a worker: docs/how-to/find-missing-records.md."""

from __future__ import annotations

from ..processes import until
from .conftest import Cluster

MINUTE = 60_000
BEGAN = 1_700_000_000_000


def test_a_worker_names_each_record_that_is_missing_or_doubled(cluster: Cluster) -> None:
    sent, orders, gap = (f"{cluster.id}-{name}" for name in ("orders-sent", "orders", "orders-gap"))
    cluster.create(sent, orders, gap)
    ids = [f"o{number}" for number in range(200)]
    missing, doubled = set(ids[20:25]), set(ids[50:53])

    def feed(topic: str, id: str, at: int) -> None:
        cluster.producer.produce(topic, b"v", id, timestamp=BEGAN + at)

    for number, id in enumerate(ids):
        feed(sent, id, number)
        for _ in range(0 if id in missing else 2 if id in doubled else 1):
            feed(orders, id, number + 1_000)
    for number in range(100):  # time goes on in each partition
        feed(sent, f"later{number}", 30 * MINUTE)
        feed(orders, f"later{number}", 30 * MINUTE)
    cluster.producer.flush()
    cluster.start(app="missing_app")
    expected = {(id.encode(), b"missing") for id in missing} | {(id.encode(), b"2 copies") for id in doubled}
    until(lambda: len(cluster.read(gap)) >= len(expected), 60, cluster.story)
    assert cluster.workers[0].terminate() == 0
    found = cluster.read(gap)
    assert set(found) == expected
    assert len(found) == len(expected), "each once"
