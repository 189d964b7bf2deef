"""The example of docs/worker.md that writes the log as JSON, run by ``streamapp worker``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from ..processes import Worker, free_port
from .conftest import Cluster

PAGE = Path(__file__).parents[2] / "docs" / "worker.md"
STREAMAPP = Path(sys.executable).with_name("streamapp")
REPLACED = """
handler = logging.FileHandler("replaced.log")
logging.getLogger().addHandler(handler)
"""


def example(cluster: Cluster, name: str) -> str:
    section = PAGE.read_text().partition("### Logs as JSON")[2]
    block = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[0]
    return block.replace('"landed-flights"', f'"{cluster.source}"').replace('"landings"', f'"{name}"')


def start(cluster: Cluster, port: int, *options: str) -> Worker:
    name = f"landings_{cluster.id.removeprefix('app-')}"
    (cluster.folder / f"{name}.py").write_text(example(cluster, name) + REPLACED)
    log = cluster.folder / "worker.log"
    env = {
        "PYTHONPATH": str(cluster.folder),
        "STREAMAPP_BOOTSTRAP_SERVERS": cluster.bootstrap,
        "PATH": "/usr/bin",
    }
    command = [STREAMAPP, "worker", name, "--datadir", "state", "--web-port", str(port), *options]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=cluster.folder, env=env)
    cluster.workers.append(Worker(process, log))
    return cluster.workers[-1]


def test_each_line_is_one_json_object(cluster: Cluster) -> None:
    worker = start(cluster, free_port())
    worker.wait_for("tasks run here")
    assert worker.terminate() == 0
    lines = [json.loads(line) for line in worker.text().splitlines()]
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines)
    assert len([line for line in lines if "tasks run here" in line["message"]]) == 1
    assert not any(line["logger"].startswith("faust") for line in lines)
    assert (cluster.folder / "replaced.log").read_text() == ""


def test_a_level_of_the_command_prints_fausts_banner_and_leaves_the_level_of_the_root(
    cluster: Cluster,
) -> None:
    worker = start(cluster, free_port(), "-l", "debug")
    worker.wait_for("tasks run here")
    assert worker.terminate() == 0
    said = worker.text().splitlines()
    banner = [line for line in said if not line.startswith("{")]
    assert said[: len(banner)] == banner
    assert "v0.15" in banner[0]
    lines = [json.loads(line) for line in said[len(banner) :]]
    assert any(line["logger"].startswith("faust") for line in lines)
    assert {line["level"] for line in lines} <= {"INFO", "WARNING"}


def test_only_the_last_line_of_a_refused_start_is_text(cluster: Cluster) -> None:
    for future in cluster.admin.delete_topics([cluster.source]).values():
        future.result()
    worker = start(cluster, free_port())
    assert worker.wait() == 1
    *before, last = worker.text().splitlines()
    assert all(json.loads(line) for line in before)
    assert last.startswith("Error: ")
