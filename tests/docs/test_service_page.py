"""The unit of docs/how-to/run-as-a-service.md: systemd takes it, and its settings fit a worker."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from streamapp import App
from streamapp.cli.worker import worker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "run-as-a-service.md").read_text()
UNIT = (ROOT / "deploy" / "systemd" / "departures@.service").read_text()


def setting(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(value)


def test_the_page_has_the_unit() -> None:
    assert re.findall(r"^```ini\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) == [UNIT]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Only the path of the program is another one, because systemd looks for the file."""
    unit = tmp_path / "departures@.service"
    unit.write_text(UNIT.replace("/srv/departures/.venv/bin/streamapp", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_worker_takes_the_options_of_the_command() -> None:
    program, command, application, *options = shlex.split(setting("ExecStart"))
    assert (Path(program).name, command, application) == ("streamapp", "worker", "departures")
    allowed = {option for parameter in worker.params for option in parameter.opts}
    assert {option for option in options if option.startswith("-")} <= allowed
    assert options[options.index("--datadir") + 1] == f"/var/lib/{setting('StateDirectory')}"


def test_a_worker_has_the_time_to_stop() -> None:
    seconds = inspect.signature(App).parameters["shutdown_timeout"].default
    assert int(setting("TimeoutStopSec").removesuffix("s")) > seconds + 15  # then it ends with exit code 70


@contextmanager
def health(status: int) -> Iterator[int]:
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health/ready" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def wait_until_ready(port: int, process: int) -> subprocess.Popen[bytes]:
    command = (
        setting("ExecStartPost").removeprefix("-").replace("%i", str(port)).replace("$MAINPID", str(process))
    )
    return subprocess.Popen(shlex.split(command), stderr=subprocess.DEVNULL)


def test_the_start_ends_when_the_worker_is_ready_or_has_ended() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with health(200) as port:
            assert wait_until_ready(port, process.pid).wait(30) == 0
        with health(503) as port:
            waiting = wait_until_ready(port, process.pid)
            assert waiting.poll() is None
            process.kill()
            process.wait()
            assert waiting.wait(30) != 0
