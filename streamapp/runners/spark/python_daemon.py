"""The process that Spark forks for each Python worker. The process has imported streamapp, and its forks need not.

Spark runs ``python -m streamapp.runners.spark.python_daemon pyspark.worker``, and reads a port from standard output.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

if __name__ == "__main__":
    # pyspark imports pandas in each worker, for its first rows.
    for name in ("pandas", "streamapp.runners.spark"):
        import_module(name)
    gc.collect()
    gc.freeze()  # Spark's workers collect after each task, and a collection would copy the memory of these objects
    manager()
