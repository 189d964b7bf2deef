"""A real Apache Kafka on this machine, with Java and without Docker: one broker, or three that form a quorum."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streamapp._base.counted import counted
from streamapp.broker.broker_process import BrokerProcess, write_atomically
from streamapp.broker.distribution import find_java, kafka_jars
from streamapp.broker.former_sessions import end_former_sessions, was_killed
from streamapp.broker.local_security import FOLDER, LocalSecurity
from streamapp.broker.ports import check_port, free_port
from streamapp.broker.properties import HOST, LOG_FOLDER, cluster_properties, node_properties, render
from streamapp.errors import BrokerError

__all__ = ["BrokerStatus", "ClusterStatus", "LocalKafka"]

_MARKER = "streamapp-kafka.json"
_PROPERTIES = "server.properties"
_LOCK = ".lock"
_SPARE_DISK_BYTES = 256 * 2**20
_STOP_SECONDS = 15.0


@dataclass(frozen=True)
class BrokerStatus:
    """One broker of a local cluster; ``pid`` is None if the broker does not run."""

    id: int
    address: str
    pid: int | None


@dataclass(frozen=True)
class ClusterStatus:
    """The result of `LocalKafka.status`; ``brokers`` is empty if the cluster was never started."""

    data_dir: Path
    brokers: tuple[BrokerStatus, ...]

    @property
    def running(self) -> bool:
        """True if any broker runs."""
        return any(broker.pid is not None for broker in self.brokers)


@dataclass(frozen=True)
class _Cluster:
    cluster_id: str
    ports: tuple[int, ...]
    controller_ports: tuple[int, ...]
    tls_ports: tuple[int, ...] = ()
    """The listeners for clients with certificates; empty in a cluster that lets everybody in."""


class LocalKafka:
    """A local Kafka cluster that keeps its data in ``data_dir``.

    ``brokers`` is 1 or 3 (None: as many as the cluster in the folder has, or 1 for a new folder). Broker n listens on
    ``port + n - 1``. Port 0 takes free ports, which stay the same for the life of this object. Each broker gets
    ``heap_mb`` MB of Java heap. The brokers have ``start_timeout`` seconds to start. Brokers do not create topics on
    first use, so create topics with `KafkaAdmin.ensure_topics`.

    With ``secure``, brokers let in only clients with a password or a certificate, over TLS. A client with the password
    needs the environment variables of `environment`. Without ``secure``, a new folder is open to all clients of this
    machine, and a folder that was made with ``secure`` stays secured. The first start with ``secure`` makes the
    certificates, and needs ``streamapp[secure]``.

        with LocalKafka("data/kafka", port=0) as kafka:
            print(kafka.bootstrap_servers)

    `BrokerError` has the reason if Kafka cannot run, and says what to do.
    """

    def __init__(
        self,
        data_dir: str | Path = "data/kafka",
        brokers: int | None = None,
        port: int = 9092,
        *,
        secure: bool = False,
        heap_mb: int = 512,
        start_timeout: float = 120.0,
    ) -> None:
        if brokers not in (None, 1, 3):
            raise BrokerError(f"A local cluster has 1 or 3 brokers, not {brokers}.")
        if not 0 <= port <= 65_533:
            raise BrokerError(f"Port {port} is out of range: use 1 to 65533, or 0 for a free one.")
        self.data_dir: Path = Path(data_dir).absolute()
        self._wanted_brokers = brokers
        self._wanted_port = port
        self._wanted_secure = secure
        self._security = LocalSecurity(self.data_dir / FOLDER)
        self._heap_mb = heap_mb
        self._start_timeout = start_timeout
        self._processes: dict[int, BrokerProcess] = {}
        self._java_command: list[str] = []
        self._detached = False
        self._free_ports: list[int] = []

    def __enter__(self) -> LocalKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, joined by commas, for the setting of the same name in Kafka clients."""
        return _addresses(self._started_cluster().ports)

    @property
    def secure(self) -> bool:
        """True if clients need a password or a certificate."""
        return bool(self._started_cluster().tls_ports)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a client; `KafkaSettings.from_env` and all commands read them."""
        if not self.secure:
            return {"STREAMAPP_BOOTSTRAP_SERVERS": self.bootstrap_servers}
        return self._security.login(self.bootstrap_servers)

    def check(self) -> None:
        """Raise `BrokerError` if the cluster cannot start, for example because a port is in use."""
        with self._lock():
            self._checked_plan()

    def start(self, *, detached: bool = False) -> None:
        """Start every broker, and return when all brokers answer requests.

        The brokers end with this Python process, even if the process crashes. With ``detached``, the brokers run until
        `stop`.
        """
        self.check()  # a mistake is told before the download, which may take minutes without the lock
        java_command = self._java()
        with self._lock() as lock:
            cluster = self._checked_plan()
            self._java_command, self._detached = java_command, detached
            self._write_cluster(cluster)
            ids = range(1, len(cluster.ports) + 1)
            self._format(cluster, ids, lock)
            self._start_brokers(cluster, ids)
            if cluster.tls_ports:
                self._security.add_user(_addresses(cluster.tls_ports), self._start_timeout)

    def stop(self) -> None:
        """Shut every broker down, also those that other processes started.

        A broker that still runs after 15 s is killed.
        """
        self._end(self._folders())

    def status(self) -> ClusterStatus:
        """Return the state of each broker, also of brokers that another process has started."""
        cluster = self._read_marker()
        found = (
            BrokerStatus(number, f"{HOST}:{port}", self._process(number).pid)
            for number, port in enumerate(cluster.ports if cluster else (), start=1)
        )
        return ClusterStatus(self.data_dir, tuple(found))

    def reset(self) -> None:
        """Stop the cluster and delete its data. Files in the folder that are not Kafka's stay untouched."""
        marker = self.data_dir / _MARKER
        if not self.data_dir.exists():
            return
        if not marker.exists():
            self._refuse_foreign_folder()
        with self._lock():
            self._end(self._folders())
            for number in self._folders():
                shutil.rmtree(self._folder(number))
            shutil.rmtree(self.data_dir / FOLDER, ignore_errors=True)
            marker.unlink(missing_ok=True)

    def start_broker(self, number: int) -> None:
        """Start one broker (1, 2, 3) of a started cluster again, on its old address.

        The broker ends with this Python process, unless this object has started the cluster detached.
        """
        cluster = self._started_cluster()
        if self._broker(number).pid is not None:
            raise BrokerError(f"Broker {number} runs already.")
        self._java_command = self._java_command or self._java()
        self._start_brokers(cluster, [number])

    def stop_broker(self, number: int) -> None:
        """Shut one broker down. The broker first hands the leadership of its partitions over to other brokers."""
        self._broker(number)
        self._end([number])

    def kill_broker(self, number: int) -> None:
        """End one broker at once (SIGKILL), without an orderly shutdown."""
        process = self._broker(number)
        process.signal(SIGKILL)
        process.wait(_STOP_SECONDS)

    def _java(self) -> list[str]:
        java = find_java()
        logger = "-Dorg.slf4j.simpleLogger"
        options = [f"-Xmx{self._heap_mb}m", f"{logger}.showDateTime=true"]
        options += [f"{logger}.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS", f"{logger}.showThreadName=false"]
        # Without this option, each start logs every setting: an error is hard to find in 500 lines.
        options += [f"{logger}.log.org.apache.kafka.common.config.AbstractConfig=warn"]
        return [java, *options, "-cp", str(kafka_jars(java) / "*")]

    def _checked_plan(self) -> _Cluster:
        if self.status().running:
            raise BrokerError(f"Kafka in {self.data_dir} runs already at {self.bootstrap_servers}.")
        cluster = self._plan_cluster(self._read_marker())
        self._check_disk()
        for port in (*cluster.ports, *cluster.controller_ports, *cluster.tls_ports):
            check_port(port)
        return cluster

    def _plan_cluster(self, existing: _Cluster | None) -> _Cluster:
        brokers = self._wanted_brokers or (len(existing.ports) if existing else 1)
        if existing and len(existing.ports) != brokers:
            raise BrokerError(
                f"The cluster in {self.data_dir} has {counted(len(existing.ports), 'broker')}, not {brokers}. Ask "
                "for the existing number, name another data folder, or delete the data: `streamapp broker reset`."
            )
        if not existing:
            self._refuse_foreign_folder()
        secure = self._wanted_secure or bool(existing and existing.tls_ports)
        while len(self._free_ports) < 3 * brokers:
            self._free_ports.append(free_port())
        wanted = tuple(self._wanted_port + number for number in range(brokers))
        return _Cluster(
            existing.cluster_id if existing else _new_cluster_id(),
            wanted if self._wanted_port else tuple(self._free_ports[:brokers]),
            tuple(self._free_ports[brokers : 2 * brokers]),
            tuple(self._free_ports[2 * brokers :]) if secure else (),
        )

    def _write_cluster(self, cluster: _Cluster) -> None:
        # The marker comes first, and marks the folder as a local Kafka's. Formatting can be repeated, so the next start
        # continues an interrupted start.
        write_atomically(self.data_dir / _MARKER, json.dumps(asdict(cluster)) + "\n")
        if cluster.tls_ports:
            self._security.prepare()
            self._security.write_environments(_addresses(cluster.ports), _addresses(cluster.tls_ports))
        for number in range(1, len(cluster.ports) + 1):
            folder = self._folder(number)
            folder.mkdir(exist_ok=True)
            node = node_properties(number, cluster.ports, cluster.controller_ports)
            if cluster.tls_ports:
                folder.chmod(0o700)  # the settings have the password
                ports = (cluster.ports, cluster.tls_ports, cluster.controller_ports)
                node |= self._security.properties(*(each[number - 1] for each in ports))
            write_atomically(folder / _PROPERTIES, render(node | cluster_properties(len(cluster.ports))))

    def _format(self, cluster: _Cluster, ids: Iterable[int], lock: int) -> None:
        java, *options = self._java_command
        # The program runs for one second, which is too short for the optimising compiler.
        tool = [
            java,
            "-XX:TieredStopAtLevel=1",
            *options,
            "kafka.tools.StorageTool",
            "format",
            "--ignore-formatted",
        ]
        running = [
            subprocess.Popen(
                [*tool, "-t", cluster.cluster_id, "-c", _PROPERTIES],
                cwd=self._folder(number),
                pass_fds=[lock],  # the tool may outlive this process, and the next start waits for it
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for number in ids
            if not (self._folder(number) / LOG_FOLDER / "meta.properties").exists()
        ]
        said = [process.communicate()[0] for process in running]
        for process, output in zip(running, said, strict=True):
            if process.returncode:
                raise BrokerError(
                    f"Kafka could not format {self.data_dir}. If its data may go, run "
                    f"`streamapp broker reset`. Kafka says:\n{output.strip()}"
                )

    def _start_brokers(self, cluster: _Cluster, ids: Sequence[int]) -> None:
        killed = [number for number in ids if was_killed(self._folder(number))]
        # While other brokers run, they have taken over the partitions of killed brokers.
        if killed and len(ids) == len(cluster.ports):
            folders = {number: self._folder(number) for number in ids}
            end_former_sessions(self._java_command, folders, killed)
        try:
            for number in ids:
                command = [*self._java_command, "kafka.Kafka", _PROPERTIES]
                self._process(number).start(command, detached=self._detached)
            self._await_ready(cluster, ids)
        except BaseException:
            for number in ids:
                self._process(number).signal(SIGKILL)
                self._process(number).wait(_STOP_SECONDS)
            raise

    def _await_ready(self, cluster: _Cluster, ids: Sequence[int]) -> None:
        """Wait until each broker answers a metadata request with all started brokers.

        Raises `BrokerError` if a broker ends, or is not ready in time.
        """
        deadline = time.monotonic() + self._start_timeout
        for number in ids:
            process = self._process(number)
            address = f"{HOST}:{cluster.ports[number - 1]}"
            # log_level 0: until the broker listens, librdkafka would print each refused connection.
            settings: dict[str, str] = {"bootstrap.servers": address}
            if cluster.tls_ports:
                settings = self._security.client(_addresses(cluster.tls_ports[number - 1 : number]))
            client = AdminClient({**settings, "log_level": 0, "reconnect.backoff.max.ms": 200})
            while not _members(client).issuperset(ids):
                if process.pid is None:
                    problem = "ended while it started"
                elif time.monotonic() > deadline:
                    problem = f"did not get ready within {self._start_timeout:g} s"
                else:
                    continue
                raise BrokerError(
                    f"Broker {number} at {address} {problem}. "
                    f"The end of its log, {process.log}:\n{process.log_tail()}"
                )

    def _end(self, ids: Sequence[int]) -> None:
        for number in ids:
            self._process(number).signal(SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        for number in ids:
            process = self._process(number)
            if not process.wait(max(0.0, deadline - time.monotonic())):
                process.signal(SIGKILL)
                process.wait(_STOP_SECONDS)

    def _broker(self, number: int) -> BrokerProcess:
        brokers = len(self._started_cluster().ports)
        if not 1 <= number <= brokers:
            raise BrokerError(f"There is no broker {number}: this cluster has the brokers 1 to {brokers}.")
        return self._process(number)

    def _process(self, number: int) -> BrokerProcess:
        return self._processes.setdefault(number, BrokerProcess(self._folder(number)))

    def _folder(self, number: int) -> Path:
        return self.data_dir / f"broker-{number}"

    def _folders(self) -> list[int]:
        return [number for number in (1, 2, 3) if self._folder(number).is_dir()]

    def _started_cluster(self) -> _Cluster:
        cluster = self._read_marker()
        if cluster is None:
            raise BrokerError(
                f"There is no Kafka in {self.data_dir}: start it with `streamapp broker start`."
            )
        return cluster

    def _read_marker(self) -> _Cluster | None:
        path = self.data_dir / _MARKER
        try:
            marker = json.loads(path.read_text(encoding="utf-8"))
            return _Cluster(
                marker["cluster_id"],
                tuple(marker["ports"]),
                tuple(marker["controller_ports"]),
                tuple(marker.get("tls_ports", ())),
            )
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BrokerError(
                f"{path} cannot be read ({error!r}), so the Kafka data beside it cannot be used. "
                "Run `streamapp broker reset` to delete that data, or name another data folder."
            ) from error

    def _refuse_foreign_folder(self) -> None:
        strange = [path.name for path in self.data_dir.iterdir() if path.name != _LOCK]
        if strange:
            raise BrokerError(
                f"{self.data_dir} has files that are not Kafka's ({', '.join(sorted(strange)[:5])}). "
                "Name another data folder, or empty this folder yourself."
            )

    def _check_disk(self) -> None:
        free = shutil.disk_usage(self.data_dir).free
        if free < _SPARE_DISK_BYTES:
            raise BrokerError(
                f"Only {free // 2**20} MB are free below {self.data_dir}; Kafka needs "
                f"{_SPARE_DISK_BYTES // 2**20} MB to start. Delete files, or name a data folder on another disk."
            )

    @contextmanager
    def _lock(self) -> Iterator[int]:
        """Locks the folder for this process and for processes that inherit the file descriptor.

        Waits for other processes; raises `BrokerError` after ``start_timeout`` seconds.
        """
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            file = (self.data_dir / _LOCK).open("w")
        except OSError as error:
            raise BrokerError(f"{self.data_dir} cannot be used as a data folder: {error}.") from error
        deadline = time.monotonic() + self._start_timeout
        with file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise BrokerError(
                            f"Another process has been starting or resetting the Kafka in {self.data_dir} "
                            f"for {self._start_timeout:g} s: end that process, then try again."
                        ) from None
                    time.sleep(0.05)
            yield file.fileno()


def _new_cluster_id() -> str:
    """Return a random id in Kafka's form, without a dash: a dash in front would look like an option."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def _addresses(ports: Sequence[int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports)


def _members(client: AdminClient) -> set[int]:
    try:
        return set(client.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return set()
