"""A process that sends numbers: for the tests that kill it.

    python -m tests.producer.sender BOOTSTRAP TOPIC SPILL_DIR FIRST COUNT

Prints ``safe N`` when number N is confirmed or in the local log.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future
from functools import partial

from streamapp.producer import DeliveryReport, SyncReliableProducer


def main(bootstrap: str, topic: str, folder: str, first: str, count: str) -> None:
    def tell(number: int, report: Future[DeliveryReport]) -> None:
        if report.exception() is None:
            print("safe", number, "spilled" if report.result().spilled else "confirmed", flush=True)

    with SyncReliableProducer(
        "numbers", bootstrap_servers=bootstrap, spill_dir=folder, spill_after_ms=300, close_timeout_ms=60_000
    ) as producer:
        print("open", flush=True)
        for number in range(int(first), int(first) + int(count)):
            producer.send_soon(topic, key=b"k", value=b"%d" % number).add_done_callback(partial(tell, number))
        producer.flush()
    print("done", producer.metrics.unconfirmed, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
