"""Records that cannot be processed, outputs that cannot be written."""

from __future__ import annotations

from confluent_kafka.cimpl import NewPartitions

from ..driver import Run, set_config
from ..matrix import EOS, scenario
from ..models import POISON


@scenario(
    34,
    35,
    fault="every 20th record cannot be processed: dead letters, the others are answered",
    dead_letters=True,
    sampled=("[count-eos]",),
    workloads=("count", "rekeyed"),
)
def poison_to_dead_letters(run: Run) -> None:
    run.start("a", failpoint="offsets-committed:kill:3")
    with run.feeding(60):
        run.feed(100, _every_20th_poisoned)
        run.commits()
        run.feed(100, _every_20th_poisoned)
        run.killed("a")
    run.start("a")
    run.feed(100, _every_20th_poisoned)
    run.finish()


@scenario(
    34, 35, fault="a record cannot be processed and the handler says to fail: the worker names it and ends"
)
def poison_fails(run: Run) -> None:
    run.start("a")
    run.feed(100)
    run.caught_up()
    run.feed(100, lambda number: f"{POISON}-{number}" if number == 150 else str(number))
    run.fails(
        "a", rf"record of {run.source}-\d at offset \d+ failed: ValueError: {POISON}-150 cannot be processed"
    )


@scenario(
    36, fault="the dead-letter topic is missing: the worker stops, nothing is skipped", dead_letters=True
)
def dead_letter_topic_missing(run: Run) -> None:
    run.start("a", DEAD_LETTERS=f"{run.id}-nowhere")
    run.feed(100)
    run.feed(100, _every_20th_poisoned)
    run.fails("a", f"{run.id}-nowhere")


@scenario(37, fault="the output topic takes no record of this size: the worker stops, nothing is skipped")
def output_too_large(run: Run) -> None:
    _too_large_for(run, run.sink)


@scenario(
    37,
    fault="the changelog takes no record of this size: the worker stops, nothing is skipped",
    guarantees=(EOS,),
)
def changelog_too_large(run: Run) -> None:
    _too_large_for(run, f"{run.id}-counts-changelog")


def _too_large_for(run: Run, topic: str) -> None:
    run.start("a")
    run.feed(100)
    run.caught_up()
    # Less than a batch of two, more than a transaction marker, without which no transaction ends.
    set_config(run, topic, "max.message.bytes", "100")
    run.feed(100)
    run.fails("a", f"a record could not be written to {topic}")
    set_config(run, topic, "max.message.bytes", "1000000")
    run.start("a")
    run.finish()


@scenario(
    45, fault="partitions are added to the input of a table: refused at the next start", guarantees=(EOS,)
)
def partitions_added(run: Run) -> None:
    run.start("a")
    run.feed(100)
    run.caught_up()
    run.stop("a")
    for future in run.admin.create_partitions([NewPartitions(run.source, 6)]).values():
        future.result()
    run.wait_until(
        lambda: len(run.admin.list_topics(run.source, timeout=5).topics[run.source].partitions) == 6,
        "there are six partitions",
    )
    run.start("a")
    run.fails("a", "has 4 partitions, but the application needs 6")


@scenario(
    45,
    fault="partitions are added to the input of a table while the worker runs: it notices, and ends with both counts",
    guarantees=(EOS,),
)
def partitions_added_live(run: Run) -> None:
    run.start("a", METADATA_MS="5000")
    run.feed(100)
    run.caught_up()
    for future in run.admin.create_partitions([NewPartitions(run.source, 6)]).values():
        future.result()
    run.fails("a", "had 4 partitions when this worker started, and has at least 6 now")


def _every_20th_poisoned(number: int) -> str:
    return f"{POISON}-{number}" if number % 20 == 7 else str(number)
