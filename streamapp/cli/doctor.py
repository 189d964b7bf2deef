"""``streamapp doctor``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from streamapp._base.counted import counted
from streamapp.cli.application import load_app
from streamapp.cli.finite_range import FiniteRange
from streamapp.cli.output_file import obstacle, writing
from streamapp.errors import ConfigError, StreamsError
from streamapp.operations.doctor.baseline import Baseline
from streamapp.operations.doctor.checks import ALL
from streamapp.operations.doctor.client_files import ClientFile
from streamapp.operations.doctor.registry import Finding, examine
from streamapp.operations.doctor.survey import Survey
from streamapp.operations.doctor.worker_reports import ask_workers
from streamapp.operations.offsets.subject import Subject

__all__ = ["doctor"]

_FILES: dict[str, Any] = {"type": click.Path(exists=True, dir_okay=False, path_type=Path), "multiple": True}


@click.command()
@click.argument("application", required=False)
@click.option("--group", metavar="NAME", help="Any consumer group, instead of APPLICATION.")
@click.option(
    "--worker",
    "workers",
    multiple=True,
    metavar="URL",
    help="Address of a running worker. The doctor asks this worker and all other workers of its application.",
)
@click.option(
    "--producer", "producers", **_FILES, help="Settings of a producer of the inputs, as a .properties file."
)
@click.option(
    "--consumer", "consumers", **_FILES, help="Settings of a consumer of the outputs, as a .properties file."
)
@click.option(
    "--outage",
    type=FiniteRange(min=0),
    default=24.0,
    show_default=True,
    metavar="HOURS",
    help="The longest time for which the application is ever stopped. Topics must keep their records longer.",
)
@click.option(
    "--baseline",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A JSON file with accepted findings, which are not reported.",
)
@click.option("--accept", is_flag=True, help="Write all present findings into the file of --baseline.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(
    application: str | None,
    group: str | None,
    workers: tuple[str, ...],
    producers: tuple[Path, ...],
    consumers: tuple[Path, ...],
    outage: float,
    baseline: Path | None,
    accept: bool,
    as_json: bool,
) -> None:
    """Find problems that may make APPLICATION lose records, process them twice, get no records, or stop.

    The doctor looks at brokers, topics, the consumer group, settings, the last records, transactions and workers, and
    changes nothing. Each finding has a code, a reason, a remedy and a page with details.

    The exit code is 1 with findings that the file of --baseline does not have, or if APPLICATION cannot be loaded.
    The exit code is 2 if the command fails for another reason. Without new findings, the exit code is 2 if the doctor
    could not look at something, else 0. With --accept, the exit code is 0, unless the command fails.
    """
    if (application is None) == (group is None):
        raise click.UsageError("name an APPLICATION, or a group with --group NAME")
    if accept and baseline is None:
        raise click.UsageError("--accept needs --baseline FILE")
    if accept and baseline is not None and (reason := obstacle(baseline)) is not None:
        raise click.UsageError(f"--baseline: {reason}")
    app = load_app(application) if application else None
    try:
        accepted = Baseline({})
        if baseline is not None and (baseline.exists() or not accept):
            accepted = Baseline.parse(_read(baseline))
        clients = [ClientFile.parse("producer", path.name, _read(path)) for path in producers]
        clients += [ClientFile.parse("consumer", path.name, _read(path)) for path in consumers]
        subject = Subject.of_app(app) if app is not None else Subject.of_group(str(group))
        survey = Survey(
            replace(subject, stable=False),  # the offsets may be those of a transaction that never ends
            outage_ms=int(outage * 3_600_000),
            clients=clients,
            reports=ask_workers(workers),
            app=app,
        )
        found = examine(survey, ALL)
    except StreamsError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from error
    if accept and baseline is not None:
        with writing(baseline) as file:
            file.write(accepted.text_with(found))
        click.echo(
            f"{counted(len(found), 'finding')} accepted in {baseline}; write a reason for each finding into this file",
            err=True,
        )
        return
    new, gone = accepted.split(found)
    if as_json:
        click.echo(json.dumps(_report(survey, new, len(found) - len(new), gone), indent=2))
    else:
        _print(survey, new, len(found) - len(new), gone)
    raise SystemExit(1 if new else 2 if survey.unseen else 0)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _report(survey: Survey, new: list[Finding], accepted: int, gone: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "group": survey.subject.group,
        "findings": [
            {
                "code": each.check.code,
                "title": each.check.title,
                "threat": each.check.threat,
                "subject": each.subject,
                "seen": each.seen,
                "reason": each.check.reason,
                "remedy": each.check.remedy,
                "page": each.check.page,
            }
            for each in new
        ],
        "accepted": accepted,
        "accepted_but_gone": [{"code": code, "subject": subject} for code, subject in gone],
        "unseen": survey.unseen,
    }


def _print(survey: Survey, new: list[Finding], accepted: int, gone: list[tuple[str, str]]) -> None:
    for code in dict.fromkeys(each.check.code for each in new):
        of_code = [each for each in new if each.check.code == code]
        check = of_code[0].check
        click.echo(f"{code} {check.threat}: {check.title}")
        for each in of_code:
            click.echo(f"  {each.subject}: {each.seen}")
        click.echo(f"  why: {check.reason}\n  remedy: {check.remedy}\n  page: {check.page}\n")
    for line in survey.unseen:
        click.echo(f"not looked at: {line}")
    for code, subject in gone:
        click.echo(f"accepted, but gone: {code} {subject}; remove this finding from the baseline")
    unseen = f", {len(survey.unseen)} not looked at" if survey.unseen else ""
    found, checks = counted(len(new), "finding"), counted(len(ALL), "check")
    click.echo(f"{survey.subject.group}: {found}, {accepted} accepted, {checks}{unseen}")
