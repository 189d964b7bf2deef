"""The answers of a registry, kept on disk for a start while the registry does not answer."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["KnownSchemas"]

logger: logging.Logger = logging.getLogger(__name__)


class KnownSchemas:
    """A folder with one file for each answer of a registry. A file is written under another name first, so processes
    may share the folder.

    The answers are used only while the registry does not answer. As long as the registry answers, clients use the
    registry's answers. For example, a registry that was set up anew gives other ids to the same schemas.

    >>> import tempfile
    >>> known = KnownSchemas(tempfile.mkdtemp(), "http://registry:8081")
    >>> known.write("id 7", {"schema": "string"})
    >>> known.read("id 7"), known.read("id 8")
    ({'schema': 'string'}, None)
    """

    def __init__(self, folder: str | os.PathLike[str], url: str) -> None:
        self._folder = Path(folder) / hashlib.sha256(url.encode()).hexdigest()[:16]
        self._warned = False

    def read(self, question: str) -> Any:
        """The last answer; None if there is none that can be read."""
        try:
            found = json.loads(self._file(question).read_bytes())
            return found["answer"] if found["question"] == question else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def write(self, question: str, answer: Any) -> None:
        """Keeps an answer. If the folder cannot be written to, logs a warning and goes on."""
        if self.read(question) == answer:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor, draft = tempfile.mkstemp(dir=self._folder, prefix=".draft-")
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump({"question": question, "answer": answer}, file)
                os.replace(draft, self._file(question))
            except BaseException:
                os.unlink(draft)
                raise
        except OSError as error:
            if not self._warned:
                self._warned = True
                logger.warning("schemas are not kept for a start without registry: %s", error)

    def _file(self, question: str) -> Path:
        return self._folder / f"{hashlib.sha256(question.encode()).hexdigest()[:32]}.json"
