"""Apache Kafka and Apicurio Registry as jars in the user's cache, fetched with the Ivy that PySpark brings along.

Java runs Ivy once, and Ivy fetches the jars of one pinned version from a Maven repository. Every later start reads the
jars from the cache. Docker and a download of Kafka's archive are not needed.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from streamapp.errors import BrokerError

__all__ = [
    "KAFKA_VERSION",
    "REGISTRY_VERSION",
    "announce_kafka",
    "announce_registry",
    "cache_folder",
    "find_java",
    "kafka_jars",
    "maven_jars",
    "maven_repository",
    "registry_jars",
]

KAFKA_VERSION = "4.3.1"
REGISTRY_VERSION = "2.5.11.Final"
OLDEST_JAVA = 17

_KAFKA = f"kafka-{KAFKA_VERSION}"
_REGISTRY = f"apicurio-registry-{REGISTRY_VERSION}"
_TELLING = re.compile(r"error|unresolved|failed|not found|refused", re.IGNORECASE)
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
_IVY_MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="streamapp" module="{name}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_IVY_DEPENDENCY = '    <dependency org="{}" name="{}" rev="{}" conf="default->default"/>'
_IVY_ARCHIVE = """\
    <dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="false">
      <artifact name="{}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>"""


def find_java(server: str = "Kafka") -> str:
    """Return the path of a Java that can run a server: ``$JAVA_HOME/bin/java``, or else ``java`` on the PATH.

    Raises `BrokerError` if there is no Java, or if Java is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"Install a JRE of version {OLDEST_JAVA} or newer and put it on the PATH, or set JAVA_HOME."
    if java is None:
        raise BrokerError(f"{server} needs Java, and there is no java on the PATH. {advice}")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BrokerError(f"{java} cannot be run ({error}). {advice}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if found is None:
        raise BrokerError(f"{java} -version names no version. {advice}")
    if int(found[1]) < OLDEST_JAVA:
        raise BrokerError(f"{server} needs Java {OLDEST_JAVA}, and {java} is Java {found[1]}. {advice}")
    return java


def announce_kafka() -> str:
    """The line to show before `kafka_jars`, which may take minutes to fetch the jars."""
    return _announcement("Kafka", _KAFKA, 45)


def announce_registry() -> str:
    """The line to show before `registry_jars`, which may take minutes to fetch the jars."""
    return _announcement("Apicurio Registry", _REGISTRY, 140)


def kafka_jars(java: str) -> Path:
    """Return the folder with the broker's jars; the first call fetches the jars."""
    return maven_jars(java, _KAFKA, f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", _LOGGING)


def registry_jars(java: str) -> Path:
    """Return the folder with the schema registry's jars; the first call fetches the jars."""
    version = REGISTRY_VERSION
    module = ("io.apicurio", "apicurio-registry-app", version)
    name = _REGISTRY

    def fetch(folder: Path) -> None:
        # For Ivy, the type of the archive is its extension; the archive has all that the registry needs.
        _resolve(
            java, folder, name, [_IVY_ARCHIVE.format(*module, module[1])], f"{module[1]}-{version}.tar.gz"
        )
        archive = folder / "jars" / f"{module[1]}-{version}.tar.gz"
        with tarfile.open(archive) as packed:
            packed.extractall(folder / "jars", filter="data")
        archive.unlink()

    return _cached(name, fetch)


def maven_jars(java: str, name: str, *modules: str) -> Path:
    """Return a folder with the jars of ``modules`` (``group:artifact:version``) and of their dependencies.

    The folder is ``$STREAMAPP_CACHE/<name>``, by default ``~/.cache/streamapp/<name>`` (or below
    ``$XDG_CACHE_HOME``). Each set of ``modules`` needs
    its own ``name``. One rename creates the folder after all downloads, so an interrupted download leaves no folder
    that looks complete. Raises `BrokerError` if the jars cannot be fetched.
    """
    _, artifact, version = modules[0].split(":")
    dependencies = [_IVY_DEPENDENCY.format(*module.split(":")) for module in modules]
    return _cached(
        name, lambda folder: _resolve(java, folder, name, dependencies, f"{artifact}-{version}.jar")
    )


def _announcement(what: str, name: str, megabytes: int) -> str:
    if (cache_folder() / name).is_dir():
        return f"Starting {what} ..."
    return f"Fetching {what} ({megabytes} MB) for this start and later ones, then starting it ..."


def _cached(name: str, fetch: Callable[[Path], None]) -> Path:
    """The complete folder ``name`` of the cache; ``fetch`` fills the ``jars`` of another folder first."""
    cache = cache_folder()
    complete = cache / name
    if complete.is_dir():
        return complete
    with _locked(cache / f"{name}.lock"):
        if not complete.is_dir():
            partial = cache / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                fetch(partial)
                (partial / "jars").rename(complete)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return complete


def maven_repository() -> str | None:
    """Return the root of the Maven repository for downloads; None stands for Maven Central.

    ``STREAMAPP_MAVEN_REPOSITORY`` comes first, then the mirror of Central that ``~/.m2/settings.xml`` names.
    """
    override = os.environ.get("STREAMAPP_MAVEN_REPOSITORY")
    if override:
        return override.rstrip("/") + "/"
    try:
        root = ElementTree.parse(Path.home() / ".m2" / "settings.xml").getroot()
    except (OSError, ElementTree.ParseError):
        return None  # Maven itself reports a settings file that it cannot read
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        url = (mirror.findtext("{*}url") or "").strip()
        blocked = mirror.findtext("{*}blocked") == "true"
        if url and not blocked and _mirrors_central(mirror.findtext("{*}mirrorOf") or ""):
            return url.rstrip("/") + "/"
    return None


def _mirrors_central(mirror_of: str) -> bool:
    names = {name.strip() for name in mirror_of.split(",")}
    return "!central" not in names and not names.isdisjoint({"*", "central", "external:*"})


def _resolve(java: str, folder: Path, name: str, dependencies: Sequence[str], proof: str) -> None:
    """Fetches the dependencies into ``jars``; the file ``proof`` shows that the download is complete.

    Raises `BrokerError` if the dependencies cannot be fetched.
    """
    ivy = _ivy_jar()
    repository = maven_repository()
    root = f" root={quoteattr(repository)}" if repository else ""
    settings = (
        f'<ivysettings><settings defaultResolver="maven"/>'
        f"<caches defaultCacheDir={quoteattr(str(folder / 'ivy'))}/>"
        f'<resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers></ivysettings>'
    )
    (folder / "ivysettings.xml").write_text(settings, encoding="utf-8")
    (folder / "ivy.xml").write_text(
        _IVY_MODULE.format(name=name, dependencies="\n".join(dependencies)), encoding="utf-8"
    )
    command = [java, "-jar", str(ivy), "-settings", "ivysettings.xml", "-ivy", "ivy.xml", "-confs", "default"]
    # scala-logging and snappy have the type "bundle" (OSGi); the broker does not start without them.
    command += ["-retrieve", "jars/[artifact]-[revision].[ext]", "-types", "jar", "bundle", "tar.gz"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired as error:
        raise BrokerError(f"{name} could not be fetched within 15 minutes: try again.") from error
    if done.returncode or not (folder / "jars" / proof).exists():
        lines = (done.stdout + done.stderr).splitlines()
        telling = [line.strip() for line in lines if _TELLING.search(line)]
        raise BrokerError(
            f"{name} could not be fetched from {repository or 'Maven Central'}. Behind a "
            "mirror, set STREAMAPP_MAVEN_REPOSITORY to its address; behind a proxy, put -Dhttps.proxyHost "
            "and -Dhttps.proxyPort into JAVA_TOOL_OPTIONS. Ivy says:\n  "
            + "\n  ".join((telling or lines)[-12:])
        )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for package in (spec.submodule_search_locations or []) if spec else []:
        for jar in Path(package).glob("jars/ivy-*.jar"):
            return jar
    raise BrokerError(
        "The download of Kafka or of a registry needs PySpark's Ivy jar, and PySpark is not installed: "
        "pip install 'streamapp[spark]'. Or use a running Kafka: set STREAMAPP_BOOTSTRAP_SERVERS."
    )


def cache_folder() -> Path:
    """The folder of downloads and locks: ``$STREAMAPP_CACHE``, by default ``~/.cache/streamapp``.

    Raises `BrokerError` if the folder cannot be made.
    """
    chosen = os.environ.get("STREAMAPP_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else base / "streamapp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BrokerError(
            f"The cache folder {folder} cannot be made: {error}. Set STREAMAPP_CACHE to another folder."
        ) from error
    return folder.resolve()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
