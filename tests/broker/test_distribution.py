"""Finding Java, and fetching Kafka's jars once and completely."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamapp.broker.distribution import (
    KAFKA_VERSION,
    REGISTRY_VERSION,
    find_java,
    kafka_jars,
    maven_jars,
    maven_repository,
)
from streamapp.cli import main
from streamapp.errors import BrokerError

FETCH = f"mkdir jars && touch jars/kafka_2.13-{KAFKA_VERSION}.jar"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMAPP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STREAMAPP_MAVEN_REPOSITORY", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("banner", "version"), [('openjdk version "11.0.22" 2024', 11), ('java version "1.8.0_401"', 8)]
)
def test_an_old_java_is_refused_by_name(fake_java: Callable[[str], Path], banner: str, version: int) -> None:
    java = fake_java(f"echo '{banner}' >&2")
    with pytest.raises(BrokerError, match=rf"needs Java 17, and {java} is Java {version}.*JAVA_HOME"):
        find_java()


@pytest.mark.parametrize("banner", ['openjdk version "17.0.15" 2025', 'openjdk version "25" 2025-09-16'])
def test_a_java_of_17_or_newer_is_taken(fake_java: Callable[[str], Path], banner: str) -> None:
    java = fake_java(f"echo 'Picked up JAVA_TOOL_OPTIONS: -Dx=1' >&2; echo '{banner}' >&2")
    assert find_java() == str(java)


def test_a_java_that_does_not_work_is_refused(fake_java: Callable[[str], Path]) -> None:
    fake_java("exit 1")
    with pytest.raises(BrokerError, match="cannot be run"):
        find_java()


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match=r"no java on the PATH.*Install"):
        find_java()


def test_a_wrong_java_home_is_not_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match="cannot be run"):
        find_java()


def test_jars_are_fetched_once(fake_java: Callable[[str], Path], cache: Path, tmp_path: Path) -> None:
    java = str(fake_java(f"echo run >> {tmp_path}/runs; {FETCH}"))
    assert kafka_jars(java) == kafka_jars(java) == cache / f"kafka-{KAFKA_VERSION}"
    assert (tmp_path / "runs").read_text() == "run\n"


@pytest.mark.parametrize(
    ("command", "name", "fetching"),
    [
        ("broker", f"kafka-{KAFKA_VERSION}", r"Fetching Kafka \(45 MB\)"),
        ("registry", f"apicurio-registry-{REGISTRY_VERSION}", r"Fetching Apicurio Registry \(140 MB\)"),
    ],
)
def test_a_start_says_if_anything_is_fetched(
    fake_java: Callable[[str], Path], cache: Path, tmp_path: Path, command: str, name: str, fetching: str
) -> None:
    fake_java("echo 'openjdk version \"17.0.15\"' >&2; exit $(($# > 1))")

    def said() -> str:
        started = CliRunner().invoke(
            main, [command, "start", "--data-dir", str(tmp_path / "data"), "--port", "0"]
        )
        assert started.exit_code == 1
        return started.stderr.splitlines()[0]

    assert re.match(fetching, said())
    (cache / name).mkdir(parents=True, exist_ok=True)
    assert re.fullmatch(r"Starting (Kafka|Apicurio Registry) \.\.\.", said())


def test_other_modules_have_a_folder_of_their_own(
    fake_java: Callable[[str], Path], cache: Path, tmp_path: Path
) -> None:
    java = str(fake_java(f"/bin/cp ivy.xml {tmp_path}; mkdir jars && touch jars/one-1.0.jar"))
    assert maven_jars(java, "mine", "org.example:one:1.0", "org.example:two:2.0") == cache / "mine"
    asked = (tmp_path / "ivy.xml").read_text()
    assert 'org="org.example" name="one" rev="1.0"' in asked
    assert 'org="org.example" name="two" rev="2.0"' in asked


def test_a_fetch_that_was_killed_leaves_no_half_cache(fake_java: Callable[[str], Path], cache: Path) -> None:
    partial = cache / f"kafka-{KAFKA_VERSION}.partial"
    (partial / "jars").mkdir(parents=True)
    (partial / "jars" / "half.jar").touch()
    jars = kafka_jars(str(fake_java(FETCH)))
    assert [jar.name for jar in jars.iterdir()] == [f"kafka_2.13-{KAFKA_VERSION}.jar"]
    assert not partial.exists()


def test_a_fetch_that_fails_says_what_ivy_said_and_leaves_nothing(
    fake_java: Callable[[str], Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMAPP_MAVEN_REPOSITORY", "https://mirror.example/maven")
    java = str(fake_java("mkdir jars; echo 'module not found: org.apache.kafka'; exit 1"))
    expected = r"(?s)from https://mirror\.example/maven/\. .*module not found: org\.apache\.kafka"
    with pytest.raises(BrokerError, match=expected):
        kafka_jars(java)
    assert [path.name for path in cache.iterdir()] == [f"kafka-{KAFKA_VERSION}.lock"]


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BrokerError, match=r"pip install 'streamapp\[spark\]'"):
        kafka_jars("java")


def test_the_mirror_reaches_ivy(
    fake_java: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STREAMAPP_MAVEN_REPOSITORY", "https://mirror.example/maven?a=1&b=2")
    kafka_jars(str(fake_java(f"/bin/cp ivysettings.xml {tmp_path}; {FETCH}")))
    assert 'root="https://mirror.example/maven?a=1&amp;b=2/"' in (tmp_path / "ivysettings.xml").read_text()


MIRROR = "<mirror><id>m</id><mirrorOf>{of}</mirrorOf><url>https://m.example/repo</url>{more}</mirror>"


@pytest.mark.parametrize(
    ("of", "more", "used"),
    [
        ("*", "", True),
        ("central", "", True),
        ("other, central", "", True),
        ("external:*", "", True),
        ("*,!central", "", False),
        ("other", "", False),
        ("external:http:*", "", False),
        ("*", "<blocked>true</blocked>", False),
    ],
)
def test_the_mirror_of_maven_settings_is_used(tmp_path: Path, of: str, more: str, used: bool) -> None:
    for namespace in ("", ' xmlns="http://maven.apache.org/SETTINGS/1.2.0"'):
        settings = tmp_path / "home" / ".m2" / "settings.xml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        mirror = MIRROR.format(of=of, more=more)
        settings.write_text(f"<settings{namespace}><mirrors>{mirror}</mirrors></settings>")
        assert maven_repository() == ("https://m.example/repo/" if used else None)


def test_unreadable_maven_settings_stand_for_central(tmp_path: Path) -> None:
    assert maven_repository() is None
    settings = tmp_path / "home" / ".m2" / "settings.xml"
    settings.parent.mkdir(parents=True)
    settings.write_text("<settings>")
    assert maven_repository() is None


def test_the_cache_is_below_the_home_folder_by_default(
    fake_java: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("STREAMAPP_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    jars = kafka_jars(str(fake_java(FETCH)))
    assert jars == tmp_path / "home" / ".cache" / "streamapp" / f"kafka-{KAFKA_VERSION}"
