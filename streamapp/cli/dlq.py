"""``streamapp dlq``: the failure desk on the command line."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from streamapp._base.counted import counted
from streamapp._base.printable import printable
from streamapp._base.utc import utc
from streamapp.broker.requests import reach
from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.cli.finite_range import FiniteRange
from streamapp.cli.text_table import TextTable
from streamapp.cli.trial import show_trial
from streamapp.desk.desk import FailureDesk
from streamapp.desk.filters import LetterFilter
from streamapp.desk.letters import Group, Letter, grouped
from streamapp.desk.marks import Marks
from streamapp.desk.readers import readers_of
from streamapp.desk.shown import described, shown
from streamapp.desk.trial import runs_of
from streamapp.runners.connection import client_of

__all__ = ["dlq_group"]

LETTER = click.argument("letter")
_LINES = 1_000
"""The most lines of one table: a table needs all its lines in memory, for the widths of its columns."""
_EXAMPLES = 5


@click.group("dlq")
def dlq_group() -> None:
    """List, show, export, edit, try, replay or discard the dead letters of an application.

    A dead letter is a record that failed or was dropped. The application has written the record with the reason to its
    dead-letter topic. The id of a letter is its partition and offset in this topic, such as 0-17.
    """


def _reached(application: str) -> Any:
    """The application. Raises `BrokerError` if its cluster does not answer soon."""
    app = load(application, topology=False)
    reach(client_of(app.config))
    return app


def _desk(application: str) -> FailureDesk:
    app = _reached(application)
    return FailureDesk(app.config, readers_of(app))


def _filters(command: Any) -> Any:
    for option in (
        click.option("--application", "written_by", help="Only letters that this application has written."),
        click.option(
            "--group", help="Only letters of this consumer group. A topology has the application's name."
        ),
        click.option("--operator", help="Only letters of this operator."),
        click.option("--cause", help="Only letters with this type of exception, such as ValueError."),
        click.option("--topic", help="Only records that came from this topic."),
        click.option("--key", help="Only records with this key, as text."),
        click.option("--since", type=click.DateTime(), help="Only letters from this time (UTC) on."),
        click.option("--until", type=click.DateTime(), help="Only letters before this time (UTC)."),
        click.option(
            "--letter", "ids", multiple=True, metavar="ID", help="Only this letter; several can be given."
        ),
    ):
        command = option(command)
    return command


def _filter(
    written_by: str | None = None, since: datetime | None = None, until: datetime | None = None, **fields: Any
) -> LetterFilter:
    return LetterFilter(**fields, application=written_by, since=_ms(since), until=_ms(until))


def _chosen(everything: bool, filters: Mapping[str, Any]) -> LetterFilter:
    """The filter of a command that changes letters. Raises `click.UsageError` for no filter without ``--all``."""
    chosen = _filter(**filters)
    if not everything and not chosen:
        raise click.UsageError("name the letters by --letter, --operator, --cause ..., or say --all")
    return chosen


def _ms(time: datetime | None) -> float | None:
    return None if time is None else time.replace(tzinfo=UTC).timestamp() * 1000


@dlq_group.command("list")
@APPLICATION
@_filters
@click.option("--all", "everything", is_flag=True, help="Also list replayed and discarded letters.")
@click.option("--each", is_flag=True, help="Print one line for each letter, instead of groups.")
def list_letters(application: str, everything: bool, each: bool, **filters: Any) -> None:
    """List the open dead letters of APPLICATION by consumer group, operator, cause and topic.

    Applications with the same dead-letter topic share one list.
    """
    with clear_errors():
        letters, marks = FailureDesk(_reached(application).config).scan()
        matches = _filter(**filters).matches
        others = 0

        def chosen() -> Iterator[Letter]:
            nonlocal others
            for letter in letters:
                if everything or marks.state(letter.id) == "open":
                    if matches(letter):
                        yield letter
                    else:
                        others += 1

        found = _print_each(chosen(), marks) if each else _print_groups(grouped(chosen()))
    if not found:
        nothing = "no open dead letters" if not everything else "no dead letters"
        # A mistyped filter must not look as if all were well.
        are = "is" if others == 1 else "are"
        click.echo(f"{nothing} match; there {are} {counted(others, 'other')}" if others else nothing)


def _print_each(letters: Iterator[Letter], marks: Marks) -> bool:
    """Prints tables with a line for each letter, and keeps the lines of one table at a time in memory. Returns False if
    there is no letter."""
    found = False
    while True:
        table = TextTable("letter", "state", "group", "operator", "cause", "record of", "key", "message")
        for letter in islice(letters, _LINES):
            table.add_row(
                letter.id,
                marks.state(letter.id) + (" (edited)" if letter.edited else ""),
                letter.group,
                letter.operator,
                letter.cause,
                letter.origin,
                shown(letter.key, 30),
                letter.said("message")[:60],
            )
        if not len(table):
            return found
        table.print()
        found = True


def _print_groups(groups: Sequence[Group]) -> bool:
    """Prints a table of groups. False: there is no group."""
    # Several lines a cell: the table is for terminals of 80 columns, too.
    table = TextTable(
        "letters", "group\noperator\ncause", "first (UTC)\nlast", "example", "message\nand topic"
    )
    for group in groups:
        table.add_row(
            f"{group.count:,}",
            f"{group.group}\n{group.operator}\n{group.cause}",
            f"{utc(group.first)}\n{utc(group.last)}",
            group.example,
            f"{group.message[:60]}\n{group.topic}",
        )
    if groups:
        table.print()
    return bool(groups)


@dlq_group.command()
@APPLICATION
@LETTER
def show(application: str, letter: str) -> None:
    """Show LETTER: its record, its error, and what became of it.

    Key and value are decoded with the schema that their bytes name, or with the serde of APPLICATION for the topic.
    """
    with clear_errors():
        desk = _desk(application)
        found, marks = desk.letter(letter)
        fields = described(found, marks, desk.texts)
    for name, text in fields.items():
        click.echo(f"{name.replace('_', ' '):<13} {printable(str(text))}")
    click.echo(f"\n{printable(found.said('stacktrace'))}")


@dlq_group.command()
@APPLICATION
@_filters
def export(application: str, **filters: Any) -> None:
    """Print all dead letters of APPLICATION as JSON, one a line, also those that were replayed or discarded.

    Keys, values and headers are base64.
    """
    with clear_errors():
        letters, marks = FailureDesk(_reached(application).config).scan()
        for letter in filter(_filter(**filters).matches, letters):
            fields = described(letter, marks) | {
                "key": _base64(letter.key),
                "value": _base64(letter.value),
                "headers": [[name, _base64(value)] for name, value in letter.own_headers],
                "stacktrace": letter.said("stacktrace"),
            }
            click.echo(json.dumps(fields))


@dlq_group.command()
@APPLICATION
@LETTER
@click.option("--key", help="The new key, in the form of show.")
@click.option("--value", help="The new value, in the form of show; - reads bytes from the standard input.")
@click.option("--null", is_flag=True, help="The new value is null.")
def edit(application: str, letter: str, key: str | None, value: str | None, null: bool) -> None:
    """Give LETTER another key or value. Try the edited letter before its replay.

    Avro, JSON Schema and Protobuf are JSON here. The new bytes get the schema of the letter's present bytes. If
    APPLICATION cannot read the present bytes, the new bytes get the schema of APPLICATION's serde. If APPLICATION
    cannot read the new bytes, nothing changes.
    """
    if key is None and value is None and not null:
        raise click.UsageError("say what to change: --key, --value or --null")
    if value is not None and null:
        raise click.UsageError("--value and --null exclude each other")
    with clear_errors():
        desk = _desk(application)
        found, _ = desk.letter(letter)
        if key is None or (value is None and not null):
            found = desk.whole(found)
        new_key = found.key if key is None else desk.texts.bytes_of(found, True, key)
        new_value = found.value
        if null:
            new_value = None
        elif value == "-":
            new_value = desk.texts.checked(found, False, sys.stdin.buffer.read())
        elif value is not None:
            new_value = desk.texts.bytes_of(found, False, value)
        desk.edit(letter, new_key, new_value)
    click.echo(f"{letter} is edited; try it: streamapp dlq try {application} {letter}")


@dlq_group.command("try")
@APPLICATION
@LETTER
@click.option("--debug", is_flag=True, help="Open a debugger where the exception is raised.")
def try_letter(application: str, letter: str, debug: bool) -> None:
    """Run LETTER through the topology in this process, with empty tables. Nothing is written to Kafka."""
    app = load(application)
    with clear_errors():
        reach(client_of(app.config))
        desk = FailureDesk(app.config)
        found, _ = desk.letter(letter)
        record = desk.whole(found).replayed(desk.topic)
    show_trial(runs_of(app.streams.topology, app.config, record), debug)


@dlq_group.command()
@APPLICATION
@_filters
@click.option(
    "--all", "everything", is_flag=True, help="Replay all open letters. Needed if you give no filter."
)
@click.option(
    "--only-group",
    is_flag=True,
    help="Consumers of other groups than that of the letter pass over its record.",
)
@click.option("--rate", type=FiniteRange(0, min_open=True), help="The most records per second.")
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
@click.option("--force", is_flag=True, help="Also replay letters that were replayed or discarded before.")
def replay(
    application: str,
    everything: bool,
    only_group: bool,
    rate: float | None,
    dry_run: bool,
    force: bool,
    **filters: Any,
) -> None:
    """Write the records of open dead letters of APPLICATION to the topics that they came from, each once.

    Records of a key keep their order. The workers may run meanwhile. All readers of a topic get the records again:
    other consumers, other applications, other programs. With --only-group, a consumer of streamapp passes over
    a record if the letter belongs to another consumer group. Topologies, agents and other programs still process the
    record.
    """
    chooser = _chosen(everything, filters)
    matches = chooser.matches
    with clear_errors():
        app = _reached(application)
        desk = FailureDesk(app.config)
        letters, marks = desk.scan()
        count, done, examples, topics = 0, 0, list[str](), set[str]()
        for letter in filter(matches, letters):
            count += 1
            topics.add(letter.said("topic"))
            if (state := marks.state(letter.id)) != "open":
                done += 1
                if len(examples) < _EXAMPLES:
                    examples.append(f"{letter.id} ({state})")
        if done and not force:
            refusal = (
                f"not open: {done:,} of {counted(count, 'letter')}, such as {', '.join(examples)}; "
                "--force replays them again"
            )
            if done == count:
                raise click.ClickException(refusal)
            click.echo(f"{refusal}. They are left out", err=True)
        for topic in sorted(topics):
            if len(readers := _readers(app, topic, only_group)) > (0 if only_group else 1):
                click.echo(f"all readers of {topic} get the records again: {', '.join(readers)}", err=True)
        if dry_run:
            for letter, record in desk.dry_run(
                matches, named=chooser.ids, force=force, only_group=only_group
            ):
                click.echo(
                    f"{letter.id} -> {record.topic}-{record.partition}\t{shown(record.key)}\t{shown(record.value)}"
                )
            return
        written = 0

        def note(count: int) -> None:
            nonlocal written
            written = count

        try:
            desk.replay(
                matches, named=chooser.ids, force=force, only_group=only_group, rate=rate, progress=note
            )
        finally:  # after an error or Ctrl-C, these letters are not open any more
            click.echo(f"{counted(written, 'letter')} replayed")


def _readers(app: Any, topic: str, only_group: bool) -> list[str]:
    """The parts of an application that process the records of a replay, in words. Consumers have the choice
    ``only_group``. A single consumer or producer has no parts."""
    streams = getattr(app, "streams", None)
    found = ["the topology"] if streams is not None and topic in streams.plan.source_topics else []
    consumers = () if only_group else getattr(app, "consumers", ())
    return found + [f"the consumer {each.name}" for each in consumers if topic in each.topics]


@dlq_group.command()
@APPLICATION
@_filters
@click.option(
    "--all", "everything", is_flag=True, help="Discard all open letters. Needed if you give no filter."
)
@click.option("--why", default="", help="A note that stays with the letter.")
def discard(application: str, everything: bool, why: str, **filters: Any) -> None:
    """Mark open dead letters of APPLICATION as discarded. The letters stay in their topic, with your note."""
    chooser = _chosen(everything, filters)
    with clear_errors():
        desk = FailureDesk(_reached(application).config)
        count = desk.discard(chooser.matches, why, named=chooser.ids)
    click.echo(f"{counted(count, 'letter')} discarded")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
