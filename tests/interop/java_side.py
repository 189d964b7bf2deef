"""The Java side: the program in `java/`, compiled once and run as a process."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from streamapp.broker.distribution import KAFKA_VERSION, find_java, maven_jars

__all__ = ["JavaApplication", "class_path"]

LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
SOURCES = Path(__file__).parent / "java"


def class_path(folder: Path) -> str:
    """Compiles the program into a folder; the class path to run it with."""
    java = find_java()
    jars = maven_jars(
        java,
        f"kafka-streams-{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    )
    compiler = Path(java).with_name("javac")
    sources = [str(source) for source in sorted(SOURCES.glob("*.java"))]
    subprocess.run([compiler, "-cp", f"{jars}/*", "-d", str(folder), *sources], check=True, timeout=300)
    return f"{folder}:{jars}/*"


class JavaApplication:
    """The program as a running process; leaving the block stops it in order."""

    def __init__(self, class_path: str, prefix: str, settings: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *(find_java(), "-Xmx256m", LOG_LEVEL, "-cp", class_path, "Flights"),
                    *(prefix, *(f"{name}={value}" for name, value in settings.items())),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> JavaApplication:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.stop() == 0, self.log.read_text()[-5000:]

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> int:
        """Ends its input, which it takes as the word to stop, and waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(90)
        finally:
            self._process.kill()

    def kill(self) -> None:
        """Ends it at once, so that it does not leave the group."""
        self._process.kill()
        self._process.wait()
