"""scripts/prose.py finds sentences against the rules of CONTRIBUTING.md, and leaves the others alone."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose", ROOT / "scripts/prose.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["prose"] = module
    spec.loader.exec_module(module)
    return module


prose = _load()


def messages(text: str, kind: str = "paragraph", history: bool = False) -> list[str]:
    return [finding.message for finding in prose.judge(prose.Text(1, kind, text), history)]


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("What was dropped counts as late.", "paragraph", "a clause is no subject"),
        ("A task ends. Whether it fails depends on the handler.", "paragraph", "a clause is no subject"),
        ("Of this no trace is left.", "cell", "a clause is no subject"),
        ("That a record is late costs nothing.", "paragraph", "a clause is no subject"),
        ("Whether a letter fits.", "docstring", "a docstring begins"),
        ("How often each event is in the topic.", "docstring", "a docstring begins"),
        ("Which tasks a worker has.", "docstring", "a docstring begins"),
        ("A store has rows. It forgets them.", "paragraph", "points into another sentence"),
        ("A store has rows. This means work.", "paragraph", "points into another sentence"),
        ("Those of another worker stay.", "message", "points into another sentence"),
        ("The worker used to fail.", "paragraph", "the present tense"),
        ("The worker ends the circle.", "paragraph", "cycle, not 'circle'"),
        ("The task hurries.", "docstring", "flush, or send now, not 'hurries'"),
        ("Each member has a seat.", "heading", "membership, or placement, not 'seat'"),
        (" ".join(["word"] * 26) + ".", "cell", "26 words"),
        (" ".join(["word"] * 14) + "; " + " ".join(["word"] * 14) + ".", "paragraph", "28 words"),
    ],
)
def test_found(text: str, kind: str, found: str) -> None:
    assert [message for message in messages(text, kind) if found in message]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("What happens when a worker dies?", "paragraph"),
        ("What is guaranteed", "heading"),
        ("Somebody asks how often. The worker answers what has changed.", "paragraph"),
        ("These windows close. This page is for users.", "paragraph"),
        ("Memory that is used to hold rows is limited.", "paragraph"),
        (" ".join(["word"] * 25) + ". " + " ".join(["word"] * 25) + ".", "paragraph"),
        (" ".join(["word"] * 14) + ". librdkafka " + " ".join(["word"] * 14) + ".", "paragraph"),
        (" ".join(["word"] * 14) + "; " + " ".join(["word"] * 14), "cell"),
        ("The `circle` of `hurry()` is code.", "paragraph"),
        ("The task that is idle, e.g. a standby, waits.", "docstring"),
    ],
)
def test_left_alone(text: str, kind: str) -> None:
    assert messages(text, kind) == []


def test_history_may_tell_the_past() -> None:
    assert messages("The worker used to fail.", history=True) == []


def test_markdown_gives_paragraphs_items_and_cells() -> None:
    source = "# A\n\nOne\ntwo `a b`.\n\n- [item](x.md)\n\n| h |\n| --- |\n| cell |\n\n```sh\ncode\n```\n<!-- none -->\n"
    assert [tuple(text) for text in prose.of_markdown(source)] == [
        (1, "heading", "A"),
        (3, "paragraph", "One two `a_b`."),
        (6, "paragraph", "item"),
        (8, "heading", "h"),
        (10, "cell", "cell"),
    ]


def test_python_gives_docstrings_messages_and_help() -> None:
    source = '''
"""Module."""
FIELD = 1
"""Of a field."""
def f(x):
    """First.

    Second.

    >>> what(it)
    That
    """
    raise ValueError(f"not {x}: " "give one")
option("--x", help="The x")
'''
    assert sorted((text.kind, text.text) for text in prose.of_python(source)) == [
        ("docstring", "First."),
        ("docstring", "Module."),
        ("docstring", "Of a field."),
        ("message", "The x"),
        ("message", "not `value`: give one"),
        ("paragraph", "Second."),
    ]


def test_numbers_come_with_their_noun() -> None:
    source = """
f"{n} records wait"
f"{len(rows):,} changelog partitions"
log("created %s with %d partitions", topic, n)
"""
    assert [(finding.line, finding.message.rpartition(": ")[2]) for finding in prose.of_counts(source)] == [
        (2, "records"),
        (3, "changelog partitions"),
        (4, "%d partitions"),
    ]


def test_numbers_that_are_never_one_are_left_alone() -> None:
    source = """
f"{counted(n, 'record')} of {topic}, at most {MOST_RECORDS:,} records, {settings._MOST} bytes, {rate:,.0f} records/s"
f"{topic} has records"
"""
    assert list(prose.of_counts(source)) == []


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/good.md").write_text("This page is for users.\n")
    (tmp_path / "docs/bad.md").write_text("This page is for users. The worker ends the circle.\n")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    return tmp_path


def test_a_file_with_findings_fails(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main([]) == 1
    assert "docs/bad.md:1: cycle, not 'circle'" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["streamapp", "agents", "tables", "benchmarks"])
def test_docstrings_and_help_texts_of_each_folder_are_judged(
    tree: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / folder).mkdir()
    (tree / folder / "bad.py").write_text('"""Of the port."""\noption(help="Of the local Kafka.")\n')
    assert prose.main([]) == 1
    printed = capsys.readouterr().out
    assert f"{folder}/bad.py:1: a docstring begins with a noun or a verb" in printed
    assert f"{folder}/bad.py:2: a clause is no subject" in printed


def test_named_files_alone_are_judged(tree: Path) -> None:
    assert prose.main([str(tree / "docs/good.md")]) == 0
    assert prose.main([str(tree / "docs/good.md"), str(tree / "docs/bad.md")]) == 1


def test_long_lines_and_pages_without_readers_are_found(tree: Path) -> None:
    (tree / "docs/page.md").write_text("x" * 121 + "\n\n" + "https://example.org/" + "x" * 120 + "\n")
    found = [finding.message for finding in prose.findings(tree / "docs/page.md")]
    assert found == ["121 > 120 columns", "the page does not begin with: This page is for ..."]


def test_comments_and_log_lines_are_read() -> None:
    source = """
# A store has rows.
# It forgets them.
logger.warning("What failed is %s", name)  # whatever
value = 1  # A task ends.
"""
    assert [(text.kind, text.text) for text in prose.of_python(source)] == [
        ("comment", "A store has rows. It forgets them."),
        ("comment", "whatever"),
        ("comment", "A task ends."),
        ("message", "What failed is %s"),
    ]
