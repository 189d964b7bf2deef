"""Tokens for Faust's client, of an endpoint that asks for a client's id and secret."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import KafkaConnectionError

from streamapp.broker import KafkaSettings
from streamapp.broker.tokens import TokenProvider
from streamapp.errors import ConfigError

from ...secured import PASSWORD, USER, token_endpoint


def test_a_token_is_fetched_and_kept() -> None:
    async def twice(provider: TokenProvider) -> tuple[str, str]:
        return await provider.token(), await provider.token()

    with token_endpoint() as url:
        first, second = asyncio.run(twice(TokenProvider(url, USER, PASSWORD, "kafka")))
    assert first == second
    assert first.count(".") == 2


def test_a_refusal_names_the_endpoint_and_no_secret() -> None:
    with token_endpoint() as url, pytest.raises(KafkaConnectionError) as refusal:
        asyncio.run(TokenProvider(url, USER, "planted-wr0ng", None).token())
    assert f"the token endpoint {url} gives no token (401)" in str(refusal.value)
    assert "planted" not in str(refusal.value)


def test_every_client_has_the_same_tokens() -> None:
    settings = KafkaSettings(
        bootstrap_servers="a:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="oauthbearer",
        sasl_oauthbearer_client_id=USER,
        sasl_oauthbearer_client_secret=PASSWORD,
        sasl_oauthbearer_token_endpoint_url="https://login/token",
    )
    assert settings.librdkafka()["sasl.oauthbearer.method"] == "oidc"
    assert isinstance(settings.aiokafka()["sasl_oauth_token_provider"], TokenProvider)
    assert settings.faust()["broker_credentials"].mechanism.value == "OAUTHBEARER"
    with pytest.raises(ConfigError, match="OAUTHBEARER"):
        settings.spark()


def test_a_password_is_no_use_for_tokens() -> None:
    with pytest.raises(ConfigError, match="sasl_password would not be used with sasl_mechanism=OAUTHBEARER"):
        KafkaSettings(
            bootstrap_servers="a:1",
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_password=PASSWORD,
            sasl_oauthbearer_client_id=USER,
            sasl_oauthbearer_client_secret=PASSWORD,
            sasl_oauthbearer_token_endpoint_url="https://login/token",
        )
