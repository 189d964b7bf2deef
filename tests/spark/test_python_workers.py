"""Spark keeps Python workers for the next task; what a task must do for it, and what keeps that cheap."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from zipimport import zipimporter

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamapp.runners.spark.archives import forget_archives
from streamapp.runners.spark.rows import Rows


def test_a_task_without_rows_reads_what_spark_sends_to_its_end() -> None:
    batches = iter([pa.RecordBatch.from_pydict({"task": [0]}), pa.RecordBatch.from_pydict({"task": [0]})])
    Rows((), frozenset(), {}, 0, batches).finish()
    assert next(batches, None) is None


def test_archives_are_forgotten_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("zipped_one.py", "NUMBER = 1")
        archive.writestr("zipped_two.py", "NUMBER = 2")
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    assert importlib.import_module("zipped_one").NUMBER == 1
    assert _archives()
    forget_archives()
    assert not _archives()
    assert importlib.import_module("zipped_two").NUMBER == 2


def _archives() -> list[str]:
    return [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]


@pytest.mark.spark
def test_workers_are_forks_of_a_process_that_has_imported_streamapp(spark: SparkSession) -> None:
    def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        yield pa.RecordBatch.from_pydict({"found": ["streamapp.runners.spark" in sys.modules]})

    rows = spark.range(1, numPartitions=1).mapInArrow(imported, "found boolean").collect()
    assert [row.found for row in rows] == [True]
