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
PROTOBUF_SERDES = "2.6.13.Final"
"""Maven Central lacks the Protobuf serdes of the version that runs as the registry, and of 3.1 and later."""


@pytest.fixture(scope="package")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    with LocalRegistry(tmp_path_factory.mktemp("registry"), port=0) as registry:
        yield registry


@pytest.fixture
def registry(local: LocalRegistry) -> ConfluentSchemaRegistry:
    return ConfluentSchemaRegistry(local.url)


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


class JavaProcess:
    """A class of ``java/`` in a process: a line of JSON asks, a line answers."""

    def __init__(self, name: str, classes: Path, jars: str, *arguments: str) -> None:
        java = find_java()
        compiler = Path(java).with_name("javac")
        if not compiler.exists():
            pytest.skip("compiling the Java side needs a JDK (javac)")
        source = str(SOURCES / f"{name}.java")
        subprocess.run(
            [compiler, "-nowarn", "-cp", jars, "-d", str(classes), source], check=True, timeout=300
        )
        options = ["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._process = subprocess.Popen(
            [java, *options, "-cp", f"{classes}:{jars}", name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()


class JavaSerdes(JavaProcess):
    """Apicurio's Java serializers in their Confluent mode."""

    def __init__(self, classes: Path, url: str) -> None:
        module = "io.apicurio:apicurio-registry-serdes-{}-serde:" + REGISTRY_VERSION
        jars = maven_jars(
            find_java(),
            f"apicurio-serdes-{REGISTRY_VERSION}",
            module.format("avro"),
            module.format("jsonschema"),
            "org.slf4j:slf4j-simple:1.7.36",
        )
        super().__init__("JavaSerdes", classes, f"{jars}/*", url.replace("ccompat/v7", "registry/v2"))

    def write(self, format: str, topic: str, value: Any, schema: Any = None, key: bool = False) -> bytes:
        text = None if schema is None else json.dumps(schema)
        asked = {"format": format, "topic": topic, "key": key, "value": json.dumps(value), "schema": text}
        return bytes.fromhex(self.ask(do="write", **asked)["ok"])

    def read(self, format: str, topic: str, data: bytes, key: bool = False) -> Any:
        return json.loads(self.ask(do="read", format=format, topic=topic, key=key, data=data.hex())["ok"])


class JavaProtobuf(JavaProcess):
    """Apicurio's Java serializers for Protobuf, with Confluent's message indexes."""

    def __init__(self, classes: Path, url: str) -> None:
        jars = maven_jars(
            find_java(),
            f"apicurio-protobuf-serdes-{PROTOBUF_SERDES}",
            f"io.apicurio:apicurio-registry-serdes-protobuf-serde:{PROTOBUF_SERDES}",
            "org.slf4j:slf4j-simple:1.7.36",
        )
        super().__init__("JavaProtobuf", classes, f"{jars}/*", url.replace("ccompat/v7", "registry/v2"))

    def read(self, topic: str, data: bytes, key: bool = False) -> tuple[str, Any]:
        """The name of the message, and its fields."""
        answer = self.ask(topic=topic, data=data.hex(), key=key)
        return answer["name"], json.loads(answer["ok"])

    def write(
        self, topic: str, described: Any, value: Any, key: bool = False, register: bool = False
    ) -> bytes:
        """The bytes of a message by the latest version of the topic's subject, or by one that Java registers."""
        path, outer = described.name, described.containing_type
        while outer is not None:
            path, outer = f"{outer.name}.{path}", outer.containing_type
        asked = {"message": path, "value": json.dumps(value), "files": _files(described.file)}
        return bytes.fromhex(self.ask(topic=topic, key=key, register=register, **asked)["ok"])


def _files(file: Any) -> list[str]:
    """A file and its imports, each after its own imports."""
    imports = [each for dependency in file.dependencies for each in _files(dependency)]
    return [*dict.fromkeys(imports), file.serialized_pb.hex()]


@pytest.fixture(scope="package")
def java(local: LocalRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSerdes]:
    serdes = JavaSerdes(tmp_path_factory.mktemp("classes"), local.url)
    yield serdes
    serdes.close()


@pytest.fixture(scope="package")
def java_protobuf(local: LocalRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProtobuf]:
    classes = tmp_path_factory.mktemp("protobuf")
    process = JavaProtobuf(classes, local.url)
    yield process
    process.close()
