"""Runs one application in turns: Java, then Python, then Java ... each on what the one before left in Kafka."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from confluent_kafka import Producer

from streamapp import StreamsBuilder, StreamsConfig
from streamapp.broker import KafkaAdmin, KafkaSettings
from streamapp.testing import Backlog, WorkerProcess

from ..processes import free_port
from .flights import INPUTS, OUTPUTS, describe_flights
from .java_side import JavaApplication
from .records import Input

__all__ = ["Application", "Side"]

Side = Literal["java", "python"]
ROOT = Path(__file__).parents[2]


@dataclass
class Application:
    """An application whose topics all begin with its id: outputs and inputs with ``<id>.``, internal ones ``<id>-``."""

    id: str
    bootstrap: str
    guarantee: str
    class_path: str
    folder: Path
    logs: list[Path] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.prefix = f"{self.id}."
        self.kafka = KafkaSettings(bootstrap_servers=self.bootstrap)
        self.admin = KafkaAdmin(self.kafka)
        self.admin.ensure_topics(
            (f"{self.prefix}{name}", count, {})
            for name, count in {**INPUTS, **dict.fromkeys(OUTPUTS, 3)}.items()
        )
        config = StreamsConfig(self.id, bootstrap_servers=self.bootstrap, statestore_cache_max_bytes=0)
        builder = StreamsBuilder(config)
        describe_flights(builder, self.prefix)
        self.topology = builder.build()
        self.plan = self.topology.plan()

    def feed(self, rows: Sequence[Input]) -> None:
        """Writes input."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for row in rows:
            value = None if row.value is None else row.value.encode()
            producer.produce(
                f"{self.prefix}{row.topic}", value, row.key, row.partition, timestamp=row.timestamp
            )
        assert producer.flush(30) == 0

    def turn(self, side: Side) -> None:
        """One side processes and commits all there is, and stops in order."""
        with self.running(side) as process, Backlog(self.plan, self.kafka) as backlog:
            deadline = time.monotonic() + 300  # it takes seconds, but tests share machines
            while not backlog.empty():
                log = self.logs[-1]
                assert process.running, log.read_text()[-5000:]
                assert time.monotonic() < deadline, f"{backlog.progress()}\n{log.read_text()[-5000:]}"
                time.sleep(0.1)

    @contextmanager
    def running(self, side: Side) -> Iterator[JavaApplication | WorkerProcess]:
        log = self.folder / f"{self.id}-{len(self.logs)}-{side}.log"
        self.logs.append(log)
        with self._java(log) if side == "java" else self._python(log) as process:
            yield process

    def _java(self, log: Path) -> JavaApplication:
        settings = {
            "application.id": self.id,
            "bootstrap.servers": self.bootstrap,
            "processing.guarantee": self.guarantee,
            **self._membership(),
            "state.dir": str(self.folder / "java"),
            "commit.interval.ms": "200",
            "statestore.cache.max.bytes": "0",
            # Java looks for unmatched joins and closed windows once a second of the machine's clock; ours at each record.
            "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": "0",
            "__emit.interval.ms.kstreams.windowed.aggregation__": "0",
        }
        return JavaApplication(self.class_path, self.prefix, settings, log)

    def _membership(self) -> dict[str, str]:
        """Each guarantee goes with one of the two protocols of groups, so that both take turns with workers."""
        if self.guarantee == "exactly_once_v2":
            return {"group.protocol": "streams"}
        # Java does not leave such a group, and the next side waits for the end of the session: by default 45 s.
        return {"group.protocol": "classic", "session.timeout.ms": "12000"}

    def _python(self, log: Path) -> WorkerProcess:
        port = free_port()
        environ = {
            "INTEROP_APP": self.id,
            "INTEROP_PREFIX": self.prefix,
            "INTEROP_BOOTSTRAP": self.bootstrap,
            "INTEROP_GUARANTEE": self.guarantee,
            "INTEROP_DATA": str(self.folder / "python"),
            "INTEROP_WEB_PORT": str(port),
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        }
        return WorkerProcess("tests.interop.flights", web_port=port, log=log, environ=environ)
