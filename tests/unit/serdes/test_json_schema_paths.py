"""The number of subschemas that may check one value."""

from __future__ import annotations

from streamapp.serdes.json_schema_paths import MOST_PATHS, most_paths
from tests.unit.serdes.hostile_schemas import doubled


def test_the_references_of_another_schema_stay_in_that_schema() -> None:
    """The number was 3, and the check of a value that does not fit took many seconds."""
    assert most_paths({"$ref": "other.json"}, {"other.json": doubled(18)}) == MOST_PATHS + 1
    assert most_paths(doubled(18), {}) == MOST_PATHS + 1
