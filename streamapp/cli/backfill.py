"""``streamapp backfill``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from streamapp._base.counted import counted
from streamapp._base.utc import utc
from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.cli.spark_options import begin_late, pairs, session, spark_options
from streamapp.cli.text_table import TextTable
from streamapp.cli.times import CUT, Cut

if TYPE_CHECKING:
    from streamapp.runners.spark.backfill import Backfill, BackfillReport
    from streamapp.topology.plan import Plan

__all__ = ["backfill"]


@click.command()
@APPLICATION
@click.option(
    "--until",
    type=CUT,
    default="now",
    show_default=True,
    help="The cut: now, a time (2013-12-01), or offsets (flights:0=1200,flights:1=900).",
)
@click.option(
    "--files",
    multiple=True,
    metavar="TOPIC=FOLDER",
    callback=pairs,
    help="Parquet files with the first records of a topic, which Kafka has deleted; several can be given.",
)
@click.option("--dry-run", is_flag=True, help="Show what the backfill would do, and do nothing.")
@spark_options
def backfill(
    application: str, until: Cut, files: dict[str, str], dry_run: bool, master: str, conf: dict[str, str]
) -> None:
    """Run APPLICATION on Spark over the history of its topics, and hand it over to workers.

    The cut (--until) is the point up to which Spark processes the records. Stop all workers first. Afterwards outputs,
    tables and the group's offsets are as if workers had processed all records before the cut. Stores without a
    changelog are not handed over. Workers then continue at the cut.

    After an interruption, run the same command again. The backfill computes everything again, and writes only the
    results that the interrupted run has not written.
    """
    app = load(application)
    with clear_errors():
        from streamapp.runners.spark.backfill import Backfill

        found = Backfill(app.streams.topology, app.config, until=until, files=files, progress=True)
        _ranges(found).print()
        for line in _intentions(found, until):
            click.echo(line)
        if found.nothing_to_do:
            return
        if dry_run:
            click.echo("Nothing was done: --dry-run.")
            return
        with session(app.config.application_id, master, conf):
            report = found.run(click.echo)
    if report is not None:
        click.echo(_summary(report))


def _ranges(found: Backfill) -> TextTable:
    table = TextTable("source", "partition", "from offset", "to offset", "records at most", "first record")
    for tp, (start, end) in sorted(found.survey.external.items()):
        first = found.first_times.get(tp)
        time = "" if first is None else f"{utc(first)} UTC"
        table.add_row(tp.topic, str(tp.partition), f"{start:,}", f"{end:,}", f"{end - start:,}", time)
    return table


def _intentions(found: Backfill, cut: Cut = None) -> Iterator[str]:
    survey = found.survey
    if found.nothing_to_do:
        yield "Nothing to do: the application is at the cut already."
        return
    if survey.note is not None:
        yield "An earlier backfill was interrupted while it wrote. This run completes it, with its cut."
    late = {
        tp: start
        for tp, (start, _) in sorted(survey.external.items())
        if start > 0 and tp not in survey.resume.metadata
    }
    if late:
        yield (
            f"{begin_late(late)}. The backfill leaves earlier records out. If files have these records, name the files "
            "with --files."
        )
    for warning in found.warnings:
        yield f"Warning: {warning}."
    if cut is not None and (windows := _behind_repartition_topics(survey.plan)):
        yield (
            f"Warning: workers may drop records behind the cut as late, in the windows of {', '.join(windows)}. "
            "Workers read partitions at different paces, and a repartition topic mixes their records. To avoid this, "
            "backfill up to now, or give the windows a grace as long as the time from the cut to now."
        )
    logs = survey.resume.changelogs
    yield (
        f"Present state: {counted(len(logs), 'changelog partition')}, "
        f"{counted(sum(e - s for s, e in logs.values()), 'record')}."
        if logs
        else "There is no state yet."
    )
    if survey.missing:
        yield f"Topics to create: {', '.join(f'{topic} ({n})' for topic, n in survey.missing.items())}"
    for sub in survey.plan.subtopologies:
        stores = ", ".join(spec.name for spec in sub.stores) or "no store"
        yield f"Stage {sub.id}: {counted(survey.tasks(sub), 'task')} over {sub.name} -> {stores}"
    unlogged = [spec.name for sub in survey.plan.subtopologies for spec in sub.stores if not spec.logged]
    if unlogged:
        yield (
            f"Not handed over, because the store has no changelog (logging=False): {', '.join(unlogged)}. Workers "
            "begin with an empty store, or with old rows on their disk"
        )
    yield f"Results go to: {', '.join(found.outputs) or 'no topic'}"
    yield f"At the end all offsets of group {survey.plan.application_id} move to the cut in one commit."


def _behind_repartition_topics(plan: Plan) -> list[str]:
    """The stores of windows and sessions in sub-topologies that read repartition topics."""
    return [
        spec.name
        for sub in plan.subtopologies
        if sub.repartition_topics
        for spec in sub.stores
        if spec.kind.shape is not None and spec.kind.shape.family in ("window", "session")
    ]


def _summary(report: BackfillReport) -> str:
    compute, write = report.seconds["compute"], report.seconds["write"]
    before = (
        ""
        if report.rows == report.written
        else f" (an earlier run wrote {report.rows - report.written:,} more)"
    )
    written = counted(report.written, "result or changelog record", "results and changelog records")
    return (
        f"{counted(report.processed, 'record')} processed in {compute:.1f} s ({report.processed / compute:,.0f}/s), "
        f"{report.dropped:,} dropped (for example late, or without a key).\n"
        f"{written} written in {write:.1f} s ({report.written / write:,.0f}/s)"
        f"{before}.\nYou can start workers now. They go on at the cut."
    )
