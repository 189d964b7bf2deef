"""`orders` on a broker, fed piece by piece while a runner works, and the table that comes out."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable

from confluent_kafka import Producer

from streamapp import StreamsConfig, Topology
from streamapp.broker import KafkaAdmin, KafkaSettings, TopicSpec

from .orders import changes, config, fold, topology
from .topic_reader import read_topic

PARTITIONS = 2


class OrdersOnKafka:
    """One application with topics of its own, and its changes by chance."""

    def __init__(self, servers: str, state_dir: str, kind: str, count: int, **settings: object) -> None:
        self.settings = KafkaSettings(bootstrap_servers=servers)
        self._prefix = f"fk-{uuid.uuid4().hex[:8]}-"
        self._kind = kind
        names = [self._prefix + name for name in ("orders", "sellers", "joined")]
        KafkaAdmin(self.settings).ensure_topics([TopicSpec(name, PARTITIONS, {}) for name in names])
        self._chance = random.Random(7)
        self._history = list(changes(self._chance, count, keys=count // 100))
        self.expected = fold(kind, self._history)
        self.config: StreamsConfig = config(
            f"{self._prefix}app", bootstrap_servers=servers, state_dir=state_dir, **settings
        )

    def topology(self) -> Topology:
        return topology(self._kind, self.config, prefix=self._prefix)

    def feed(self, check: Callable[[], None]) -> None:
        """Pieces of any size, with pauses in which commits fall anywhere."""
        producer = Producer(
            {
                "bootstrap.servers": self.settings.bootstrap_servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
            }
        )
        at = 0
        while at < len(self._history):
            piece = self._history[at : at + self._chance.choice((3, 20, 120))]
            for number, (side, key, value) in enumerate(piece, at):
                producer.produce(
                    self._prefix + side, value and value.encode(), key, timestamp=1_700_000_000_000 + number
                )
            producer.flush()
            at += len(piece)
            check()
            time.sleep(self._chance.choice((0, 0.05, 0.3)))

    def table(self) -> dict[str, str]:
        """The last written value by key."""
        latest: dict[str, str | None] = {}
        for message in read_topic(self.settings.bootstrap_servers, f"{self._prefix}joined"):
            value = message.value()
            latest[message.key().decode()] = None if value is None else value.decode()
        return {key: value for key, value in latest.items() if value is not None}
