"""``streamapp dlq`` with letters whose texts a terminal, or the library that prints tables, would obey."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from streamapp.cli import dlq
from streamapp.config import StreamsConfig
from streamapp.desk.letter_texts import LetterTexts
from streamapp.desk.letters import Letter
from streamapp.desk.marks import Marks
from streamapp.errors import BrokerError

RED = "\x1b[31m"


def letter(offset: int, message: str, key: bytes = b"N1", timestamp: int = 1_000) -> Letter:
    said = {"exception": "ValueError", "message": message, "topic": "flights", "stacktrace": f"at {message}"}
    headers = tuple((f"__streams.errors.{name}", text.encode()) for name, text in said.items())
    operator = ("__streamapp.errors.operator", b"KSTREAM-SOURCE-0000000000-of-a-long-name")
    return Letter(0, offset, timestamp, key, b"late", (*headers, operator))


def ask(
    monkeypatch: pytest.MonkeyPatch,
    letters: list[Letter] | Iterator[Letter],
    *arguments: str,
    replay: Callable[..., int] = lambda matches, **choices: 0,
) -> Result:
    """The result of a command about these letters."""
    desk = SimpleNamespace(
        scan=lambda: (letters if isinstance(letters, Iterator) else iter(letters), Marks()),
        letter=lambda id: (list(letters)[int(id[2:])], Marks()),
        texts=LetterTexts(StreamsConfig("flights")),
        replay=replay,
        dry_run=lambda matches, **choices: iter(()),
    )
    monkeypatch.setattr(dlq, "FailureDesk", lambda *arguments: desk)
    app = SimpleNamespace(config=StreamsConfig("flights"))
    monkeypatch.setattr(dlq, "load", lambda application, topology=True: app)
    monkeypatch.setattr(dlq, "reach", lambda client: None)
    monkeypatch.setenv("COLUMNS", "110")
    return CliRunner().invoke(dlq.dlq_group, [*arguments], catch_exceptions=False, color=True)


@pytest.mark.parametrize("each", [(), ("--each",)])
@pytest.mark.parametrize("message", ["no seat [economy]", "closed [/b] tag", "left :warning: over"])
def test_a_list_shows_messages_as_they_are(
    monkeypatch: pytest.MonkeyPatch, message: str, each: tuple[str, ...]
) -> None:
    result = ask(monkeypatch, [letter(0, message, b"[/k]")], "list", "app", *each)
    assert result.exit_code == 0
    assert message in " ".join(result.output.replace("│", " ").split())


def test_a_list_has_whole_names_for_the_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ask(monkeypatch, [letter(0, "late")], "list", "app")
    assert "KSTREAM-SOURCE-0000000000-of-a-long-name" in result.output


@pytest.mark.parametrize("command", [("list", "app"), ("list", "app", "--each"), ("show", "app", "0-0")])
def test_a_terminal_obeys_no_text_of_a_letter(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    result = ask(monkeypatch, [letter(0, f"a {RED}red flight")], *command)
    assert RED not in result.output
    assert "\\x1b[31mred" in result.output


def test_letters_of_times_without_a_date_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    nanoseconds = 1_386_380_110_000_000_000
    letters = [letter(0, "late"), letter(1, "wrong unit", timestamp=nanoseconds)]
    assert f"{nanoseconds} ms" in ask(monkeypatch, letters, "list", "app").output
    assert f"{nanoseconds} ms" in ask(monkeypatch, letters, "show", "app", "0-1").output
    exported = ask(monkeypatch, letters, "export", "app").output.splitlines()
    assert [json.loads(line)["letter"] for line in exported] == ["0-0", "0-1"]


@pytest.mark.parametrize("filter", ["--key", "--group"])
def test_an_empty_text_chooses_letters(monkeypatch: pytest.MonkeyPatch, filter: str) -> None:
    """An empty key is a key. Letters of other programs have no group. Such a filter counted as no filter."""
    assert ask(monkeypatch, [], "replay", "app", filter, "", "--dry-run").exit_code == 0
    assert "name the letters" in ask(monkeypatch, [], "replay", "app").output


@pytest.mark.parametrize("rate", ["nan", "inf"])
def test_a_rate_is_a_finite_number(monkeypatch: pytest.MonkeyPatch, rate: str) -> None:
    result = ask(monkeypatch, [], "replay", "app", "--all", "--rate", rate)
    assert (result.exit_code, "is not a finite number" in result.output) == (2, True)


@pytest.mark.parametrize("command", [("list", "app", "--each"), ("export", "app")])
def test_a_list_of_many_letters_keeps_few_in_memory(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    alive, most = weakref.WeakSet[Letter](), 0

    def many() -> Iterator[Letter]:
        nonlocal most
        for offset in range(1_200):
            each = letter(offset, "late")
            alive.add(each)
            most = max(most, len(alive))
            yield each

    output = ask(monkeypatch, many(), *command).output
    assert ("0-0" in output, "0-1199" in output, most < 20) == (True, True, True)


def test_a_list_without_letters_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch, [], "list", "app", "--each").output == "no open dead letters\n"
    assert ask(monkeypatch, [], "list", "app", "--all").output == "no dead letters\n"


@pytest.mark.parametrize(("count", "others"), [(1, "is 1 other"), (2, "are 2 others")])
def test_a_list_without_matching_letters_counts_the_others(
    monkeypatch: pytest.MonkeyPatch, count: int, others: str
) -> None:
    letters = [letter(number, "late") for number in range(count)]
    output = ask(monkeypatch, letters, "list", "app", "--operator", "mistyped").output
    assert output == f"no open dead letters match; there {others}\n"


def test_a_replay_that_ends_early_says_how_many_letters_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error named the letter that was refused, and the operator did not learn that others were replayed."""

    def replay(
        matches: object, *, progress: Callable[[int], None] = lambda count: None, **choices: object
    ) -> int:
        progress(5)
        progress(7)
        raise BrokerError("letter 0-27: Local: Unknown partition")

    result = ask(monkeypatch, [letter(0, "late")], "replay", "app", "--all", replay=replay)
    assert result.exit_code == 1
    assert "7 letters replayed\nError: letter 0-27" in result.output


def test_a_replay_names_the_other_readers_of_the_source_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """They get the record again, so the topology counted the orders of a consumer's letters twice."""
    consumers = [SimpleNamespace(name=name, topics=("flights",)) for name in ("shop-charge", "shop-mail")]
    found = letter(0, "late")
    record = SimpleNamespace(topic="flights", partition=0, key=b"", value=b"")
    app = SimpleNamespace(config=StreamsConfig("shop"), consumers=consumers)
    desk = SimpleNamespace(
        scan=lambda: (iter([found]), Marks()), dry_run=lambda matches, **choices: iter([(found, record)])
    )
    monkeypatch.setattr(dlq, "FailureDesk", lambda *arguments: desk)
    monkeypatch.setattr(dlq, "load", lambda application, topology=True: app)
    monkeypatch.setattr(dlq, "reach", lambda client: None)
    result = CliRunner().invoke(
        dlq.dlq_group, ["replay", "shop", "--all", "--dry-run"], catch_exceptions=False
    )
    said = "all readers of flights get the records again: the consumer shop-charge, the consumer shop-mail"
    assert said in result.output
