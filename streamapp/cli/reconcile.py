"""``streamapp reconcile``."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

import click

from streamapp.broker.requests import reach
from streamapp.broker.settings import KafkaSettings
from streamapp.cli.application import clear_errors
from streamapp.cli.finite_range import FiniteRange
from streamapp.cli.output_file import OutputFile, writing
from streamapp.cli.spark_options import session, spark_options
from streamapp.cli.times import TIME
from streamapp.errors import ConfigError
from streamapp.producer.ledger import Difference, Ledger
from streamapp.producer.options import ProducerOptions
from streamapp.producer.reconciliation import (
    Reconciliation,
    Span,
    account,
    count_of,
    expectation,
    identified,
    identity_of,
    reconcile,
    republish,
    source_object,
)
from streamapp.producer.session import BookmarkedSession, UnknownTopics
from streamapp.records import OutputRecord

__all__ = ["reconcile_command"]

R = TypeVar("R")

_SECONDS = 30.0
_NEW = OutputFile()


@click.command("reconcile")
@click.argument("topic")
@click.option(
    "--source",
    required=True,
    help="File with one line for each record of the source; on Spark also a folder or a URI.",
)
@click.option(
    "--id",
    "identity",
    default="key",
    show_default=True,
    help="The part of a record that is its id: key, header:NAME or value:FIELD (of a value in JSON or Avro).",
)
@click.option(
    "--window",
    "window_ms",
    type=click.IntRange(1),
    help="The size of a window in milliseconds, if the source has counts by window and id.",
)
@click.option("--from", "begin", type=TIME, help="Compare records from this timestamp on.")
@click.option("--to", "end", type=TIME, help="Compare records before this timestamp.")
@click.option("--gap", type=_NEW, help="Write the differences here: id, expected, found, separated by tabs.")
@click.option("--report", type=_NEW, help="Write a report for an auditor here (Markdown).")
@click.option(
    "--republish",
    "per_second",
    type=FiniteRange(0.1),
    help="Send the missing records, at most this number a second.",
)
@click.option("--spark", "on_spark", is_flag=True, help="Compare on Spark, for a long history.")
@spark_options
@click.pass_context
def reconcile_command(
    context: click.Context,
    topic: str,
    source: str,
    identity: str,
    window_ms: int | None,
    begin: int | None,
    end: int | None,
    gap: Path | None,
    report: Path | None,
    per_second: float | None,
    on_spark: bool,
    master: str,
    conf: dict[str, str],
) -> None:
    """Compare the records of a source with the records of TOPIC; the exit code is 1 if they differ.

    With --republish, the exit code is also 0 if the command has sent all missing records, and nothing else differs.
    --republish excludes --window and --spark.

    Each line of --source is the id of a record. With --window, a line has the window's start in ms, the id and a count,
    separated by tabs. Without --window, a line may also be a JSON object with "id". For --republish, each line has to
    be such an object, which also has the "key" and "value" of the record, and its "timestamp" in ms. With --id
    header:NAME, the records that are sent get the id in this header.

    The source must have stopped sending, because a record that has not arrived yet counts as missing. With --republish,
    such a record would then be in TOPIC twice. If the source cannot stop, leave out the youngest records with --to.

    --from and --to leave out records of TOPIC by their timestamps, and lines of the source by their "timestamp" or by
    the window's start. A line that is only an id has no time, so the command compares every such line.
    Remove the ids of other times from the file yourself.

    With --spark, the executors read the source and the topic, so all executors must reach the file, folder or URI of
    --source.
    """
    with clear_errors():
        if per_second is not None and window_ms is not None:
            raise ConfigError(
                "--republish needs ids, and --window has only counts: give one of these options"
            )
        if per_second is not None and on_spark:
            raise ConfigError(
                "--republish does not go with --spark: take --spark --gap FILE first, and republish the missing "
                "records of that time with --from and --to, without --spark"
            )
        if not on_spark and not Path(source).is_file():
            raise ConfigError(f"--source: there is no file {source}")
        _check_apart({"--source": Path(source), "--gap": gap, "--report": report})
        span = Span(begin, end)
        if window_ms is not None:
            span.check_windows(window_ms)
        if on_spark:
            identity_of(identity)  # a wrong one is refused before Spark starts
        reach(KafkaSettings.from_env().librdkafka())
        sent = None
        if on_spark:
            result = _on_spark(topic, source, identity, window_ms, span, gap, master, conf)
        else:
            result, sent = _here(topic, Path(source), identity, window_ms, span, gap, per_second)
        text = account(result, source, _digest(Path(source)), sent)
    if report is not None:
        with writing(report) as file:
            file.write(text)
    click.echo(text)
    healed = (
        sent is not None
        and sent == result.missing
        and not (result.doubled or result.unknown or result.unidentified)
    )
    context.exit(0 if result.equal or healed else 1)


def _check_apart(files: dict[str, Path | None]) -> None:
    """Raises `ConfigError` if two options name one file. The command would overwrite its source or its result."""
    options: dict[Path, str] = {}
    for option, path in files.items():
        if path is not None and (other := options.setdefault(path.resolve(), option)) != option:
            raise ConfigError(f"{other} and {option} name one file, {path}: give {option} another file")


def _on_spark(
    topic: str,
    source: str,
    identity: str,
    window_ms: int | None,
    span: Span,
    gap: Path | None,
    master: str,
    conf: dict[str, str],
) -> Reconciliation:
    client = KafkaSettings.from_env().librdkafka()
    if Path(source).exists():  # Spark's own folder may be another one
        source = f"file://{Path(source).resolve()}"
    with session(f"reconcile {topic}", master, conf) as spark:
        from streamapp.operations.spark_reconciliation import reconcile_on_spark

        with reconcile_on_spark(
            spark, client, topic, source, identity, window_ms=window_ms, span=span
        ) as found:
            _write_gap(gap, found.differences())
            return found.result


def _here(
    topic: str,
    source: Path,
    identity: str,
    window_ms: int | None,
    span: Span,
    gap: Path | None,
    per_second: float | None,
) -> tuple[Reconciliation, int | None]:
    """The comparison in this process, and the number of records that were sent again."""
    with (
        tempfile.TemporaryDirectory(prefix="streamapp-reconcile-") as scratch,
        ExitStack() as stack,
    ):
        of_record = identity_of(identity)
        settings = KafkaSettings.from_env()
        transactions = None if per_second is None else _session(topic)
        if transactions is not None:
            stack.callback(transactions.abandon)
        ledger = stack.enter_context(closing(Ledger(Path(scratch) / "ledger")))
        result = reconcile(
            settings,
            topic,
            _expected(source, window_ms, span)
            if transactions is None
            else ((name, 1) for name, _ in _records(source, topic, identity, span)),
            of_record if window_ms is None else count_of(of_record, window_ms),
            ledger,
            span,
        )
        _write_gap(gap, ledger.differences())
        sent = None
        if transactions is not None and per_second is not None:
            if 2 * result.framed > result.found + result.unidentified:
                raise ConfigError(
                    f"--republish writes values as text, but the values of {topic} have the id of a schema. "
                    "Nothing is sent: take --gap FILE, and send these records with the serde of the topic"
                )
            sent = republish(
                transactions, _records(source, topic, identity, span), ledger, per_second=per_second
            )
        return result, sent


def _write_gap(gap: Path | None, differences: Iterable[Difference]) -> None:
    if gap is not None:
        with writing(gap) as out:
            out.writelines(f"{each.name}\t{each.expected}\t{each.found}\n" for each in differences)


def _session(topic: str) -> BookmarkedSession:
    options = ProducerOptions(name=f"streamapp-reconcile-{topic}", linger_ms=0)
    return BookmarkedSession(
        options.name,
        options.producer(),
        options.client(),
        seconds=_SECONDS,
        transaction_timeout_ms=30_000,
        unknown=UnknownTopics(),
    )


def _read(source: Path, parse: Callable[[str], R | None]) -> Iterator[R]:
    """The lines of the source as ``parse`` gives them, without those for which it gives None."""
    number = 0
    with source.open(encoding="utf-8-sig") as lines:  # a mark of the byte order is no part of the first id
        try:
            for line in lines:
                number += 1
                if (text := line.rstrip("\n")) and (found := parse(text)) is not None:
                    yield found
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{source} is not UTF-8 after line {number} ({error.reason}): convert the file"
            ) from None
        except ConfigError as error:
            raise ConfigError(f"{source}, line {number}: {error}") from None


def _expected(source: Path, window_ms: int | None, span: Span) -> Iterator[tuple[str, int]]:
    return _read(source, lambda line: expectation(line, window_ms, span))


def _records(source: Path, topic: str, identity: str, span: Span) -> Iterator[tuple[str, OutputRecord]]:
    """Each id of the source with its record, as a republication sends it."""

    def parse(line: str) -> tuple[str, OutputRecord] | None:
        row = source_object(line, span)
        return None if row is None else (str(row["id"]), _record(row, topic, identity))

    return _read(source, parse)


def _record(row: dict[str, Any], topic: str, identity: str) -> OutputRecord:
    key, value, timestamp = row.get("key"), row.get("value"), row.get("timestamp")
    if timestamp is not None and type(timestamp) is not int:
        raise ConfigError(f'"timestamp" is {timestamp!r}, but it is a whole number of ms')
    record = OutputRecord(
        topic,
        None if key is None else str(key).encode(),
        None if value is None else (value if isinstance(value, str) else json.dumps(value)).encode(),
        timestamp,
    )
    return identified(identity, str(row["id"]), record)


def _digest(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
