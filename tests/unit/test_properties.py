"""`StreamsConfig.from_properties` takes the properties of Kafka Streams 3 and 4."""

from __future__ import annotations

import logging
import re

import pytest

from streamapp.config import StreamsConfig
from streamapp.errors import ConfigError

ERRORS = "org.apache.kafka.streams.errors."
STORES = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers"

OLD_NAMES = [
    ("cache.max.bytes.buffering", "0", "statestore_cache_max_bytes", 0, "statestore.cache.max.bytes"),
    ("default.dsl.store", "in_memory", "dsl_store_type", "in_memory", "dsl.store.suppliers.class"),
    ("default.dsl.store", "rocksDB", "dsl_store_type", "rocksdb", "dsl.store.suppliers.class"),
    (
        "default.deserialization.exception.handler",
        "continue",
        "deserialization_exception_handler",
        "continue",
        "deserialization.exception.handler",
    ),
    (
        "default.production.exception.handler",
        "continue",
        "production_exception_handler",
        "continue",
        "production.exception.handler",
    ),
    (
        "default.deserialization.exception.handler",
        f"{ERRORS}LogAndContinueExceptionHandler",
        "deserialization_exception_handler",
        "continue",
        "deserialization.exception.handler",
    ),
    (
        "default.production.exception.handler",
        f"{ERRORS}DefaultProductionExceptionHandler",
        "production_exception_handler",
        "fail",
        "production.exception.handler",
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
    ("name", "value", "setting", "means"),
    [
        (
            "deserialization.exception.handler",
            f"{ERRORS}LogAndContinueExceptionHandler",
            "deserialization_exception_handler",
            "continue",
        ),
        (
            "processing.exception.handler",
            f"{ERRORS}LogAndContinueProcessingExceptionHandler",
            "processing_exception_handler",
            "continue",
        ),
        (
            "processing.exception.handler",
            "LogAndContinueProcessingExceptionHandler",
            "processing_exception_handler",
            "continue",
        ),
        ("dsl.store.suppliers.class", f"{STORES}$InMemoryDslStoreSuppliers", "dsl_store_type", "in_memory"),
        ("dsl.store.suppliers.class", f"{STORES}.InMemoryDslStoreSuppliers", "dsl_store_type", "in_memory"),
    ],
)
def test_the_classes_of_kafka_streams_are_values(name: str, value: str, setting: str, means: str) -> None:
    assert getattr(StreamsConfig.from_properties({name: value}), setting) == means
    assert getattr(StreamsConfig(), setting) != means


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("deserialization.exception.handler", f"{ERRORS}LogAndFailExceptionHandler"),
        ("processing.exception.handler", f"{ERRORS}LogAndFailProcessingExceptionHandler"),
        ("production.exception.handler", f"{ERRORS}DefaultProductionExceptionHandler"),
        ("dsl.store.suppliers.class", f"{STORES}$RocksDBDslStoreSuppliers"),
    ],
)
def test_the_default_classes_of_kafka_streams_are_the_defaults(name: str, value: str) -> None:
    assert StreamsConfig.from_properties({name: value}) == StreamsConfig()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("deserialization", "com.acme.Handler"),
        ("deserialization", "com.acme.LogAndContinueExceptionHandler"),
        ("deserialization", f"{ERRORS}LogAndContinueProcessingExceptionHandler"),
        ("processing", f"{ERRORS}LogAndContinueExceptionHandler"),
        ("production", f"{ERRORS}LogAndContinueExceptionHandler"),
        ("processing", f"{STORES}$InMemoryDslStoreSuppliers"),
    ],
)
def test_a_class_of_the_user_or_of_another_kind_is_refused(kind: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind}_exception_handler must be .* not '{re.escape(value)}'"):
        StreamsConfig.from_properties({f"{kind}.exception.handler": value})
