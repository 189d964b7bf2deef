"""One real registry for the session; tests keep apart by the names of their subjects."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamapp.broker.distribution import REGISTRY_VERSION, find_java, maven_jars
from streamapp.registry import ConfluentSchemaRegistry
from streamapp.registry.apicurio import LocalRegistry

SOURCES = Path(__file__).parent / "java"


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    with LocalRegistry(tmp_path_factory.mktemp("registry"), port=0) as registry:
        yield registry


@pytest.fixture
def registry(local: LocalRegistry) -> ConfluentSchemaRegistry:
    return ConfluentSchemaRegistry(local.url)


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


class JavaSerdes:
    """Apicurio's Java serializers in their Confluent mode, in one process: a line of JSON asks, a line answers."""

    def __init__(self, classes: Path, url: str) -> None:
        java = find_java()
        module = "io.apicurio:apicurio-registry-serdes-{}-serde:" + REGISTRY_VERSION
        jars = maven_jars(
            java,
            f"apicurio-serdes-{REGISTRY_VERSION}",
            module.format("avro"),
            module.format("jsonschema"),
            "org.slf4j:slf4j-simple:1.7.36",
        )
        compiler = Path(java).with_name("javac")
        if not compiler.exists():
            pytest.skip("compiling the Java side needs a JDK (javac)")
        source = str(SOURCES / "JavaSerdes.java")
        subprocess.run([compiler, "-cp", f"{jars}/*", "-d", str(classes), source], check=True, timeout=300)
        options = ["-XX:TieredStopAtLevel=1", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._process = subprocess.Popen(
            [
                java,
                *options,
                "-cp",
                f"{classes}:{jars}/*",
                "JavaSerdes",
                url.replace("ccompat/v7", "registry/v2"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return answer["ok"]

    def write(self, format: str, topic: str, value: Any, schema: Any = None, key: bool = False) -> bytes:
        text = None if schema is None else json.dumps(schema)
        asked = {"format": format, "topic": topic, "key": key, "value": json.dumps(value), "schema": text}
        return bytes.fromhex(self._ask(do="write", **asked))

    def read(self, format: str, topic: str, data: bytes, key: bool = False) -> Any:
        return json.loads(self._ask(do="read", format=format, topic=topic, key=key, data=data.hex()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()


@pytest.fixture(scope="session")
def java(local: LocalRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSerdes]:
    serdes = JavaSerdes(tmp_path_factory.mktemp("classes"), local.url)
    yield serdes
    serdes.close()
