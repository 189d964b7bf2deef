"""The folder registry while several processes register the same new schemas at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REGISTER = """
import json, sys
from streamapp.serdes import LocalSchemaRegistry
registry = LocalSchemaRegistry(sys.argv[1])
schemas = [{"type": "fixed", "name": "F", "size": n + 1} for n in range(100)]
print(json.dumps([registry.id_of("s", schema) for schema in schemas]))
"""


def test_processes_agree_and_no_file_is_seen_half_written(tmp_path: Path) -> None:
    command = [sys.executable, "-c", REGISTER, str(tmp_path)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    ids = [json.loads(child.communicate()[0]) for child in children]

    assert ids[0] == ids[1] == ids[2]
    assert {path.name for path in tmp_path.iterdir()} == {f"{schema_id}.avsc" for schema_id in ids[0]}
