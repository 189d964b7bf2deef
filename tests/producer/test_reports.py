"""Reports run code of the application, which may call the producer again."""

from __future__ import annotations

import subprocess
import sys

OUTAGE = """
import time
from streamapp.producer import DeliveryError, SyncReliableProducer

with SyncReliableProducer("orders", bootstrap_servers="127.0.0.1:9", delivery_timeout_ms=300) as producer:
    reports = [producer.send_soon("orders", value=b"v") for _ in range(5)]
    seen = []
    for report in reports:
        report.add_done_callback(lambda done: seen.append(producer.flush(0.01)))
    for report in reports:
        assert isinstance(report.exception(30), DeliveryError)
    while len(seen) < 5:
        time.sleep(0.01)
    print(producer.metrics.failed, "failed")
"""


def test_records_that_fail_together_do_not_end_the_process() -> None:
    """A process of its own, because confluent-kafka ended it: librdkafka's callbacks asked for the names of topics."""
    done = subprocess.run([sys.executable, "-c", OUTAGE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "5 failed\n"
