"""Users of the web server: roles, wrong logins, workers that ask each other, the audit log."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import logging
import os
import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner
from faust.cli.worker import worker as FaustWorkerCommand
from faust.web.drivers.aiohttp import Web

from streamapp._base.worker_client import open_worker
from streamapp.app import App
from streamapp.cli import main
from streamapp.dsl import StreamsBuilder
from streamapp.errors import ConfigError
from streamapp.serdes import StringSerde
from streamapp.web import access as access_module
from streamapp.web import authentication, users
from streamapp.web.access import WebAccess
from streamapp.web.forwarding import HEADER, Signatures
from streamapp.web.rates import Buckets
from streamapp.web.server import add_routes
from streamapp.web.users import Identity, Users, password_line, token_line
from tests.processes import free_port

from .conftest import Serve
from .fakes import FakeSource, key_value_stores


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


def quick_line(name: str, role: str, password: str) -> str:
    """A hash that is compared in no time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(users, "_COST", 2)
        patched.setattr(users, "_PARALLEL", 1)
        return password_line(name, role, password)


SECRET = "planted-cluster-secret-of-32-characters"
ADA = quick_line("ada", "operate", "planted-passw0rd")
BOB = quick_line("bob", "read", "planted-passw0rd-2")
ROBOT = token_line("robot", "operate", "sat_planted")
WATCH = token_line("prometheus", "read", "sat_watch")
ENVIRON = {
    "STREAMAPP_WEB_USERS": "\n".join(["# people", ADA, BOB, "", ROBOT, WATCH]),
    "STREAMAPP_WEB_CLUSTER_SECRET": SECRET,
}
AS_ADA = basic("ada", "planted-passw0rd")
AS_BOB = basic("bob", "planted-passw0rd-2")
AS_ROBOT = {"Authorization": "Bearer sat_planted"}
READS = ["/", "/static/page.js", "/status", "/tables/", "/tables/t/a", "/metrics", "/topology", "/nothing"]
CHANGES = [
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/dlq/replay?all=true"),
    ("PUT", "/status"),
    ("PATCH", "/"),
]


def flights(url: str = "http://worker-1:6066") -> FakeSource:
    source = FakeSource(url=url)
    source.add_table("t", "key_value", key_value_stores(source, {"a": 1, "b": 2}))
    return source


async def guarded(serve: Serve, source: Any, **options: Any) -> Any:
    return await serve(source, access=WebAccess(ENVIRON), **options)


@pytest.mark.parametrize("path", READS)
async def test_a_stranger_reads_nothing(serve: Serve, path: str) -> None:
    client = await guarded(serve, flights())
    for headers in (
        {},
        {"Authorization": "Bearer sat_other"},
        basic("ada", "wrong"),
    ):
        answer = await client.get(path, headers=headers)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Basic")
    for headers in (AS_ADA, AS_BOB, AS_ROBOT):
        assert (await client.get(path, headers=headers)).status == (404 if path == "/nothing" else 200)


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_who_may_read_changes_nothing(serve: Serve, method: str, path: str) -> None:
    source = flights()
    client = await guarded(serve, source)
    assert (await client.request(method, path)).status == 401
    answer = await client.request(method, path, headers=AS_BOB)
    assert answer.status == 403
    assert "operate" in (await answer.json())["error"]
    assert not source.worker.paused
    assert (await client.request(method, path, headers=AS_ADA)).status not in (401, 403)


async def test_probes_need_no_login_and_say_little(serve: Serve) -> None:
    source = flights()
    source.worker = dataclasses.replace(source.worker, state="failed", reason="secret reason")
    client = await guarded(serve, source)
    assert (await client.get("/health/live")).status == 200
    answer = await client.get("/health/ready")
    assert (answer.status, await answer.json()) == (503, {"ready": False, "state": "failed"})
    unknown = await client.get("/health/ready?task=9_9")
    assert (unknown.status, "its tasks are" in await unknown.text()) == (404, False)
    told = await (await client.get("/health/ready", headers=AS_BOB)).json()
    assert told["reason"] == "secret reason"
    assert told["tasks"]
    for wrong in ({"Authorization": "Bearer x"}, {HEADER: "x"}):
        assert (await client.get("/health/live", headers=wrong)).status == 401


async def test_a_token_is_a_password_too_for_its_own_name(serve: Serve) -> None:
    client = await guarded(serve, flights())
    for name, status in [("prometheus", 200), ("ada", 401)]:
        headers = basic(name, "sat_watch")
        assert (await client.get("/metrics", headers=headers)).status == status


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Basic",
        "Basic ",
        "Basic ²",
        "Basic YWRh",
        "Basic !!!!",
        "Bearer",
        "Bearer  ",
        "Digest x",
        "basic " + "A" * 8_000,
        "Basic Og==",
    ],
)
async def test_odd_logins_are_refused(serve: Serve, said: str) -> None:
    client = await guarded(serve, flights())
    assert (await client.get("/status", headers={"Authorization": said})).status == 401


async def test_two_logins_in_one_request_are_none(serve: Serve) -> None:
    client = await guarded(serve, flights())
    headers = [("Authorization", AS_ADA["Authorization"]), ("Authorization", AS_ROBOT["Authorization"])]
    assert (await client.get("/status", headers=headers)).status == 401


async def test_wrong_logins_of_an_address_are_slowed_down_and_right_ones_are_not(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    original = Users.of_password

    def of_password(self: Users, name: str, password: str) -> Identity | None:
        compared.append(password)
        return original(self, name, password)

    monkeypatch.setattr(Users, "of_password", of_password)
    monkeypatch.setattr(authentication, "_FAILURES_PER_SECOND", 1e-6)
    monkeypatch.setattr(authentication, "_FAILURES_AT_ONCE", 3)
    client = await guarded(serve, flights())
    assert (await client.get("/status", headers=AS_ADA)).status == 200
    wrong = [basic("ada", f"guess-{n}") for n in range(8)]
    answers = [await client.get("/status", headers=headers) for headers in wrong]
    assert [answer.status for answer in answers] == [401] * 3 + [429] * 5
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert compared == ["planted-passw0rd", "guess-0", "guess-1", "guess-2"]  # no work is done for the others
    assert (await client.get("/status", headers={"Authorization": "Bearer sat_guess"})).status == 429
    for right in (AS_ADA, AS_ROBOT):
        assert (await client.get("/status", headers=right)).status == 200


async def test_an_address_that_asks_too_often_waits(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_REQUESTS_PER_SECOND", 1e-6)
    monkeypatch.setattr(authentication, "_REQUESTS_AT_ONCE", 5)
    client = await serve(flights())
    assert [(await client.get("/status")).status for _ in range(7)] == [200] * 5 + [429] * 2


def test_buckets_hold_a_bounded_number_of_addresses() -> None:
    buckets = Buckets(per_second=1, burst=1, now=lambda: 0.0)
    for n in range(10_000):
        assert buckets.take(str(n))
    assert len(buckets._filled) == 4_096


# --- workers ---


async def pair(serve: Serve) -> tuple[list[FakeSource], list[Any], list[list[dict[str, str]]]]:
    """Two workers with a half of the table each, and the headers of all requests that each was sent."""
    ports = [free_port(), free_port()]
    sources, clients, heard = [flights(f"http://127.0.0.1:{port}") for port in ports], [], []
    for port, source in zip(ports, sources, strict=True):
        app, seen = web.Application(), []

        @web.middleware
        async def listen(request: web.Request, handler: Any, seen: list[Any] = seen) -> Any:
            seen.append(dict(request.headers))
            return await handler(request)

        add_routes(app, source, access=WebAccess(ENVIRON))
        app.middlewares.insert(0, listen)
        clients.append(await serve(None, TestServer(app, port=port)))
        heard.append(seen)
    everything = key_value_stores(sources[0], {f"key-{n}": n for n in range(20)})
    urls = [source.worker.url for source in sources]
    for index, source in enumerate(sources):
        source.worker = dataclasses.replace(source.worker, workers=tuple(urls))
        mine = {p: store for p, store in everything.items() if p % 2 == index}
        source.stores.clear()
        source.add_table("t", "key_value", mine, owners={p: urls[p % 2] for p in range(4)})
    return sources, clients, heard


async def test_workers_ask_each_other_for_a_user_and_keep_the_password(serve: Serve) -> None:
    sources, clients, heard = await pair(serve)
    page = await (await clients[0].get("/tables/t/?limit=100", headers=AS_BOB)).json()
    assert len(page["entries"]) == 20
    assert len(heard[1]) == 1
    assert "Authorization" not in heard[1][0]
    assert ":bob" in heard[1][0][HEADER]
    answer = await clients[0].post("/pause?workers=all", headers=AS_ROBOT)
    assert answer.status == 200
    assert [source.worker.paused for source in sources] == [True, True]
    assert (await clients[0].post("/resume?workers=all", headers=AS_BOB)).status == 403
    assert [source.worker.paused for source in sources] == [True, True]


async def test_a_worker_with_another_secret_is_named(serve: Serve) -> None:
    sources, clients, _ = await pair(serve)
    stranger = await serve(sources[1], access=WebAccess(ENVIRON | {"STREAMAPP_WEB_CLUSTER_SECRET": "x" * 32}))
    url = str(stranger.make_url("")).rstrip("/")
    sources[0].add_table("t", "key_value", {}, owners=dict.fromkeys(range(4), url))
    answer = await clients[0].get("/tables/t/?limit=100", headers=AS_ADA)
    assert answer.status == 503
    assert "STREAMAPP_WEB_CLUSTER_SECRET" in (await answer.json())["error"]


async def test_nobody_else_can_ask_as_a_worker(serve: Serve) -> None:
    source = flights()
    client = await guarded(serve, source)
    path, url, ada = "/pause", source.worker.url, Identity("ada", "operate")
    signatures, others = (Signatures(lambda each=each: each) for each in (SECRET.encode(), b"o" * 32))
    right = signatures.sign(ada, "POST", url, path)
    old = Signatures(lambda: SECRET.encode(), now=lambda: 1_000_000.0).sign(ada, "POST", url, path)
    forged = [
        "1", "true", "v1", "", "²", right[:-4] + ":bob", right.replace(":operate:", ":read:"), right + "x", old,
        others.sign(ada, "POST", url, path), signatures.sign(ada, "GET", url, path), signatures.sign(ada, "POST", url, "/resume"),
        signatures.sign(ada, "POST", url, path + "?workers=all"), signatures.sign(ada, "POST", "http://worker-2:6066", path),
        signatures.sign(Identity("bob", "read"), "POST", url, path).replace(":read:", ":operate:"),
    ]  # fmt: skip
    for header in forged:
        answer = await client.post(path, headers={HEADER: header})
        assert answer.status == 401, header
        assert (await client.post(path, headers=AS_ADA | {HEADER: header})).status == 401, (
            "a login does not mend it"
        )
    assert (await client.post(path, headers=[(HEADER, right), (HEADER, right)])).status == 401
    assert (await client.post(path, headers={HEADER: right}, data=b"body")).status == 401
    assert not source.worker.paused
    assert (await client.post(path, headers={HEADER: right})).status == 200
    assert source.worker.paused
    assert (await client.post(path, headers={HEADER: right})).status == 401, "taken once"


async def test_without_users_the_header_means_nothing(serve: Serve) -> None:
    client = await serve(flights())
    assert (await client.get("/status", headers={HEADER: "1"})).status == 200


def test_signatures_that_were_taken_are_forgotten_in_time() -> None:
    clock = [1_000.0]
    signatures = Signatures(lambda: b"s" * 32, now=lambda: clock[0])
    ada = Identity("ada", "operate")
    for _ in range(100):
        header = signatures.sign(ada, "POST", "http://a", "/pause")
        assert signatures.identity(header, "POST", "http://a", "/pause") == ada
        clock[0] += 10
    assert len(signatures._seen) < 10


def test_a_worker_that_starts_anew_takes_no_signature_from_before_its_start() -> None:
    """Its earlier process may have taken the signature already."""
    clock, ada = [1_000.9], Identity("ada", "operate")

    def worker() -> Signatures:
        return Signatures(lambda: b"s" * 32, now=lambda: clock[0])

    sender, receiver = worker(), worker()
    change, read = (sender.sign(ada, method, "http://a", "/pause") for method in ("POST", "GET"))
    assert receiver.identity(change, "POST", "http://a", "/pause") == ada
    clock[0] += 5
    receiver = worker()
    assert receiver.identity(change, "POST", "http://a", "/pause") is None
    assert receiver.identity(read, "GET", "http://a", "/pause") == ada  # changes nothing
    change = sender.sign(ada, "POST", "http://a", "/pause")
    assert receiver.identity(change, "POST", "http://a", "/pause") == ada
    assert receiver.identity(change, "POST", "http://a", "/pause") is None


# --- the audit log ---


async def test_each_change_and_each_wrong_login_has_a_line(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    _, clients, _ = await pair(serve)
    with caplog.at_level(logging.INFO, "streamapp.audit"):
        await clients[0].get("/status", headers=AS_ADA)
        assert caplog.messages == []
        await clients[0].post("/pause?workers=all", headers=AS_ADA)
        await clients[0].post("/resume", headers=AS_BOB)
        await clients[0].post("/resume", headers={"Host": "evil.example"})
        await clients[0].get("/status", headers={"Authorization": "Bearer sat_wrong"})
        await clients[0].post("/res%0aume x?\x80", headers=AS_ADA)
    lines = [message for message in caplog.messages if message.startswith("who=")]
    assert lines[:5] == [
        "who=ada role=operate from=127.0.0.1 via=worker method=POST path=/pause outcome=200",
        "who=ada role=operate from=127.0.0.1 via=client method=POST path=/pause?workers=all outcome=200",
        "who=bob role=read from=127.0.0.1 via=client method=POST path=/resume outcome=403",
        "who=- role=- from=127.0.0.1 via=client method=POST path=/resume outcome=403",
        "who=- role=- from=127.0.0.1 via=client method=GET path=/status outcome=401",
    ]
    assert len(lines) == 6
    assert all(re.fullmatch(r"[ -~]*", line) for line in lines)


async def test_strangers_do_not_fill_the_audit_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    client = await guarded(serve, flights())
    with caplog.at_level(logging.INFO, "streamapp.audit"):
        for _ in range(200):
            await client.post("/pause")
        await client.post("/pause", headers=AS_ADA)
    lines = [message for message in caplog.messages if message.startswith("who=")]
    assert len(lines) < 100
    assert lines[-1].startswith("who=ada")


# --- settings ---


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"STREAMAPP_WEB_USERS": ADA}, "STREAMAPP_WEB_CLUSTER_SECRET"),
        ({"STREAMAPP_WEB_CLUSTER_SECRET": SECRET}, "STREAMAPP_WEB_USERS"),
        (ENVIRON | {"STREAMAPP_WEB_CLUSTER_SECRET": "planted-short"}, "at least 32 characters"),
        (ENVIRON | {"STREAMAPP_WEB_USERS_FILE": "/nowhere"}, "both set"),
        ({"STREAMAPP_WEB_USERS_FILE": "/nowhere"}, "/nowhere, which cannot be read"),
        (ENVIRON | {"STREAMAPP_WEB_USERS": "ada:planted-passw0rd"}, "line 1"),
        (ENVIRON | {"STREAMAPP_WEB_USERS": f"{ADA}\nada:admin:scrypt$1"}, "line 2"),
        (
            ENVIRON | {"STREAMAPP_WEB_USERS": "ada:read:planted-passw0rd"},
            "line 1 of the web users has no hash",
        ),
        (ENVIRON | {"STREAMAPP_WEB_USERS": ADA.replace("scrypt$2$", "scrypt$1048576$")}, "line 1"),
        (ENVIRON | {"STREAMAPP_WEB_USERS": "# nobody"}, "empty"),
        (ENVIRON | {"STREAMAPP_WEB_SSL_CERTIFICATE_LOCATION": __file__}, "only work together"),
        (ENVIRON | {"STREAMAPP_WEB_SSL_CA_LOCATION": "/nowhere"}, "no such file"),
    ],
)
def test_settings_that_cannot_work_are_refused_without_showing_them(
    environ: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as refusal:
        WebAccess(environ)
    assert "planted" not in str(refusal.value)


def passing(builder: StreamsBuilder) -> None:
    builder.stream("in", key_serde=StringSerde(), value_serde=StringSerde()).to("out")


@pytest.mark.parametrize("topology", [passing, None])
@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "10.0.0.1", "worker-1"])
def test_a_worker_does_not_listen_elsewhere_without_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bind: str, topology: Any
) -> None:
    def app() -> App:
        return App("t", topology=topology, datadir=tmp_path, bootstrap_servers="localhost:1", web_bind=bind)

    with pytest.raises(ConfigError, match="STREAMAPP_WEB_USERS_FILE"):
        app().web.prepare()
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    app().web.prepare()


async def test_a_worker_warns_once_of_a_server_without_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    app = App("t", topology=passing, datadir=tmp_path, bootstrap_servers="localhost:1", web_bind="0.0.0.0")
    monkeypatch.setattr(Web, "on_start", lambda self: asyncio.sleep(0))
    app.web.prepare()  # as at the start of the worker
    await app.web.on_start()
    assert sum("without TLS" in message for message in caplog.messages) == 1


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, f"http://{os.uname().nodename.lower()}.localhost:6066"),
        ({"web_port": 7001}, f"http://{os.uname().nodename.lower()}.localhost:7001"),
        ({"web_bind": "0.0.0.0"}, f"http://{os.uname().nodename}:6066"),
        ({"web_host": "views.example"}, "http://views.example:6066"),
        ({"canonical_url": "https://views.example"}, "https://views.example"),
    ],
)
def test_a_worker_listens_on_loopback_and_advertises_where_it_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], url: str
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    app = App("t", topology=passing, datadir=tmp_path, bootstrap_servers="localhost:1", **settings)
    app.web.prepare()
    assert app.conf.web_bind == settings.get("web_bind", "127.0.0.1")
    assert app.streams.url == url


def started(app: App, **given: Any) -> None:
    """Gives an application the options of Faust's command ``worker``, and takes the first step of the start."""
    options = {"with_web": True, "web_port": None, "web_bind": None, "web_host": None, "web_transport": None}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Faust warns of a setting that the application has read already
        FaustWorkerCommand._init_worker_options(SimpleNamespace(app=app), **{**options, **given})
    app.on_init_dependencies()


@pytest.mark.parametrize("variable", [False, True])
def test_an_address_that_is_set_stays_with_another_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: bool
) -> None:
    """Faust's option ``--web-port`` replaced the address by the name of the host."""
    address = "https://views.example:8443"
    if variable:
        monkeypatch.setenv("NODE_CANONICAL_URL", address)
    settings = {} if variable else {"canonical_url": address}
    app = App("t", topology=passing, datadir=tmp_path, bootstrap_servers="localhost:1", **settings)
    started(app, web_port=7001)
    app.web.prepare()
    assert (app.conf.web_port, app.streams.url) == (7001, address)


@pytest.mark.parametrize("enabled", [False, True])
def test_a_web_server_that_is_switched_off_stays_off(tmp_path: Path, enabled: bool) -> None:
    """Faust's command ``worker`` switched it on."""
    app = App("t", topology=passing, datadir=tmp_path, bootstrap_servers="localhost:1", web_enabled=enabled)
    started(app)
    assert app.boot_strategy._should_enable_web() is enabled


async def test_an_app_without_topology_has_the_guard(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    app = App("t", datadir=tmp_path, bootstrap_servers="localhost:1")

    @app.page("/mine/")
    async def mine(view: Any, request: Any) -> Any:
        return view.json({})

    app.web.init_server()
    client = await serve(None, TestServer(app.web.web_app))
    assert (await client.get("/mine/")).status == 401
    assert (await client.get("/mine/", headers=AS_BOB)).status == 200
    assert (await client.get("/mine/", headers=AS_BOB | {"Host": "evil.example"})).status == 403


async def test_users_and_secret_may_change_while_the_worker_runs(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access_module, "_LOOK_SECONDS", 0.0)
    names, secret = tmp_path / "users", tmp_path / "secret"
    names.write_text(ADA)
    secret.write_text(SECRET + "\n")
    files = {"STREAMAPP_WEB_USERS_FILE": str(names), "STREAMAPP_WEB_CLUSTER_SECRET_FILE": str(secret)}
    client = await serve(flights(), access=WebAccess(files))

    async def statuses() -> list[int]:
        return [(await client.get("/status", headers=headers)).status for headers in (AS_ADA, AS_ROBOT)]

    assert await statuses() == [200, 401]
    names.write_text(f"{ROBOT}\n")
    assert await statuses() == [401, 200]
    names.write_text("nonsense: planted")
    assert await statuses() == [401, 200]
    names.unlink()
    assert await statuses() == [401, 200]
    assert "previous contents of the file stay in use" in caplog.text
    assert "planted" not in caplog.text


# --- commands ---


def test_the_commands_make_users_that_the_server_knows(tmp_path: Path) -> None:
    def run(*arguments: str, text: str = "") -> str:
        result = CliRunner().invoke(main, ["web", *arguments], input=text)
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    line = run("user", "grace", "--role", "operate", text="planted-hopper\n")
    assert "planted" not in line
    token_file, secret_file = tmp_path / "token", tmp_path / "secret"
    other = run("token", "prometheus", "--to", str(token_file))
    assert run("secret", "--to", str(secret_file)) == ""
    assert {path.stat().st_mode & 0o777 for path in (token_file, secret_file)} == {0o600}
    token = token_file.read_text().strip()
    assert token not in other
    made = Users.parse(f"{line}\n{other}")
    assert made.of_password("grace", "planted-hopper") == Identity("grace", "operate")
    assert made.of_password("grace", "planted-hoppes") is None
    assert made.of_token(token) == Identity("prometheus", "read")
    result = CliRunner().invoke(main, ["web", "token", "x", "--to", str(token_file)])
    assert result.exit_code == 1, "a token that is there is not written over"


@pytest.mark.parametrize(
    ("name", "password"), [("a:b", "planted-long"), ("", "planted-long"), ("ada", "short")]
)
def test_the_commands_refuse_what_cannot_be(name: str, password: str) -> None:
    result = CliRunner().invoke(main, ["web", "user", name], input=f"{password}\n")
    assert result.exit_code == 1
    assert "planted" not in result.output


async def test_commands_take_their_login_from_the_environment(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sources, _, _ = await pair(serve)
    url = sources[0].worker.url

    async def pause() -> Any:
        return await asyncio.to_thread(CliRunner().invoke, main, ["pause", url])

    refused = await pause()
    assert (refused.exit_code, "STREAMAPP_WEB_TOKEN_FILE" in refused.output) == (1, True)
    (tmp_path / "token").write_text("sat_planted\n")
    monkeypatch.setenv("STREAMAPP_WEB_TOKEN_FILE", str(tmp_path / "token"))
    assert (await pause()).exit_code == 0
    assert [source.worker.paused for source in sources] == [True, True]
    monkeypatch.delenv("STREAMAPP_WEB_TOKEN_FILE")
    monkeypatch.setenv("STREAMAPP_WEB_USER", "bob")
    monkeypatch.setenv("STREAMAPP_WEB_PASSWORD", "planted-passw0rd-2")
    assert "may read only" in (await pause()).output


async def test_a_login_is_not_sent_where_a_worker_redirects_to(serve: Serve) -> None:
    asked: list[str] = []

    async def away(request: web.Request) -> web.Response:
        asked.append(request.path)
        raise web.HTTPFound("/elsewhere")

    app = web.Application()
    app.router.add_get("/{tail:.*}", away)
    client = await serve(None, TestServer(app))
    url = str(client.make_url("/status"))
    with pytest.raises(OSError, match="302"):
        await asyncio.to_thread(open_worker, url, seconds=10, environ={"STREAMAPP_WEB_TOKEN": "sat_x"})
    assert asked == ["/status"]


def test_many_requests_do_not_make_a_valid_signature_count_twice() -> None:
    """Beyond 10,000 signatures the oldest was forgotten while it was still valid."""
    signatures = Signatures(lambda: b"s" * 32, now=lambda: 1_000.0)
    headers = [
        signatures.sign(Identity("ada", "operate"), "POST", "http://a", "/pause") for _ in range(10_001)
    ]
    taken = [signatures.identity(header, "POST", "http://a", "/pause") for header in headers]
    assert None not in taken
    assert signatures.identity(headers[0], "POST", "http://a", "/pause") is None
