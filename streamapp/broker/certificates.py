"""Certificates whose files change while clients run. New connections use the present content of matching files."""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streamapp.errors import ConfigError

__all__ = ["CertificateFiles", "FollowingContext", "stamps", "with_matching_files"]

logger: logging.Logger = logging.getLogger("streamapp.kafka")

LOOK_SECONDS = 1.0
"""The time between two looks at the files for changes."""
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


def stamps(*paths: str | None) -> list[Any]:
    """A value that changes if one of the files changes, or if a symbolic link gets another target (mounted secrets)."""
    found: list[Any] = []
    for path in paths:
        try:
            state = os.stat(path) if path is not None else None
        except OSError:
            state = None
        found.append(state and (state.st_ino, state.st_mtime_ns, state.st_size))
    return found


class CertificateFiles:
    """The certificate files of a librdkafka client, which reads them only when it is opened.

    The owner of a client asks `changed` at moments when it can open a new client. Files are replaced one after the
    other, so `changed` stays False while certificate and key do not belong together, or a file is missing.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._paths: list[str | None] = [settings.get(name) for name in _FILES]
        self._password: str | None = settings.get("ssl.key.password")
        self._used = self._refused = stamps(*self._paths)
        self._looked = time.monotonic()

    def changed(self) -> bool:
        """True once after a change of the files. Looks at the files at most once a second."""
        now = time.monotonic()
        if not any(self._paths) or now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        seen = stamps(*self._paths)
        if seen in (self._used, self._refused):
            return False
        try:
            ca, certificate, key = self._paths
            context_of(ca, certificate, key, self._password)
        except ConfigError as error:
            self._refused = seen
            logger.warning("%s The clients keep their certificates until the files change again.", error)
            return False
        if stamps(*self._paths) != seen:
            return False  # the files have changed meanwhile, so the next look decides
        self._used = seen
        logger.info("the certificates have changed: a client connects anew")
        return True


_matching: dict[tuple[str | None, ...], dict[str, str]] = {}
"""The last contents of certificate files that belong together, by their paths: librdkafka's settings with the text."""


def with_matching_files(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings with which a client of librdkafka can be opened now.

    A client may have to be opened in the middle of a replacement of its files, for example after an outage. The
    returned settings then have the text of the last files that belonged together. If this process has never seen such
    files, the settings are returned as they are, and librdkafka refuses them.
    """
    ca, certificate, key = paths = tuple(settings.get(name) for name in _FILES)
    if certificate is None or key is None:
        return settings  # an authority alone matches
    password = settings.get("ssl.key.password")
    before = stamps(*paths)
    try:
        texts = {
            name.replace(".location", ".pem"): Path(path).read_text(encoding="utf-8")
            for name, path in zip(_FILES, paths, strict=True)
            if path is not None
        }
        context_of(ca, certificate, key, password)
    except (ConfigError, OSError, ValueError):
        kept = _matching.get((*paths, password))
        if kept is None:
            return settings
        logger.warning(
            "The files of the certificate do not match now: a client connects with the previous ones."
        )
        return {name: value for name, value in settings.items() if name not in _FILES} | kept
    if stamps(*paths) == before:  # otherwise the texts may be older than the files that match
        _matching[*paths, password] = texts
    return settings


class FollowingContext(ssl.SSLContext):
    """A TLS context for asyncio that uses the present content of the certificate files for each new connection.

    If a present file cannot be used, or if the key does not belong to the certificate, the context goes on with the
    previous files. Such files are usual in the middle of a replacement.
    """

    _make: Callable[[], ssl.SSLContext]
    _paths: tuple[str | None, ...]
    _stamps: list[Any]
    _current: ssl.SSLContext

    @classmethod
    def of(
        cls, ca: str | None, certificate: str | None, key: str | None, password: str | None
    ) -> FollowingContext:
        """A TLS context with these PEM files for its connections. Raises `ConfigError` if a file is missing or not PEM,
        or if certificate, key and password do not belong together."""
        following = cls(ssl.PROTOCOL_TLS_CLIENT)
        following._paths = (ca, certificate, key)
        following._stamps = stamps(*following._paths)
        following._make = lambda: context_of(ca, certificate, key, password)
        following._current = following._make()
        return following

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        seen = stamps(*self._paths)
        if seen != self._stamps:
            self._stamps = seen
            try:
                self._current = self._make()
            except ConfigError as error:
                logger.warning("%s The previous certificates stay in use.", error)
        return self._current.wrap_bio(*args, **options)


def context_of(
    ca: str | None, certificate: str | None, key: str | None, password: str | None
) -> ssl.SSLContext:
    """A TLS context of a client with PEM files. Raises `ConfigError` if a file is missing or not PEM, or if
    certificate, key and password do not belong together."""
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate:
            # Asked for a password that it was not given, OpenSSL would ask the terminal.
            context.load_cert_chain(certificate, key, password or "")
    except (OSError, ValueError) as error:
        raise ConfigError(
            "The files in ssl_ca_location, ssl_certificate_location, ssl_key_location are not PEM files that match, or "
            f"ssl_key_password is not the key's: {error}."
        ) from error
    return context
