"""Requests to Kafka that are repeated: offsets until partitions have leaders, and groups until they have a coordinator.

Admin requests get no time-out in librdkafka, which may crash when one runs out (`NO_TIMEOUT`). Instead, the caller
stops waiting after its own time limit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from confluent_kafka import OFFSET_END, Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic, OffsetSpec

from streamapp.broker.certificates import CertificateFiles
from streamapp.broker.librdkafka import opening
from streamapp.errors import AuthorizationError, BrokerError
from streamapp.records import TopicPartition

__all__ = [
    "CHECK_KAFKA",
    "NO_ANSWER",
    "NO_TIMEOUT",
    "REQUEST_SECONDS",
    "SOON_SECONDS",
    "FirstAnswer",
    "LastingAdmin",
    "advice",
    "ask",
    "ask_controller",
    "at_time",
    "broker_error",
    "check_shown",
    "committed",
    "committed_of_stranger",
    "describe_brokers",
    "describe_topic_settings",
    "find_cluster",
    "list_offsets",
    "not_shown",
    "reach",
    "refusal",
    "unreachable",
    "until_coordinated",
]

logger: logging.Logger = logging.getLogger(__name__)
S = TypeVar("S")
T = TypeVar("T")

CHECK_KAFKA = (
    "Check that Kafka runs, that the address is right, and that Kafka accepts the security protocol and the login "
    "(docs/connecting.md)."
)
"""The advice of error messages when a cluster gives no answer."""

NO_TIMEOUT = 3_600.0
"""The ``request_timeout`` of every request of an admin client, in seconds.

librdkafka 2.x ends the process (an assertion, or a segmentation fault) if a time-out runs out while librdkafka looks
for a broker or coordinator. Requests therefore have a very long time-out, and the caller stops waiting earlier.
"""

_SILENCE_SECONDS = 9.0
SOON_SECONDS = 2.0
"""The time after which a request for committed offsets looks for an error that only a poll tells."""
_MOST_ERRORS = 100
REQUEST_SECONDS = 10.0
"""The time after which a request without an answer is made again, with a new client (`LastingAdmin`), if its caller
repeats requests."""

_SOON_KNOWN_SECONDS = 1.0
"""The time after which a client looks for the reason why no broker answers. A closed port refuses a client at once."""
_QUIET_SECONDS = 3.0
"""The time without an answer and without a reason after which a user learns that the program waits for Kafka."""
_REPEAT_SECONDS = 20.0
"""The time after which the log says once more that the program waits for Kafka."""

_SAY_SECONDS = 10.0
"""The time after which the log has the partitions of a request that is repeated."""

_NO_CONNECTION = (KafkaError._TRANSPORT, KafkaError._RESOLVE)
_NOT_LET_IN = (KafkaError._AUTHENTICATION, KafkaError._SSL)
NO_ANSWER = (KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, *_NO_CONNECTION)
"""The errors of a request that no broker answers."""

_PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError._NOENT,
    *NO_ANSWER,
)
"""The errors of a partition whose broker has gone, or whose leader changes."""

_UNKNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)

_UNCONTROLLED = (
    KafkaError.NOT_CONTROLLER,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    *NO_ANSWER,
)
"""The errors of a cluster whose controller has gone.

The controller may have done the work, and died before its answer.
"""

_UNCOORDINATED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
)
"""The errors of a group without a coordinator, and of a group while a transaction with its offsets ends.

A group has no coordinator on a new cluster, and while the group moves to another broker.
"""


def advice(error: KafkaError, remedies: Mapping[int, str] = MappingProxyType({})) -> str:
    """The advice to append to the text of an error, with the full stop that ends this text. Empty if nothing is known
    to help.

    ``remedies`` maps the code of an error to the advice for this request.

    >>> advice(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), {KafkaError.MSG_SIZE_TOO_LARGE: "Write less"})
    '. Write less'
    """
    text = CHECK_KAFKA if error.code() in NO_ANSWER else remedies.get(error.code(), "")
    return text and f". {text}"


_CHECK_CERTIFICATE = (
    "Check that an authority of ssl.ca.location has signed the certificate of the brokers, and that the certificate "
    "has not expired and has the host name of the address."
)
_NO_RIGHT = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


def broker_error(
    text: str, error: KafkaError, remedies: Mapping[int, str] = MappingProxyType({})
) -> BrokerError:
    """An exception with ``text`` and the `advice` for an error: `AuthorizationError` if a right is missing.

    >>> error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    >>> broker_error("letters cannot be read", error, {error.code(): "Grant this client READ on the topic"})
    AuthorizationError('letters cannot be read. Grant this client READ on the topic')
    """
    kind = AuthorizationError if error.code() in _NO_RIGHT else BrokerError
    hint = advice(error, remedies)
    return kind(f"{text.removesuffix('.')}{hint}" if hint else text)


def unreachable(settings: Mapping[str, Any], error: KafkaError) -> BrokerError:
    """The exception for a cluster that no client reaches, from the client's settings and its last error.

    >>> error = KafkaError(KafkaError._TRANSPORT)
    >>> str(unreachable({"bootstrap.servers": "kafka:9092"}, error))[:79]
    'Kafka cannot be reached at kafka:9092 with PLAINTEXT (Local: Broker transport f'
    """
    servers, protocol = settings["bootstrap.servers"], settings.get("security.protocol", "PLAINTEXT")
    check = _CHECK_CERTIFICATE if "certificate verify failed" in error.str() else CHECK_KAFKA
    return BrokerError(
        f"Kafka cannot be reached at {servers} with {protocol} ({error.str()}). {check} This command starts a "
        "local Kafka: streamapp broker start"
    )


class LastingAdmin:
    """An admin client with the requests of `AdminClient`, except ``list_consumer_group_offsets``, which may crash the
    process. After a request without an answer, the object opens a new client.

    A new client is needed because after a pause of a broker's process, librdkafka may forget all brokers, and never
    connect again (librdkafka#5301). Open requests of the old client never get an answer. Several threads may use one
    object.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        refusals = self._refusals = deque[KafkaError](maxlen=1)
        """The brokers' objection to this client, as long as no broker lets the client in."""
        faults = self._faults = deque[KafkaError](maxlen=1)
        """The last failure of a connection since the last answer."""

        def note(error: KafkaError) -> None:  # no method: the client would keep this object alive
            if error.code() in _NOT_LET_IN:
                refusals.append(error)
            elif error.code() in _NO_CONNECTION:
                faults.append(error)

        # librdkafka's default of ten seconds is too long for a broker that is just starting. A user's own pauses stay.
        pauses = {} if "reconnect.backoff.ms" in settings else {"reconnect.backoff.max.ms": 1_000}
        self._settings = {"error_cb": note, **pauses, **settings}
        self._files = CertificateFiles(settings)  # before the client, which may get older files
        self._client = self._open()
        self._asked: list[tuple[float, Collection[Future[Any]]]] = []
        self._lock = threading.Lock()

    def list_topics(self, topic: str | None = None, timeout: float = -1.0, *, keep: bool = False) -> Any:
        """As the method of `AdminClient`. The error of a request without an answer has the reason, if it is known.

        With ``keep``, the client stays after a request without an answer, so that its connections can be completed.
        """
        with self._lock:
            self._follow_files()
            client = self._client
        try:
            found = client.list_topics(topic, timeout)
        except KafkaException as exc:
            client.poll(0)  # the call has timed out, and only the callback gets the reason
            error: KafkaError = exc.args[0]
            if error.code() in NO_ANSWER:  # librdkafka also says _TRANSPORT if a connection takes longer
                error = next(iter(self._faults), KafkaError(KafkaError._TIMED_OUT))
            error = next(iter(self._refusals), error)
            with self._lock:
                if client is self._client and not keep:
                    self._reopen()
            raise KafkaException(error) from None
        self._refusals.clear()
        self._faults.clear()
        return found

    def list_consumer_groups(self, cluster: str, **options: Any) -> Mapping[str, Future[Any]]:
        """As the method of `AdminClient`, whose only future is that of ``cluster`` here, so that `ask` takes it."""
        return self._request(lambda client: {cluster: client.list_consumer_groups(**options)})

    def __getattr__(self, name: str) -> Callable[..., Mapping[Any, Future[Any]]]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name == "list_consumer_group_offsets":
            raise AttributeError(
                f"{name} may crash the process (librdkafka#5040): use `read_committed_offsets`"
            )
        return lambda *what, **options: self._request(lambda client: getattr(client, name)(*what, **options))

    def _request(self, call: Callable[[AdminClient], Mapping[Any, Future[Any]]]) -> Mapping[Any, Future[Any]]:
        with self._lock:
            self._follow_files()
            self._asked = [
                (at, futures) for at, futures in self._asked if not all(future.done() for future in futures)
            ]
            if self._asked and time.monotonic() - self._asked[0][0] > _SILENCE_SECONDS:
                self._reopen()
            asked = call(self._client)
            self._asked.append((time.monotonic(), asked.values()))
        return asked

    def _follow_files(self) -> None:
        if self._files.changed():
            self._reopen()

    def _open(self) -> AdminClient:
        with opening(self._settings) as current:
            return AdminClient(current)

    def _reopen(self) -> None:
        self._faults.clear()
        self._client = self._open()
        self._asked = []


class FirstAnswer:
    """The wait for the first answer of a cluster, which may be starting.

    The log names the address and the reason after a second if an address takes no connection, and otherwise later. A
    client looks each second. A new client takes over only after `REQUEST_SECONDS`, because slow listeners need time for
    a connection.
    """

    def __init__(self, admin: LastingAdmin, settings: Mapping[str, Any], seconds: float) -> None:
        self._admin, self._settings = admin, settings
        now = time.monotonic()
        self._deadline, self._say_at = now + seconds, now + _QUIET_SECONDS
        self._renew_at, self._patience = now + REQUEST_SECONDS, REQUEST_SECONDS
        self._said = False
        self.error: KafkaError | None = None
        """The error of the last attempt without an answer."""

    def attempt(self) -> Any:
        """The metadata of all topics. None: there is no answer yet. Raises `BrokerError` when the time is over."""
        now = time.monotonic()
        next_word = (
            _SOON_KNOWN_SECONDS if self.error is None else max(_SOON_KNOWN_SECONDS, self._say_at - now)
        )
        look = max(0.0, min(next_word, self._renew_at - now, self._deadline - now))
        keep = now + look < self._renew_at
        try:
            return self._admin.list_topics(timeout=look, keep=keep)
        except KafkaException as exc:
            error, now = exc.args[0], time.monotonic()
            failed, left = unreachable(self._settings, error), self._deadline - now
            if left <= 0:
                raise failed from exc
            self.error = error
            refused = error.code() in _NO_CONNECTION
            if now >= self._say_at or (refused and not self._said):
                logger.warning("%s. Trying again for %.0f s", failed, left)
                self._said, self._say_at = True, now + _REPEAT_SECONDS
            if not keep:
                self._patience *= 2  # slow brokers may need more than the first time for connections
                self._renew_at = now + self._patience
        return None


def find_cluster(admin: LastingAdmin, settings: Mapping[str, Any], *, seconds: float) -> Any:
    """The metadata of all topics, as soon as a broker answers. The log tells of a longer wait (`FirstAnswer`).

    Raises `BrokerError` after ``seconds`` without an answer, and at once if brokers refuse the login.
    """
    first = FirstAnswer(admin, settings, seconds)
    while (found := first.attempt()) is None:
        if first.error is not None and first.error.code() not in NO_ANSWER:
            raise unreachable(settings, first.error)
    return found


def reach(settings: Mapping[str, Any]) -> None:
    """Returns as soon as a broker answers a client with these settings. Raises the errors of `find_cluster`.

    Commands call this function before long work. They wait for ten seconds, in which a local broker can start.
    """
    admin = LastingAdmin({**settings, "client.id": "streamapp", "log_level": 0})
    find_cluster(admin, settings, seconds=REQUEST_SECONDS)


def ask(
    request: Callable[..., Mapping[S, Future[T]]], what: Any, /, *, seconds: float, **options: Any
) -> dict[S, Future[T]]:
    """Makes one request of an admin client, and waits at most ``seconds`` for all answers.

    The returned futures are done: ``result()`` returns at once, or raises `KafkaException`. The code of the exception
    is ``_TIMED_OUT`` if there is no answer.

        (described,) = ask(admin.describe_consumer_groups, ["flights"], seconds=10).values()
        members = described.result().members
    """
    asked = request(what, request_timeout=NO_TIMEOUT, **options)
    wait(asked.values(), max(0.0, seconds))
    return {subject: future if future.done() else _unanswered() for subject, future in asked.items()}


def ask_controller(
    request: Callable[..., Mapping[str, Future[T]]], topics: Iterable[str | NewTopic], *, seconds: float
) -> dict[str, Future[T]]:
    """Creates or deletes topics, and repeats the request while the cluster has no controller, for at most ``seconds``.

    The returned futures are done, as those of `ask`. A repeated request may find its work done: the topic to create
    exists, or the topic to delete is unknown.

        answers = ask_controller(admin.create_topics, [NewTopic("flights", 6)], seconds=30)
    """
    deadline, wanted = time.monotonic() + seconds, list(topics)
    found: dict[str, Future[T]] = {}
    while wanted:
        found |= ask(request, wanted, seconds=min(deadline - time.monotonic(), REQUEST_SECONDS))
        wanted = [topic for topic in wanted if _is_open(found[_name_of(topic)])]
        if time.monotonic() >= deadline:
            break
        if wanted:
            time.sleep(0.1)
    return found


def _name_of(topic: str | NewTopic) -> str:
    return topic if isinstance(topic, str) else str(topic.topic)


def _is_open(answer: Future[Any]) -> bool:
    error = answer.exception()
    return isinstance(error, KafkaException) and error.args[0].code() in _UNCONTROLLED


def describe_brokers(
    admin: LastingAdmin, brokers: Iterable[int], *, seconds: float
) -> dict[int, Future[Mapping[str, Any]]]:
    """The settings of each broker, as futures of `ask`.

    Each broker has its own request: librdkafka refuses a request about several brokers.
    """
    found = {}
    for id in brokers:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(id))
        ((_, found[id]),) = ask(admin.describe_configs, [resource], seconds=seconds).items()
    return found


def check_shown(admin: LastingAdmin, topics: Collection[str], remedy: str, *, seconds: float) -> None:
    """Raises `AuthorizationError` with ``remedy`` if brokers hide topics from the client for lack of a right.

    A list of all topics lacks hidden topics, as if they did not exist. Only a request by name tells the difference.
    """
    if not topics:
        return
    answers = ask(admin.describe_topics, TopicCollection(sorted(topics)), seconds=seconds)
    errors = {name: answer.exception() for name, answer in answers.items()}
    code = KafkaError.TOPIC_AUTHORIZATION_FAILED
    hidden = [
        n for n, exc in errors.items() if isinstance(exc, KafkaException) and exc.args[0].code() == code
    ]
    if hidden:
        raise not_shown(hidden, remedy)


def not_shown(topics: Collection[str], remedy: str) -> BrokerError:
    """The exception for topics that brokers hide from the client for lack of a right."""
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    several = "s" if len(topics) > 1 else ""
    text = f"brokers do not show the topic{several} {', '.join(topics)} to this client: Topic authorization failed"
    return broker_error(text, error, {error.code(): remedy})


def describe_topic_settings(
    admin: LastingAdmin | AdminClient, topics: Iterable[str], *, seconds: float
) -> dict[str, Future[Mapping[str, ConfigEntry]]]:
    """The settings of each topic, as futures of `ask`. A setting that the topic does not have is that of the brokers.

    (settings,) = describe_topic_settings(admin, ["flights"], seconds=10).values()
    policy = settings.result()["cleanup.policy"].value
    """
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    answers = ask(admin.describe_configs, resources, seconds=seconds) if resources else {}
    return {resource.name: answer for resource, answer in answers.items()}


def _unanswered() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    return future


def at_time(time_ms: int) -> OffsetSpec:
    """The first record that is not older than a time, for `list_offsets`. Before 1970, the first record of the log.

    Kafka's requests have no negative times: -1 is the end of the log, and brokers refuse others.
    """
    return OffsetSpec.earliest() if time_ms < 0 else OffsetSpec.for_timestamp(time_ms)


def list_offsets(
    admin: LastingAdmin,
    partitions: Iterable[TopicPartition],
    spec: OffsetSpec,
    *,
    read_committed: bool = False,
    seconds: float,
    unknown_seconds: float = 0.0,
    may_go: Callable[[str], bool] = lambda topic: False,
    leaderless: set[TopicPartition] | None = None,
    remedies: Mapping[int, str] = MappingProxyType({}),
) -> dict[TopicPartition, int]:
    """Offsets in the logs of many partitions, with one request to each broker.

    ``spec`` asks for the first offset, the offset behind the last, or the first offset at a time (negative: there is
    none). With ``read_committed``, a log ends at its first open transaction.

    Requests are repeated while brokers do not answer, and while partitions have no leader. After ten seconds, a warning
    in the log names the partitions. Raises `BrokerError` after ``seconds``. For an unknown topic, the error comes after
    ``unknown_seconds`` and not at once, because some brokers may not know a new topic yet. If the topic ``may_go``, the
    result lacks its partitions instead. With a set ``leaderless``, partitions without a leader are put into this set,
    and the result lacks them. ``remedies`` are as in `advice`.

        ends = list_offsets(admin, [TopicPartition("flights", 0)], OffsetSpec.latest(), seconds=30)
    """
    level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    by_time = spec not in (OffsetSpec.earliest(), OffsetSpec.latest())
    wanted = {KafkaPartition(*tp): spec for tp in partitions}
    found: dict[TopicPartition, int] = {}
    missing: set[KafkaPartition] = set()
    began, said, reason = time.monotonic(), False, ""
    while wanted:
        asked = ask(admin.list_offsets, wanted, seconds=min(seconds, REQUEST_SECONDS), isolation_level=level)
        wanted = {}
        for tp, future in asked.items():
            try:
                offset = future.result().offset
                # A partition whose leader has gone has a negative offset, and no error.
                if offset < 0 and not (by_time and offset == OFFSET_END):
                    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
                found[TopicPartition(tp.topic, tp.partition)] = offset
            except KafkaException as exc:
                error: KafkaError = exc.args[0]
                # librdkafka says of a partition that does not exist that it finds no leader.
                if tp in missing and error.code() == KafkaError._NOENT:
                    error = _UNKNOWN
                unknown = error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                limit = min(seconds, unknown_seconds) if unknown else seconds
                if error.code() not in _PASSING or time.monotonic() - began > limit:
                    if unknown and may_go(tp.topic):
                        continue
                    raise broker_error(
                        f"the offsets of {tp.topic}-{tp.partition} are not known: {error.str()}",
                        error,
                        remedies,
                    ) from exc
                wanted[tp] = spec
                reason = error.str()
        if wanted:
            if not said and time.monotonic() - began >= _SAY_SECONDS:
                said = True
                listed = ", ".join(f"{tp.topic}-{tp.partition}" for tp in wanted)
                logger.warning(
                    "the offsets of %s are not known yet: %s. The request is repeated", listed, reason
                )
            # librdkafka keeps its leader epoch, which a restarted broker refuses for ever. New metadata replaces it.
            missing = set()
            with suppress(KafkaException):
                topics = admin.list_topics(timeout=min(seconds, REQUEST_SECONDS)).topics
                known = {
                    tp: topics[tp.topic].partitions[tp.partition]
                    for tp in wanted
                    if tp.topic in topics and tp.partition in topics[tp.topic].partitions
                }
                missing = wanted.keys() - known.keys()
                if leaderless is not None:
                    unled = {tp for tp, partition in known.items() if partition.leader < 0}
                    leaderless.update(TopicPartition(tp.topic, tp.partition) for tp in unled)
                    wanted = dict.fromkeys(wanted.keys() - unled, spec)
        if wanted:
            time.sleep(0.1)
    return found


def until_coordinated(call: Callable[[], T], *, seconds: float) -> T:
    """Repeats ``call`` while a group has no coordinator, and returns its result.

    Raises `KafkaException` after ``seconds``, and at once for any other error.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() not in _UNCOORDINATED or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def committed(
    consumer: Consumer, partitions: Iterable[TopicPartition], *, seconds: float
) -> list[KafkaPartition]:
    """The committed offsets of the consumer's group; a negative offset stands for no commit.

    Raises `KafkaException`, also for the error of a single partition. librdkafka itself raises no such error: the
    answer has a negative offset, which would look like "no commit".
    """
    asked = [KafkaPartition(*tp) for tp in partitions]

    def look() -> list[KafkaPartition]:
        found: list[KafkaPartition] = consumer.committed(asked, timeout=seconds)
        for entry in found:
            if entry.error is not None:
                raise KafkaException(entry.error)
        return found

    return until_coordinated(look, seconds=seconds)


def committed_of_stranger(
    consumer: Consumer, partitions: Iterable[TopicPartition], *, seconds: float
) -> list[KafkaPartition]:
    """`committed`, for a consumer that never joins its group. A missing right to the group is an error within seconds.

    librdkafka tells the missing right only to those who poll, and lets the request wait until its time is over. A poll
    of a consumer that has joined its group could return a record, so `committed` never polls.
    """
    first = min(seconds, SOON_SECONDS)
    for part in (first, seconds - first):
        try:
            return committed(consumer, partitions, seconds=part)
        except KafkaException as exc:
            if exc.args[0].code() not in _UNCOORDINATED:
                raise
            error = refusal(message.error() for message in consumer.consume(_MOST_ERRORS, 0))
            late = KafkaException(error or exc.args[0])
            if error is not None:
                break
    raise late


def refusal(errors: Iterable[KafkaError | None]) -> KafkaError | None:
    """The first of these errors that says that a right is missing."""
    return next((error for error in errors if error and error.code() in _NO_RIGHT), None)
