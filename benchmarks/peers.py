"""The peers: how each one's program is started."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.many_keys import WORKLOADS
from benchmarks.programs.meter import Job
from streamapp.broker.distribution import KAFKA_VERSION, find_java, maven_jars

__all__ = ["PEERS", "Peer"]

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Peer:
    name: str
    command: Callable[[Path], list[str]]
    """Gives the command that starts the program. The argument is a folder for files that have to be built."""
    workloads: tuple[str, ...] = ("w1", "w2", "w3", "w4")
    variant: str = ""
    slow: bool = False
    """True if the peer reads the small input, because the large one would take hours."""

    def start(self, job: Job, build: Path, log: Path) -> subprocess.Popen[str]:
        with log.open("wb") as errors:
            return subprocess.Popen(
                [*self.command(build), *job.arguments()],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )


def _module(name: str) -> Callable[[Path], list[str]]:
    return lambda build: [sys.executable, "-m", f"benchmarks.programs.{name}"]


def _kafka_streams(build: Path) -> list[str]:
    return [
        find_java(),
        "-Xmx2g",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        _classes(build),
        "KafkaStreams",
    ]


@cache
def _classes(build: Path) -> str:
    java = find_java()
    jars = maven_jars(
        java,
        f"kafka-streams-{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    )
    folder = build / "classes"
    folder.mkdir(parents=True, exist_ok=True)
    compiler = Path(java).resolve().with_name("javac")
    source = PROGRAMS / "KafkaStreams.java"
    subprocess.run([compiler, "-nowarn", "-cp", f"{jars}/*", "-d", folder, source], check=True, timeout=300)
    return f"{folder}:{jars}/*"


@cache
def _quix(build: Path) -> list[str]:
    """Quix Streams wants an older confluent-kafka than streamapp, so it has an environment of its own."""
    folder = build / "quix"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "quixstreams==3.28.1", "orjson"], check=True
        )
        (folder / "complete").touch()
    return [str(python), str(PROGRAMS / "quix.py")]


_ALL = ("w1", "w2", "w3", "w4", *WORKLOADS)

PEERS = {
    peer.name: peer
    for peer in (
        Peer("streamapp", _module("streamapp_program"), _ALL),
        Peer("kafka-streams", _kafka_streams, _ALL),
        Peer("loop", _module("loop"), ("w1", "w2", "w3", "w4", "keys", "sessions", "foreign-key")),
        Peer("quix", _quix, slow=True),
        Peer("faust", _module("plain_faust"), slow=True),
        Peer("streamapp-eos", _module("streamapp_program"), ("w3",), "exactly-once"),
        Peer("kafka-streams-eos", _kafka_streams, ("w3",), "exactly-once"),
    )
}
