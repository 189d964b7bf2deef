"""Archives on the Python path of Spark's workers."""

from __future__ import annotations

import sys
from zipimport import zipimporter

__all__ = ["forget_archives"]


def forget_archives() -> None:
    """Makes the import system forget the archives that it has open; a later import opens an archive again.

    Spark calls `importlib.invalidate_caches` before each task. Before Python 3.13, this call reads the directories of
    all open archives again. Spark's own jar has 5,000 files, and the call reads pyspark.zip once for each package in
    this archive. The reading costs 0.15 s of CPU, more than the rest of a small task.
    """
    for path, finder in [*sys.path_importer_cache.items()]:
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
