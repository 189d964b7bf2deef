"""A broker with an authorizer, and rights on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ..processes import until
from ..secured import SecuredKafka

__all__ = ["Guarded", "allow", "forbid"]


class Guarded(SecuredKafka):
    """Its users may do nothing that no ACL allows; who comes without TLS may do everything."""

    more_settings: ClassVar[Mapping[str, str]] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def allow(bootstrap: str, acls: list[dict[str, str]]) -> None:
    """Gives rights, and waits until the broker knows them: it hears of them after the answer."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [binding(acl) for acl in acls]
    for future in admin.create_acls(wanted).values():
        future.result()
    until(
        lambda: all(each in admin.describe_acls(as_filter(each)).result() for each in wanted),
        60,
        lambda: f"the broker does not know all of {wanted}",
    )


def forbid(bootstrap: str, acls: list[dict[str, str]]) -> None:
    """Takes rights away, and waits until the broker knows."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    filters = [as_filter(binding(acl)) for acl in acls]
    for future in admin.delete_acls(filters).values():
        future.result()
    until(
        lambda: not any(admin.describe_acls(each).result() for each in filters),
        60,
        lambda: f"the broker still knows some of {filters}",
    )


def as_filter(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def binding(acl: dict[str, str]) -> AclBinding:
    kinds = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional-id": ResourceType.TRANSACTIONAL_ID,
    }
    return AclBinding(
        kinds[acl["resource"]],
        acl["name"],
        ResourcePatternType[acl["pattern"].upper()],
        acl["principal"],
        acl["host"],
        AclOperation[acl["operation"].upper()],
        AclPermissionType.ALLOW,
    )
