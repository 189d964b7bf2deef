"""Prepares docstrings for the documentation site: examples become code blocks, public names become links."""

from __future__ import annotations

import re
from typing import Any

import griffe

import streamapp

_DOCTEST = re.compile(r"(?:^(?=>>> )(?:.+\n?)+\n?)+", re.MULTILINE)
_NAME = re.compile(r"(?<![`\[])(`{1,2})([A-Z]\w+)\1(?![`\]])")


def prepared(docstring: str) -> str:
    """A docstring as Markdown for the site: examples become blocks of code, and public names become links.

    >>> prepared("Counts, see `KTable`.\\n\\n>>> 1 + 1\\n2")
    'Counts, see [`KTable`][streamapp.KTable].\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    parts, end = [], 0
    for example in _DOCTEST.finditer(docstring):
        parts += [_linked(docstring[end : example.start()]), f"```pycon\n{example[0].strip()}\n```\n\n"]
        end = example.end()
    return "".join([*parts, _linked(docstring[end:])]).strip()


def _linked(prose: str) -> str:
    return _NAME.sub(_link, prose)


def _link(found: re.Match[str]) -> str:
    name = found[2]
    return f"[`{name}`][streamapp.{name}]" if name in streamapp.__all__ else f"`{name}`"


class Docstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = prepared(obj.docstring.value)
