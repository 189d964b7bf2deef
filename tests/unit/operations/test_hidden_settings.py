"""The doctor's checks of topics whose settings its client may not see."""

from __future__ import annotations

from types import SimpleNamespace

from streamapp import Materialized, StreamsBuilder, StreamsConfig, StringSerde
from streamapp.operations.doctor.checks import ALL, topic_checks
from streamapp.operations.doctor.survey import Role, Topic

TEXT = StringSerde()
CHANGELOG = "app-counts-changelog"


def survey(config: dict[str, str]) -> SimpleNamespace:
    builder = StreamsBuilder(StreamsConfig("app", default_key_serde=TEXT, default_value_serde=TEXT))
    flights = builder.stream("flights").select_key(lambda _, value: value)
    flights.group_by_key().count(materialized=Materialized("counts"))
    roles: dict[str, Role] = {
        "flights": "input",
        CHANGELOG: "changelog",
        "app-counts-repartition": "repartition",
        "dead": "dead letters",
    }
    topics = {name: Topic(name, role, (), config) for name, role in roles.items()}
    return SimpleNamespace(
        plan=builder.build().plan(),
        topics=topics,
        own_topics=list(topics.values()),
        outage_ms=1,
        of_role=lambda *wanted: [topic for topic in topics.values() if topic.role in wanted],
    )


def test_a_changelog_whose_settings_are_hidden_is_not_called_uncompacted() -> None:
    assert list(topic_checks.uncompacted(survey({}))) == []  # type: ignore[arg-type]
    seen = list(topic_checks.uncompacted(survey({"cleanup.policy": "delete"})))  # type: ignore[arg-type]
    assert seen == [(CHANGELOG, "cleanup.policy=delete")]


def test_no_other_check_of_topics_judges_hidden_settings() -> None:
    names = {"SA201", "SA202", "SA203", "SA204", "SA205", "SA206", "SA207", "SA209", "SA210", "SA211"}
    checks = [each for each in ALL if each.code in names]
    assert len(checks) == len(names)
    assert [(each.code, list(each.look(survey({})))) for each in checks] == [
        (each.code, []) for each in checks
    ]
