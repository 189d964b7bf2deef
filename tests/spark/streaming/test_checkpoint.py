"""A checkpoint that Spark cannot use ends the run with an error that names it."""

from __future__ import annotations

import pytest

from streamapp.errors import StreamsError
from streamapp.runners.spark.streaming import SparkStream

from ..backfill.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.mark.parametrize("damage", ["a file in the place of the folder", "an empty file of offsets"])
def test_an_unusable_checkpoint_is_named(cluster: Cluster, damage: str) -> None:
    folder = cluster.folder / "checkpoint"
    if damage.startswith("a file"):
        folder.write_text("")
    else:
        (folder / "offsets").mkdir(parents=True)
        (folder / "offsets" / "0").write_text("")
    config = cluster.config("unusable")
    with (
        pytest.raises(StreamsError, match="Perhaps Spark cannot read or write the checkpoint") as found,
        SparkStream(
            cluster.topology(), config, cluster.spark, checkpoint=str(folder), interval_ms=100
        ) as stream,
    ):
        stream.wait(60)
    assert str(folder) in str(found.value)
    assert "\n" not in str(found.value)
