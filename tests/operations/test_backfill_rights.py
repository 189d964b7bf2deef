"""A backfill, and readers of topics, on a broker with an authorizer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamapp.broker import KafkaSettings
from streamapp.producer.reconciliation import _records
from streamapp.records import TopicPartition
from streamapp.runners.last_records import last_records
from streamapp.runners.spark.offset_times import TimeSearch

from .guarded import Guarded
from .test_acls import Reference

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_a_backfill_needs_the_rights_of_workers_and_those_that_the_page_names(
    guarded: Guarded, tmp_path: Path
) -> None:
    reference = Reference(guarded, tmp_path)

    try:
        rights = json.loads(reference.command("--json"))
        reference.allow(rights)
        refused = reference.run("backfill", "--master", "local[2]")
        assert refused.returncode == 1
        assert f"the group {reference.cluster.id}-backfill failed" in refused.stderr
        group = next(right for right in rights if right["resource"] == "group")
        reference.allow([{**group, "name": f"{reference.cluster.id}-backfill"}])
        refused = reference.run("backfill", "--master", "local[2]")
        assert refused.returncode == 1
        assert f"the settings of {reference.cluster.sink} are not known" in refused.stderr
        written = [right for right in rights if (right["resource"], right["operation"]) == ("topic", "Write")]
        reference.allow([{**right, "operation": "Describe_Configs"} for right in written])
        done = reference.run("backfill", "--master", "local[2]")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "You can start workers now" in done.stdout
        assert reference.cluster.totals()[1] == reference.cluster.produced
    finally:
        reference.cluster.close()


def test_who_only_reads_a_topic_needs_no_right_to_a_group(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = Reference(guarded, tmp_path)
    try:
        source = reference.cluster.source
        rights = json.loads(reference.command("--json"))
        reference.allow([right for right in rights if right["name"] == source])
        for name, value in reference.environment.items():
            monkeypatch.setenv(name, value)
        settings = KafkaSettings.from_env()
        assert len([*last_records(settings, source, 1_000)]) == 201
        assert len([*_records(settings, source, None, {})]) == 201
        search = TimeSearch(settings.librdkafka())
        assert search.first(TopicPartition(source, 0), 0, 10, 0) == 0
        search.close()
        command = [sys.executable, "-c", "from streamapp.cli import main; main()", "topic", "read", source]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 201), done.stderr
    finally:
        reference.cluster.close()
