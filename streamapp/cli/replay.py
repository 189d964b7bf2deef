"""``streamapp replay``."""

from __future__ import annotations

import click

from streamapp._base.counted import counted
from streamapp.cli.application import APPLICATION, clear_errors, load
from streamapp.cli.spark_options import begin_late, session, spark_options
from streamapp.cli.text_table import TextTable
from streamapp.cli.times import PAST_CUT, Cut
from streamapp.runners.connection import client_of

__all__ = ["replay"]


@click.command()
@APPLICATION
@click.argument("name")
@click.option(
    "--since", type=PAST_CUT, help="Begin at this time or these offsets (default: the first records)."
)
@click.option(
    "--until",
    type=PAST_CUT,
    help="End before this time or these offsets (default: the offsets that the application has committed).",
)
@click.option("--to-parquet", metavar="PATH", help="Write the result as Parquet files; PATH must not exist.")
@click.option("--to-topic", metavar="TOPIC", help="Write the result into a new topic.")
@click.option(
    "--diff",
    is_flag=True,
    help="Compare the result with the live table or topic; the exit code is 1 if they differ.",
)
@spark_options
def replay(
    application: str,
    name: str,
    since: Cut,
    until: Cut,
    to_parquet: str | None,
    to_topic: str | None,
    diff: bool,
    master: str,
    conf: dict[str, str],
) -> None:
    """Compute the table or output topic NAME of APPLICATION again on Spark, while the application may go on running.

    The command commits no offset, and writes to no topic of the application, so its workers are not disturbed.
    """
    if not (to_parquet or to_topic or diff):
        raise click.UsageError("say where the result goes: add --diff, --to-parquet PATH or --to-topic TOPIC")
    app = load(application)
    with (
        clear_errors(),
        session(app.config.application_id, master, conf, client=client_of(app.config)) as spark,
    ):
        from streamapp.runners.spark.replay import Replay

        config, topology = app.config, app.streams.topology
        with Replay(topology, config, name, since=since, until=until, spark=spark, progress=True) as again:
            if again.late:
                click.echo(
                    f"{begin_late(again.late)}. The replay lacks earlier records, and the application may have their "
                    "results, so differences may be no errors.",
                    err=True,
                )
            if to_parquet:
                again.write_parquet(to_parquet)
                click.echo(f"written: {to_parquet}")
            if to_topic:
                click.echo(f"written: {counted(again.write_topic(to_topic), 'record')} to {to_topic}")
            if not diff:
                return
            found = again.diff()
    table = TextTable("", "entries")
    for label in ("equal", "different", "only_replayed", "only_live"):
        table.add_row(label.replace("_", " "), f"{getattr(found, label):,}")
    table.print()
    for key, start, replayed, live in found.examples:
        place = "" if start is None else f" at {start}"
        click.echo(f"{key!r}{place}: replayed {replayed!r}, live {live!r}")
    if found.under_way and not found.none:
        under_way = counted(found.under_way, "record was", "records were")
        click.echo(
            f"{under_way} on the way between two sub-topologies. The replay has the "
            "results, and the live application does not yet. Compare again while no input arrives."
        )
    raise SystemExit(0 if found.none else 1)
