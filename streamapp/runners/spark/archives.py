"""Archives on the Python path of Spark's workers."""

from __future__ import annotations

import sys
from zipimport import zipimporter

__all__ = ["forget_archives"]


def forget_archives() -> None:
    """Makes the import system forget the archives it has looked into; what is imported later opens them again.

    Spark calls `importlib.invalidate_caches` before each task, and before Python 3.12 that reads the directories of all of them
    anew: of Spark's own jar (5,000 files) and of pyspark.zip, once for each package in it. It took longer than the rest of
    a small task, 0.15 s of CPU.
    """
    for path, finder in [*sys.path_importer_cache.items()]:
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
