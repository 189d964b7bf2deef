#!/usr/bin/env python3
"""Checks the plain English of pages, docstrings, messages, help texts and comments; CONTRIBUTING.md has the rules.

python scripts/prose.py              # everything
python scripts/prose.py FILE ...     # these files
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
HISTORY = ("CHANGELOG.md", "changes/", "docs/decisions/")
"""Changelog and decisions may tell the past, and say nobody for whom they are."""
CODE = ("streamapp", "agents", "tables", "benchmarks", "scripts")
"""The folders whose docstrings, messages, help texts and comments are checked."""
_SAID = {"debug", "info", "warning", "error", "exception", "critical", "echo"}
"""Methods that write a line for users, into a log or a terminal."""

MOST_WORDS, MOST_COLUMNS = 25, 120
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|etc|cf|approx|No)\.$")
_END = re.compile(r"(?:(?<=[^.][.!?])|(?<=[^.][.!?][\"')*_]))\s+(?=[\"'(*_`]*\w|`)")
_CELL_END = re.compile(rf"{_END.pattern}|;\s+")
_WORD = re.compile(r"[^\s]*\w[^\s]*")
_CLAUSE = re.compile(r"(What|Whatever|How|Whether|Of|That|Whoever|Who)\b(?! else\b)(?!.*\?$)")
_POINTS = re.compile(
    r"(It|Those|(This|These|That) (is|are|was|were|has|have|does|do|can|may|must|will|would|means|makes|costs|needs"
    r"|holds|gives|lets|happens|works|applies|keeps|takes|saves))\b"
)
_DOCSTRING = re.compile(r"(What|Whatever|How|Whether|Of|That|Whoever|Who|Which|Where|Why|It|Those)\b")
_WORDS = {
    r"circles?": "cycle",
    r"hurr(y|ies|ied)": "flush, or send now",
    r"seats?": "membership, or placement",
    r"who(so)?ever": "a noun",
    r"what(so)?ever": "a noun",
    r"thereof|therein|whereupon|hitherto|heretofore|whilst": "a plain word",
    r"mend(s|ed|ing)?": "fix",
    r"let be|no matter what": "a plain sentence",
}
_BANNED = {re.compile(rf"\b({word})\b", re.IGNORECASE): instead for word, instead in _WORDS.items()}
_COUNTED = (
    "attempts brokers bytes characters columns commits connections entries events files fields findings groups "
    "indexes items letters lines members messages offsets outputs partitions records replicas results rows segments "
    "stores tables tasks times topics transactions updates values windows workers"
)
_PLURAL = re.compile(rf" (changelog |more |spilled )?({_COUNTED.replace(' ', '|')})\b(?!/)")
_LOGGED = re.compile(rf"%[ds]{_PLURAL.pattern}")
_LIMIT = re.compile(r"([\w.]+\.)?_?[A-Z][A-Z_]+")
"""The names of constants. No constant is 1, so a plural noun may follow."""
_PAST = re.compile(
    r"\b((?<!is )(?<!are )(?<!be )used to|had been|was found|were found|turned out|since then|until now)\b"
)
_DOCTEST = re.compile(r"^ *>>>.*?(?:\n *\n|\Z)", re.MULTILINE | re.DOTALL)


class Text(NamedTuple):
    """A paragraph, a cell, a docstring or a message; code is a single word."""

    line: int
    kind: str
    text: str


class Finding(NamedTuple):
    line: int
    message: str


def of_markdown(source: str, line: int = 1, kind: str = "paragraph") -> Iterator[Text]:
    kinds = {"heading_open": "heading", "th_open": "heading", "td_open": "cell"}
    opened = kind
    for token in _MARKDOWN.parse(source):
        if token.type == "inline":
            yield Text(line + (token.map or [0])[0], opened, _plain(token))
        elif token.type in kinds:
            opened = kinds[token.type]
        elif token.nesting == 1:
            opened = kind


def _plain(inline: Token) -> str:
    """The words that a reader sees; code becomes one word."""
    shown = {"softbreak": " ", "hardbreak": " "}
    words = (
        re.sub(r"\s+", "_", f"`{child.content}`")
        if child.type == "code_inline"
        else shown.get(child.type, child.content)
        for child in inline.children or ()
        if child.type not in ("image", "html_inline")
    )
    return "".join(words).strip()


def of_python(source: str) -> Iterator[Text]:
    """Docstrings (also those behind a constant or a field), messages of errors and logs, help texts, and comments."""
    yield from of_comments(source)
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                yield from of_docstring(_DOCTEST.sub("\n", inspect.cleandoc(docstring)), node.lineno)
            case ast.Raise(exc=ast.Call(args=[message, *_])):
                yield Text(node.lineno, "message", _message(message))
            case ast.Call(func=ast.Attribute(attr=said), args=[message, *_]) if said in _SAID:
                yield Text(node.lineno, "message", _message(message))
            case ast.keyword(arg="help"):
                yield Text(node.value.lineno, "message", _message(node.value))


def of_comments(source: str) -> Iterator[Text]:
    """Comments; lines that stand below each other are one text."""
    line, last, words = 0, 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            number, alone = token.start[0], token.line.lstrip().startswith("#")
            if not (alone and number == last + 1):
                if words:
                    yield Text(line, "comment", words)
                line, words = number, ""
            words = f"{words} {token.string.lstrip('#! ')}".strip()
            last = number if alone else 0
    if words:
        yield Text(line, "comment", words)


def of_docstring(prose: str, line: int) -> Iterator[Text]:
    prose = re.sub(r":\w+:`", "`", prose)
    for number, text in enumerate(of_markdown(prose, line)):
        yield Text(text.line, "docstring" if number == 0 else text.kind, text.text)


def _message(value: ast.expr) -> str:
    if isinstance(value, ast.JoinedStr):
        return "".join(_message(part) for part in value.values)
    return str(value.value) if isinstance(value, ast.Constant) else "`value`"


def of_counts(source: str) -> Iterator[Finding]:
    """Numbers in texts that would also say "1 records"."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for number, behind in pairwise(node.values):
                if isinstance(number, ast.FormattedValue) and isinstance(behind, ast.Constant):
                    plural = _PLURAL.match(str(behind.value))
                    if plural and not _LIMIT.fullmatch(ast.unparse(number.value)):
                        yield Finding(number.lineno, f"counted() writes a number and its noun:{plural[0]}")
        elif isinstance(node, ast.Constant) and (plural := _LOGGED.search(str(node.value))):
            yield Finding(node.lineno, f"counted() writes a number and its noun: {plural[0]}")


def sentences(text: str, cell: bool = False) -> Iterator[str]:
    """In a cell of a table, a semicolon ends a sentence, too: a cell lists facts."""
    begun = ""
    for part in (_CELL_END if cell else _END).split(text):
        begun = f"{begun} {part}".strip()
        if not _ABBREVIATION.search(begun):
            yield begun
            begun = ""
    if begun:
        yield begun


def judge(text: Text, history: bool = False) -> Iterator[Finding]:
    for number, sentence in enumerate(sentences(text.text, text.kind == "cell")):
        words = len(_WORD.findall(sentence))
        begin = sentence.lstrip("\"'(*_")
        short = f"{sentence[:60]}..." if len(sentence) > 60 else sentence
        if words > MOST_WORDS:
            yield Finding(text.line, f"{words} words, at most {MOST_WORDS}: {short}")
        if text.kind == "docstring" and number == 0 and _DOCSTRING.match(begin):
            yield Finding(text.line, f"a docstring begins with a noun or a verb: {short}")
        elif text.kind != "heading" and _CLAUSE.match(begin):
            yield Finding(text.line, f"a clause is no subject: {short}")
        elif text.kind != "heading" and _POINTS.match(begin):
            yield Finding(text.line, f"the first word points into another sentence, use the noun: {short}")
        if not history and (past := _PAST.search(sentence)):
            yield Finding(text.line, f"the present tense, not {past[0]!r}: {short}")
        for banned, instead in _BANNED.items():
            if found := banned.search(re.sub(r"`[^`]*`", "", sentence)):
                yield Finding(text.line, f"{instead}, not {found[0]!r}: {short}")


def findings(path: Path) -> list[Finding]:
    name, source = str(path.relative_to(ROOT)), path.read_text()
    history = name.startswith(HISTORY)
    texts = list(of_python(source) if path.suffix == ".py" else of_markdown(source))
    found = [finding for text in texts for finding in judge(text, history)]
    for number, line in enumerate(source.splitlines(), 1):
        if len(line) > MOST_COLUMNS and "://" not in line and not line.startswith("|"):
            found.append(Finding(number, f"{len(line)} > {MOST_COLUMNS} columns"))
    if path.suffix == ".py":
        found.extend(of_counts(source))
    if name.startswith("docs/") and not history:
        first = next((text.text for text in texts if text.kind == "paragraph"), "")
        if not any("This page is for" in sentence for sentence in list(sentences(first))[:2]):
            found.append(Finding(1, "the page does not begin with: This page is for ..."))
    return sorted(found)


def files() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("changes/*.md"), *(ROOT / "docs").rglob("*.md")]
    code = [module for folder in CODE for module in (ROOT / folder).rglob("*.py")]
    return sorted([*pages, *code])


def main(arguments: list[str]) -> int:
    paths = [Path(name).resolve() for name in arguments] or files()
    problems = [
        f"{path.relative_to(ROOT)}:{finding.line}: {finding.message}"
        for path in paths
        for finding in findings(path)
    ]
    print("\n".join(problems) or f"prose: nothing found, files: {len(paths)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
