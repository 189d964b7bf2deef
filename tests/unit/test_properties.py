"""`StreamsConfig.from_properties` takes the properties of Kafka Streams 3 and 4."""

from __future__ import annotations

import logging

import pytest

from streamapp.config import StreamsConfig
from streamapp.errors import ConfigError

ERRORS = "org.apache.kafka.streams.errors."
STORES = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers"

OLD_NAMES = [
    ("cache.max.bytes.buffering", "0", "statestore_cache_max_bytes", 0, "statestore.cache.max.bytes"),
    ("default.dsl.store", "in_memory", "dsl_store_type", "in_memory", "dsl.store.suppliers.class"),
    ("default.dsl.store", "rocksDB", "dsl_store_type", "rocksdb", "dsl.store.suppliers.class"),
    *(
        (
            f"default.{name}.exception.handler",
            value,
            f"{name}_exception_handler",
            means,
            f"{name}.exception.handler",
        )
        for name in ("deserialization", "production")
        for value, means in (
            ("continue", "continue"),
            (f"{ERRORS}LogAndContinueExceptionHandler", "continue"),
            (f"{ERRORS}DefaultProductionExceptionHandler", "fail"),
        )
    ),
]


@pytest.mark.parametrize(("old", "value", "setting", "means", "new"), OLD_NAMES)
def test_an_old_name_is_taken_and_the_new_one_is_said(
    old: str, value: str, setting: str, means: object, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        config = StreamsConfig.from_properties({old: value})
    assert getattr(config, setting) == means
    assert f"the property {old} is deprecated in Kafka Streams: use its new name {new}" in caplog.text


def test_the_new_name_takes_precedence(caplog: pytest.LogCaptureFixture) -> None:
    both = {"cache.max.bytes.buffering": "1", "statestore.cache.max.bytes": "2"}
    for properties in (both, dict(reversed(both.items()))):
        assert StreamsConfig.from_properties(properties).statestore_cache_max_bytes == 2
    assert "cache.max.bytes.buffering is ignored" in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "means"),
    [
        ("deserialization.exception.handler", f"{ERRORS}LogAndFailExceptionHandler", "fail"),
        ("processing.exception.handler", f"{ERRORS}LogAndContinueProcessingExceptionHandler", "continue"),
        ("dsl.store.suppliers.class", f"{STORES}$InMemoryDslStoreSuppliers", "in_memory"),
        ("dsl.store.suppliers.class", f"{STORES}.RocksDBDslStoreSuppliers", "rocksdb"),
    ],
)
def test_the_classes_of_kafka_streams_are_values(name: str, value: str, means: str) -> None:
    config = StreamsConfig.from_properties({name: value})
    assert means in (
        config.processing_exception_handler,
        config.dsl_store_type,
        config.deserialization_exception_handler,
    )


def test_a_class_of_the_user_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="deserialization_exception_handler must be .* not 'com.acme.Handler'"
    ):
        StreamsConfig.from_properties({"default.deserialization.exception.handler": "com.acme.Handler"})
