"""A process that relays an outbox: for the tests that kill it.

    python -m tests.producer.relaying BOOTSTRAP DATABASE

Ends when the table is empty. DATABASE is a path, or PostgreSQL's address.
"""

from __future__ import annotations

import sys
import time

from streamapp.producer import OutboxDatabase, OutboxRelay, PostgresOutbox, SqliteOutbox


def database_at(address: str) -> OutboxDatabase:
    return PostgresOutbox(address) if "host=" in address else SqliteOutbox(address)


def main(bootstrap: str, address: str) -> None:
    waiting = database_at(address)
    with OutboxRelay("orders", database_at(address), bootstrap_servers=bootstrap) as relay:
        while waiting.count():
            time.sleep(0.05)
    print(*relay.metrics[:4], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
