"""``streamapp broker``: a local Kafka from the command line."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from streamapp._base.signals import stopping
from streamapp.broker.distribution import announce_kafka
from streamapp.broker.local import ClusterStatus, LocalKafka
from streamapp.broker.local_security import FOLDER, exports
from streamapp.broker.settings import DEFAULT_SERVERS
from streamapp.errors import BrokerError, StreamsError

__all__ = ["broker_group"]


def _data_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("data/kafka"),
        show_default=True,
        help="The folder with the cluster's data and logs.",
    )(command)


@click.group("broker")
def broker_group() -> None:
    """Run a local Apache Kafka for development, with Java 17 or newer and without Docker."""


@broker_group.command()
@click.option(
    "--brokers",
    type=click.Choice(["1", "3"]),
    help="Number of brokers (default: the number of the existing cluster, or 1 for a new cluster).",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_533),
    default=9092,
    show_default=True,
    help="Port of the first broker; each further broker takes the next port. 0 takes free ports.",
)
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C, and stop the cluster then.")
@click.option(
    "--secure",
    is_flag=True,
    help="Let in only clients with a password (SASL) or a certificate, over TLS, and print the settings of such a "
    "client. The cluster stays secure until `streamapp broker reset`.",
)
@_data_dir_option
def start(brokers: str | None, port: int, foreground: bool, secure: bool, data_dir: Path) -> None:
    """Start the cluster; it keeps running until `streamapp broker stop` (with --foreground: until Ctrl-C)."""
    with _clear_errors():
        kafka = LocalKafka(data_dir, int(brokers) if brokers else None, port, secure=secure)
        if kafka.status().running:
            raise BrokerError(
                f"Kafka runs already at {kafka.bootstrap_servers}. To change it, run `streamapp broker stop` first."
            )
        kafka.check()
        click.echo(announce_kafka(), err=True)
        if not foreground:
            kafka.start(detached=True)
            click.echo(f"Kafka listens at {kafka.bootstrap_servers}", err=kafka.secure)
            _show_environment(kafka)
            return
        end = threading.Event()
        stopping(end.set)
        with kafka:
            click.echo(f"Kafka listens at {kafka.bootstrap_servers}; Ctrl-C stops it.", err=kafka.secure)
            _show_environment(kafka)
            end.wait()


def _show_environment(kafka: LocalKafka) -> None:
    """The variables that a client needs.

    For a secure cluster, stdout has only the variables, for eval of a shell. All else is on stderr.
    """
    if not kafka.secure:
        _show_address(kafka.bootstrap_servers)
    else:
        folder = kafka.data_dir / FOLDER
        click.echo(
            f"Clients need TLS and a login. Set these variables, or: source {folder}/login.env\n"
            f"With a certificate in place of the password: source {folder}/certificate.env",
            err=True,
        )
        click.echo(exports(kafka.environment), nl=False)


def _show_address(servers: str) -> None:
    """The variable with the address, if commands and applications would go to another Kafka without the variable."""
    found = os.environ.get("STREAMAPP_BOOTSTRAP_SERVERS") or DEFAULT_SERVERS
    if not {each.strip() for each in found.split(",")} <= set(servers.split(",")):
        click.echo(
            f"Commands and applications go to {found}, unless you set:\n  export STREAMAPP_BOOTSTRAP_SERVERS={servers}"
        )


@broker_group.command()
@_data_dir_option
def stop(data_dir: Path) -> None:
    """Stop the cluster; its data stays."""
    with _clear_errors():
        kafka = LocalKafka(data_dir)
        ran = kafka.status().running
        kafka.stop()
        click.echo("Kafka is stopped." if ran else f"No Kafka runs in {data_dir}.")


@broker_group.command()
@_data_dir_option
def status(data_dir: Path) -> None:
    """Show which brokers run. The exit code is 0 if all brokers run, and 1 if any is stopped or none was started."""
    with _clear_errors():
        found = LocalKafka(data_dir).status()
    click.echo(_render(found))
    if not found.brokers or any(broker.pid is None for broker in found.brokers):
        raise SystemExit(1)


@broker_group.command()
@click.confirmation_option(prompt="Delete every topic and record of this local cluster?")
@_data_dir_option
def reset(data_dir: Path) -> None:
    """Stop the cluster and delete its data."""
    with _clear_errors():
        LocalKafka(data_dir).reset()
    click.echo(f"The data of the local Kafka in {data_dir} is deleted.")


def _render(status: ClusterStatus) -> str:
    if not status.brokers:
        return f"No Kafka was started in {status.data_dir}."
    return "\n".join(
        f"broker {broker.id}  {broker.address}  " + (f"runs, pid {broker.pid}" if broker.pid else "stopped")
        for broker in status.brokers
    )


@contextmanager
def _clear_errors() -> Iterator[None]:
    try:
        yield
    except StreamsError as error:
        raise click.ClickException(str(error)) from error
