"""Raises errors of executors in the driver with their own types, instead of as Spark's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from streamapp import errors
from streamapp.errors import StreamsError

__all__ = ["raised_in_tasks"]

_LAST_LINE = re.compile(
    r"^streamapp(?:\.\w+)+\.(\w+): (.*?)(?=\n\s*\n|\n\s+at |\Z)", re.MULTILINE | re.DOTALL
)
_KILLED = "Python worker exited unexpectedly"
_DISK_FULL = "No space left on device"
_TOO_LARGE = re.compile(
    r"Total size of serialized results of .*? is bigger than spark.driver.maxResultSize \(.*?\)"
)
_NO_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([^']+)'", re.MULTILINE)


@contextmanager
def raised_in_tasks() -> Iterator[None]:
    """Raises streamapp's errors of executors again, with their own type and without Java's stack.

    An error of streamapp whose type is not in `streamapp.errors`, and an `UnsupportedOperation`, becomes a
    `StreamsError`. A missing module becomes a `StreamsError` that says how to ship the code. A Python worker that was
    killed becomes a `StreamsError` that speaks about memory, as does a result that is too large for the driver. A full
    disk becomes a `StreamsError`, too. Any other error stays Spark's: for example, a `KeyError` comes as
    `PythonException`, with the executor's traceback.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PythonException

    try:
        yield
    except Py4JJavaError as error:
        if (too_large := _TOO_LARGE.search(str(error))) is not None:
            raise StreamsError(
                f"{too_large[0]}. Ask for fewer rows or columns, or give the driver a larger limit and enough memory "
                "(spark.driver.maxResultSize, spark.driver.memory)"
            ) from error
        if _DISK_FULL in str(error):
            raise StreamsError(
                "the disk of Spark's local folder is full: set spark.local.dir to a folder on a larger disk. On a "
                "cluster, the settings of its workers name this folder. Then run this again"
            ) from error
        if _KILLED not in str(error):
            raise
        raise StreamsError(
            "a Python worker of Spark was killed, or has crashed. A machine without free memory kills processes: give "
            "executors more memory for Python (spark.executor.memoryOverhead, docs/spark.md), use fewer cores, or set "
            "a smaller state_memory_bytes. Then run this again"
        ) from error
    except PythonException as error:
        found = _LAST_LINE.findall(str(error))
        if not found:
            missing = _NO_MODULE.search(str(error))
            if missing is None:
                raise
            raise StreamsError(
                f"the executors have no module {missing[1]}. Give them an archive with your code: run `streamapp spark "
                "package dist/app.tar.gz PACKAGE ...`, then add --archive dist/app.tar.gz (spark-submit: --archives). "
                "docs/spark.md has an example"
            ) from error
        name, message = found[-1]
        kind = getattr(errors, name, StreamsError)
        raise (kind if kind is not errors.UnsupportedOperation else StreamsError)(message.strip()) from error
