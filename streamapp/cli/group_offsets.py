"""``streamapp offsets``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from streamapp._base.counted import counted
from streamapp.broker.requests import reach
from streamapp.cli.application import clear_errors, load_app
from streamapp.cli.text_table import TextTable
from streamapp.cli.times import CUT, TIME, Cut
from streamapp.errors import ConfigError
from streamapp.operations.offsets.moves import Change, chosen_positions, plan_copy, plan_reset
from streamapp.operations.offsets.positions import (
    FromFile,
    Position,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToTime,
    as_csv,
)
from streamapp.operations.offsets.subject import Subject

__all__ = ["offsets_group"]


@click.group("offsets")
def offsets_group() -> None:
    """Show, move and copy the committed offsets of an application, or of any consumer group.

    APPLICATION is a module with an `app`, such as `agents`, or `module:attribute`. For one of several consumers of an
    App, an application in Java or another consumer group, use `--group NAME`. The cluster is then that of
    STREAMAPP_BOOTSTRAP_SERVERS.
    """


def _subject(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--group", metavar="NAME", help="Any consumer group, instead of APPLICATION.")(
        command
    )
    return click.argument("application", required=False)(command)


def _topics(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="NAME[:0,1]",
        help="Only this topic, or these partitions of it; several can be given.",
    )(command)


def _target(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--from-file", type=click.File(), help="Offsets from lines topic,partition,offset."),
        click.option("--shift-by", type=int, metavar="N", help="N offsets forward; a negative N goes back."),
        click.option(
            "--to-time",
            type=TIME,
            help="The first record at or after this time: 2013-12-01T00:00, or milliseconds since 1970.",
        ),
        click.option("--to-latest", is_flag=True, help="The end of each partition."),
        click.option("--to-earliest", is_flag=True, help="The first record that each partition still has."),
    ):
        command = option(command)
    return command


_execute = click.option(
    "--execute", is_flag=True, help="Commit the offsets. Without this flag they are only shown."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


@offsets_group.command()
@_subject
@_topics
@_json
def show(application: str | None, group: str | None, topics: tuple[str, ...], as_json: bool) -> None:
    """Show the committed offset, the log's offsets, the lag and the member of each partition."""
    with clear_errors():
        subject = _named(application, group)
        look = subject.look()
        found = chosen_positions(subject, topics)
        if application is None and not found and look.state == "dead":
            raise ConfigError(f"there is no group {look.name}: check the name")
    if as_json:
        said = {
            "group": look.name,
            "kind": subject.kind(look),
            "state": look.state,
            "members": len(look.members),
        }
        click.echo(json.dumps(said | {"partitions": [_as_dict(each) for each in found]}, indent=2))
        return
    click.echo(f"{look.name}: {subject.kind(look)}, {look.state}, {counted(len(look.members), 'member')}")
    table = TextTable("partition", *_NUMBERS, "member", "")
    for each in found:
        committed = "-" if each.committed is None else f"{each.committed:,}"
        lag = "-" if each.lag is None else f"{each.lag:,}"
        table.add_row(
            str(each.partition), committed, f"{each.start:,}", f"{each.end:,}", lag, each.owner, each.remark
        )
    table.print()


_NUMBERS = ("committed", "log start", "log end", "lag")


@offsets_group.command()
@_subject
@_topics
@_json
@click.option(
    "--max", "most", type=click.IntRange(0), help="Exit with 1 if the total lag is larger than this number."
)
@click.option(
    "--until",
    type=CUT,
    default="now",
    help="Measure up to this time or these offsets (default: the ends of the partitions).",
)
def lag(
    application: str | None,
    group: str | None,
    topics: tuple[str, ...],
    as_json: bool,
    most: int | None,
    until: Cut,
) -> None:
    """Show how many offsets the group is behind the ends of its topics, for each topic and in total.

    A partition without a committed offset counts from its first record.
    """
    with clear_errors():
        subject = _named(application, group)
        found = chosen_positions(subject, topics)
        if not found:
            raise ConfigError(
                f"the group {subject.group} has committed nothing, and no topics are known: name some with --topic"
            )
        ends = {each.partition: each.end for each in found}
        if isinstance(until, int):
            ends = ToTime(until).offsets(subject, found)
        elif until is not None:
            ends = dict(until)
    by_topic: dict[str, int] = {}
    for each in found:
        behind = each.behind(ends[each.partition]) if each.partition in ends else 0
        by_topic[each.partition.topic] = by_topic.get(each.partition.topic, 0) + behind
    total = sum(by_topic.values())
    if as_json:
        click.echo(json.dumps({"group": subject.group, "lag": total, "topics": by_topic}, indent=2))
    else:
        for topic, behind in by_topic.items():
            click.echo(f"{behind:>15,}  {topic}")
        click.echo(f"{total:>15,}  in all")
    if most is not None and total > most:
        raise SystemExit(1)


@offsets_group.command()
@_subject
@_topics
@_target
@click.option(
    "--keep-tables",
    is_flag=True,
    help="Move the offsets even if tables contradict them. These tables are then wrong.",
)
@_execute
def reset(
    application: str | None,
    group: str | None,
    topics: tuple[str, ...],
    keep_tables: bool,
    execute: bool,
    **where: Any,
) -> None:
    """Show new offsets for the group, and commit them with `--execute`.

    Stop all members of the group first. The command names the tables that would contradict the new offsets: these
    tables would count records twice, or lack records. If there are such tables, `--execute` commits nothing without
    `--keep-tables`.
    """
    target = _which(where)
    if target is None:
        raise click.UsageError(
            "no target is given: add --to-earliest, --to-latest, --to-time, --shift-by or --from-file"
        )
    with clear_errors():
        change = plan_reset(_named(application, group), target, topics)
        _show(change)
        for each in change.tables:
            click.echo(f"table {each}")
        if change.tables:
            click.echo(_REMEDY.format(group=change.subject.group, subject=application or f"--group {group}"))
            if execute and not keep_tables:
                raise ConfigError(
                    "nothing was committed, because tables contradict the new offsets; choose one of the ways above"
                )
        _carry_out(change, execute, keep_tables)


_REMEDY = """\
Choose a way to handle these tables:
  compute them again      streamapp reset APPLICATION (Java: kafka-streams-application-reset)
                          deletes the tables; processing begins at the first records
  ... from a time on      after streamapp reset: streamapp offsets reset {subject} --to-time ... --execute
  use a copy              streamapp offsets copy {subject} {group}-2 --to-time ...
                          gives the offsets to a copy of the application, whose tables begin empty
  keep them               --keep-tables, if double counts or gaps in these tables do no harm"""


@offsets_group.command()
@_subject
@_topics
@click.option("--output", "-o", type=click.File("w"), default="-", help="Default: standard output.")
def export(application: str | None, group: str | None, topics: tuple[str, ...], output: Any) -> None:
    """Write the committed offsets as lines topic,partition,offset, like kafka-consumer-groups --export."""
    with clear_errors():
        subject = _named(application, group)
        found = chosen_positions(subject, topics)
        offsets = {each.partition: each.committed for each in found if each.committed is not None}
        if not offsets:
            raise ConfigError(f"the group {subject.group} has committed nothing")
    output.write(as_csv(offsets))


@offsets_group.command()
@click.argument("names", nargs=-1, required=True, metavar="[APPLICATION] COPY")
@click.option("--group", metavar="NAME", help="Any consumer group, instead of APPLICATION.")
@_target
@_execute
def copy(names: tuple[str, ...], group: str | None, execute: bool, **where: Any) -> None:
    """Show offsets for a new group COPY, and commit them with `--execute`. The old group does not change.

    COPY gets the committed offsets of the old group, or the offsets that an option such as --to-time chooses. The
    members of the old group may run meanwhile.

    If you name an APPLICATION with a topology, `--execute` also creates empty internal topics for a second application.
    So the tables of the second application begin without rows. Run the second application with COPY as its application
    id, and with output topics of its own. Otherwise both applications write into the same topics.
    """
    if len(names) != (1 if group else 2):
        raise click.UsageError("name APPLICATION and COPY, or --group NAME and COPY")
    application = None if group else names[0]
    left_out: list[str] = []
    with clear_errors():
        plan = None
        if application is not None:
            app = load_app(application)
            left_out = _left_out(app, names[-1])
            if hasattr(app, "streams"):
                plan = app.streams.topology.plan(app.config.replace(application_id=names[-1]))
        change = plan_copy(_named(application, group), names[-1], _which(where), plan)
        _show(change)
        for line in left_out:
            click.echo(line)
        _carry_out(change, execute)


def _left_out(app: Any, copy: str) -> list[str]:
    """The readers of an application that would begin at the first record in a copy, with the commands against this."""
    from streamapp.runners.worker.agents.topics import topics_of_agents

    agents, runs_topology = topics_of_agents(app), hasattr(app, "streams")
    lines = []
    if runs_topology:
        lines += [
            f"not copied: agents of {copy} read {topic} from the beginning, unless you run after this command: "
            f"streamapp offsets reset --group {copy} --topic {topic} --to-latest --execute"
            for topic in dict.fromkeys(agents)
        ]
    if runs_topology or agents:
        id = app.config.application_id
        for consumer in app.consumers:
            group = copy + consumer.name.removeprefix(id)
            lines.append(
                f"not copied: the consumer {group} calls its function again for all old records, unless you first run: "
                f"streamapp offsets copy --group {consumer.name} {group} --execute"
            )
    return lines


def _named(application: str | None, group: str | None) -> Subject:
    if (application is None) == (group is None):
        raise click.UsageError("name an APPLICATION, or a group with --group NAME")
    subject = Subject.of_app(load_app(application)) if application else Subject.of_group(str(group))
    reach(subject.client)
    return subject


def _which(where: dict[str, Any]) -> Target | None:
    given: list[Target] = []
    if where["to_earliest"]:
        given.append(ToEarliest())
    if where["to_latest"]:
        given.append(ToLatest())
    if where["to_time"] is not None:
        given.append(ToTime(where["to_time"]))
    if where["shift_by"] is not None:
        given.append(ShiftBy(where["shift_by"]))
    if where["from_file"] is not None:
        try:
            given.append(FromFile(where["from_file"].read()))
        except UnicodeDecodeError as error:
            raise click.UsageError(
                f"--from-file is not UTF-8 ({error.reason}): export the offsets again"
            ) from None
    if len(given) > 1:
        raise click.UsageError(
            "several targets are given: keep one of --to-earliest, --to-latest, --to-time, --shift-by, --from-file"
        )
    return given[0] if given else None


def _show(change: Change) -> None:
    table = TextTable("partition", "committed", "new", "")
    for move in change.moves:
        before = "-" if move.at.committed is None else f"{move.at.committed:,}"
        table.add_row(str(move.at.partition), before, f"{move.to:,}", move.remark)
    table.print()
    for topic in change.new_topics:
        click.echo(f"topic {topic}, empty")


def _carry_out(change: Change, execute: bool, keep_tables: bool = True) -> None:
    if not change.moves:
        click.echo(f"{change.subject.group} is there already: nothing to commit.")
    elif not execute:
        needed = "--keep-tables --execute" if change.tables and not keep_tables else "--execute"
        click.echo(f"Nothing was committed; {needed} does it.")
    else:
        change.carry_out()
        click.echo(f"{counted(len(change.moves), 'offset')} of {change.subject.group} committed.")


def _as_dict(each: Position) -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "committed": each.committed,
        "log_start": each.start,
        "log_end": each.end,
        "lag": each.lag,
        "member": each.owner or None,
        "remark": each.remark or None,
    }
