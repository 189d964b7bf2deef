"""Records that cannot be processed, outputs that cannot be written."""

from __future__ import annotations

from confluent_kafka.cimpl import NewPartitions

from ..driver import Run, set_config
from ..feed import poison_every, poison_where
from ..matrix import EOS, scenario
from ..models import POISON


@scenario(
    34,
    35,
    fault="every 20th record cannot be processed: these records become dead letters, all others give results",
    dead_letters=True,
    sampled=("[count-eos]",),
    workloads=("count", "rekeyed"),
)
def poison_to_dead_letters(run: Run) -> None:
    run.start("a", failpoint="offsets-committed:kill:3")
    with run.feeding(60):
        run.feed(100, poison_every(20))
        run.commits()
        run.feed(100, poison_every(20))
        run.killed("a")
    run.start("a")
    run.feed(100, poison_every(20))
    run.finish()


@scenario(
    34,
    35,
    fault='a record cannot be processed, and the answer is "fail": the worker names the record and ends',
)
def poison_fails(run: Run) -> None:
    run.start("a")
    run.feed(100)
    run.caught_up()
    run.feed(100, poison_where(lambda number: number == 150))
    run.fails(
        "a", rf"record of {run.source}-\d at offset \d+ failed: ValueError: {POISON}-150 cannot be processed"
    )


@scenario(
    36, fault="the dead-letter topic is missing: the worker stops, nothing is skipped", dead_letters=True
)
def dead_letter_topic_missing(run: Run) -> None:
    run.start("a", DEAD_LETTERS=f"{run.id}-nowhere")
    run.feed(100)
    run.feed(100, poison_every(20))
    run.fails("a", f"{run.id}-nowhere")


@scenario(
    37,
    fault="the output topic takes no message of this size from an agent: the worker names the record and ends, nothing "
    "is skipped",
    workloads=("agent",),
    sampled=("[agent-eos]",),
)
@scenario(
    37,
    fault="the output topic takes no record of this size: the worker names the record and ends, nothing is skipped",
)
def output_too_large(run: Run) -> None:
    _too_large_for(
        run, run.sink, rf"record of {run.source}-\d at offset \d+ gave a result that {run.sink} does not take"
    )


@scenario(
    37,
    fault="the changelog takes no record of this size: the worker names store and topic and ends, nothing is skipped",
    guarantees=(EOS,),
)
def changelog_too_large(run: Run) -> None:
    changelog = f"{run.id}-counts-changelog"
    _too_large_for(run, changelog, rf"store counts .* changelog {changelog}-\d does not take")


def _too_large_for(run: Run, topic: str, says: str) -> None:
    run.start("a")
    run.feed(100)
    run.caught_up()
    # A transaction marker must fit into the limit, because without its marker no transaction ends.
    set_config(run, topic, "max.message.bytes", "300")
    run.feed(100, lambda number: f"{number:0500}")
    run.fails("a", says)
    set_config(run, topic, "max.message.bytes", "1000000")
    run.start("a")
    run.finish()


@scenario(
    37, fault="the output topic takes single results, and no batch of two: the worker sends smaller batches"
)
def batches_too_large(run: Run) -> None:
    run.start("a")
    run.feed(100)
    run.caught_up()
    set_config(run, run.sink, "max.message.bytes", "100")
    run.feed(100)
    run.finish()


@scenario(
    37,
    fault='results are too far ahead of time for their topic: "fail" ends the worker and names the record, '
    '"continue" makes dead letters',
    workloads=("copy",),
    dead_letters=True,
    each={"answer": ("fail", "continue")},
)
def timestamp_ahead(run: Run, answer: str) -> None:
    _takes_any_time(run, run.source)
    run.start("a", ON_PRODUCTION=answer)
    run.feed(100)
    run.caught_up()
    run.feed(100, poison_every(20), ahead_ms=_HOURS_MS)
    if answer == "fail":
        run.fails(
            "a", rf"record of {run.source}-\d at offset \d+ gave a result that {run.sink} does not take"
        )
        return
    run.commits()
    run.feed(100)
    run.finish()


@scenario(
    37,
    fault="the changelog takes no record that is so far ahead of time: the worker names store and topic, and ends "
    "under either answer",
    each={"answer": ("fail", "continue")},
)
def changelog_timestamp_ahead(run: Run, answer: str) -> None:
    _takes_any_time(run, run.source)
    _takes_any_time(run, run.sink)
    run.start("a", ON_PRODUCTION=answer)
    run.feed(100)
    run.caught_up()
    run.feed(1, ahead_ms=_HOURS_MS)
    changelog = f"{run.id}-counts-changelog"
    run.fails("a", rf"store counts .* changelog {changelog}-\d")
    _takes_any_time(run, changelog)
    run.start("a")
    run.finish()


_HOURS_MS = 3 * 3_600_000
"""By default, brokers take records up to one hour ahead of the clock (``message.timestamp.after.max.ms``)."""


def _takes_any_time(run: Run, topic: str) -> None:
    set_config(run, topic, "message.timestamp.after.max.ms", str(2**63 - 1))


@scenario(
    45,
    fault="partitions are added to the input of a table: the worker refuses its next start",
    guarantees=(EOS,),
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
    fault="partitions are added to the input of a table while the worker runs: the worker ends, and names "
    "the old and the new number",
    guarantees=(EOS,),
)
def partitions_added_live(run: Run) -> None:
    run.start("a", METADATA_MS="5000")
    run.feed(100)
    run.caught_up()
    for future in run.admin.create_partitions([NewPartitions(run.source, 6)]).values():
        future.result()
    run.fails("a", "had 4 partitions when this worker started, and now has at least 6")
