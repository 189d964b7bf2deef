"""Brings errors that executors raised back to the driver as what they are."""

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


@contextmanager
def raised_in_tasks() -> Iterator[None]:
    """Raises streamapp's errors of executors again, by their own type and without Java's stack.

    Everything else stays the `PythonException` that Spark made of it, with the executor's traceback.
    """
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException as error:
        found = _LAST_LINE.findall(str(error))
        if not found:
            raise
        name, message = found[-1]
        kind = getattr(errors, name, StreamsError)
        raise (kind if kind is not errors.UnsupportedOperation else StreamsError)(message.strip()) from error
