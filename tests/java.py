"""Java in tests: short lives.

``make_java_light`` gives the options to each Java that this process and its children start. Java maps an archive of
classes into memory (class-data sharing), and passes over an archive that does not fit.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import zlib
from collections.abc import MutableMapping
from pathlib import Path

from streamapp.broker.distribution import cache_folder

__all__ = ["LIGHT_JAVA", "class_archive", "make_java_light", "spark_archive"]

LIGHT_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java's options for a short life: to compile for speed would take more CPU than it saves."""

_LIGHT_SPARK = ("-Dspark.sql.codegen.wholeStage=false", "-Dspark.sql.ui.explainMode=simple")
"""Spark's settings for small queries. The text of each plan for Spark's web page takes an eighth of a driver's CPU, and
compiled stages do not save what their compilation takes."""


def make_java_light(environ: MutableMapping[str, str]) -> None:
    """Sets the variables that Java's launcher and Spark's launcher read."""
    environ.setdefault("JDK_JAVA_OPTIONS", " ".join(LIGHT_JAVA))
    archive = spark_archive()
    mapped = [f"-XX:SharedArchiveFile={archive}"] if archive is not None and archive.exists() else []
    environ.setdefault("SPARK_SUBMIT_OPTS", " ".join([*mapped, *_LIGHT_SPARK]))


def spark_archive() -> Path | None:
    """The archive of the classes of a Spark driver."""
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        return None
    return class_archive(Path(spark.origin).with_name("jars"))


def class_archive(jars: Path) -> Path:
    """The archive for the jars of a folder.

    Java refuses an archive of another Java, or of jars with other times: jars that are installed anew have another
    archive.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    files = sorted(jars.glob("*.jar")) + ([Path(java).resolve()] if java else [])
    made = [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in files]
    name = jars.parent.name if jars.name == "jars" else jars.name
    return cache_folder() / f"{name}-{_hash(jars)}-{_hash(made)}.jsa"


def _hash(value: object) -> str:
    return f"{zlib.crc32(str(value).encode()):08x}"
