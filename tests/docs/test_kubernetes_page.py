"""The manifest of docs/how-to/run-on-kubernetes.md: its parts fit together, and the code knows what it sets."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from faust.types.settings import Settings

from streamapp import App, StreamsConfig
from streamapp.cli.worker import worker
from streamapp.web.access import WebAccess
from streamapp.web.server import add_routes
from tests.web.fakes import FakeSource

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "run-on-kubernetes.md").read_text()
(BLOCK,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
OBJECTS: dict[str, Any] = {each["kind"]: each for each in yaml.safe_load_all(BLOCK)}
SET = OBJECTS["StatefulSet"]["spec"]
POD = SET["template"]["spec"]
(CONTAINER,) = POD["containers"]
VARIABLES = {each["name"]: each for each in CONTAINER["env"]}


def known(variable: str) -> bool:
    """True for a variable of Faust's settings or of streamapp; a `_FILE` of a secret counts as the secret's."""
    if variable in {setting.env_name for setting in Settings.SETTINGS.values()}:
        return True
    name = re.compile(rf'"{variable.removesuffix("_FILE")}(_FILE)?"')
    return any(name.search(path.read_text()) for path in (ROOT / "streamapp").rglob("*.py")) or (
        variable.startswith("STREAMAPP_")
        and variable.removeprefix("STREAMAPP_").lower() in StreamsConfig.__dataclass_fields__
    )


def test_each_environment_variable_exists_in_the_code_or_in_another_value() -> None:
    values = " ".join(each.get("value", "") for each in VARIABLES.values())
    assert [name for name in VARIABLES if not known(name) and f"$({name})" not in values] == []
    assert not known("STREAMAPP_WEB_USER_FILES")


def test_the_worker_takes_the_options_of_the_command() -> None:
    program, command, application, *options = CONTAINER["command"]
    assert (program, command, application) == ("streamapp", "worker", "departures")
    allowed = {option for parameter in worker.params for option in parameter.opts}
    assert {option for option in options if option.startswith("-")} <= allowed


def test_probes_ask_paths_that_exist_at_the_port_of_the_web_server() -> None:
    application = web.Application()
    add_routes(application, FakeSource(), access=WebAccess({}))
    paths = {route.resource.canonical for route in application.router.routes() if route.resource}
    (port,) = CONTAINER["ports"]
    assert str(port["containerPort"]) == VARIABLES["WEB_PORT"]["value"]
    for probe, path in (("startup", "live"), ("liveness", "live"), ("readiness", "ready")):
        asked = CONTAINER[f"{probe}Probe"]["httpGet"]
        assert asked == {"path": f"/health/{path}", "port": port["name"]}
        assert asked["path"] in paths
    startup = CONTAINER["startupProbe"]
    assert (
        startup["periodSeconds"] * startup["failureThreshold"] > 60
    )  # for so long, a worker tries to reach Kafka


def test_volumes_services_and_labels_have_the_names_that_others_use() -> None:
    mounts = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    volumes = {each["name"] for each in POD["volumes"]}
    claims = {each["metadata"]["name"] for each in SET["volumeClaimTemplates"]}
    assert mounts.keys() == volumes | claims
    assert CONTAINER["command"][-1] == mounts["state"]
    for name in ("STREAMAPP_WEB_USERS_FILE", "STREAMAPP_WEB_CLUSTER_SECRET_FILE"):
        assert VARIABLES[name]["value"].startswith(f"{mounts['web']}/")
        assert f"--from-file={Path(VARIABLES[name]['value']).name}" in PAGE
    service = OBJECTS["Service"]["metadata"]["name"]
    assert SET["serviceName"] == service
    assert f".{service}:{VARIABLES['WEB_PORT']['value']}" in VARIABLES["NODE_CANONICAL_URL"]["value"]
    labels = SET["template"]["metadata"]["labels"]
    assert SET["selector"]["matchLabels"] == labels == OBJECTS["Service"]["spec"]["selector"]
    assert OBJECTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_a_worker_has_the_time_to_stop() -> None:
    seconds = inspect.signature(App).parameters["shutdown_timeout"].default
    assert isinstance(seconds, float | int)
    assert POD["terminationGracePeriodSeconds"] > seconds + 15  # then it ends with exit code 70


@pytest.mark.parametrize("name", ["state_memory_bytes", "session_timeout_ms", "group_instance_id"])
def test_the_page_names_settings_that_exist(name: str) -> None:
    assert f"`{name}" in PAGE
    assert hasattr(StreamsConfig(), name)
