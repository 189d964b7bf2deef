"""The desk on a broker with an authorizer: each error says which right is missing."""

from __future__ import annotations

import pytest

from streamapp import StreamsConfig
from streamapp.desk.desk import FailureDesk
from streamapp.errors import AuthorizationError

from ..consumer.feeding import Feed
from .test_hidden_from_doctor import grant


@pytest.mark.broker
def test_each_missing_right_is_named(feed: Feed) -> None:
    feed.send([("k", "0")])
    dead, marks = feed.topic, f"{feed.topic}-desk"
    desk = FailureDesk(StreamsConfig(feed.group, dead_letter_queue_topic=dead))

    def letters() -> int:
        return len(list(desk.scan()[0]))

    def discard() -> int:
        return desk.discard(lambda letter: True)

    hidden = f"brokers do not show the topic {dead} to this client: .*failed. Grant this client READ"
    with pytest.raises(AuthorizationError, match=hidden):
        letters()
    grant(feed, ("topic", dead, "Write"))
    with pytest.raises(AuthorizationError, match=f"{dead} cannot be read: .*failed. Grant this client READ"):
        letters()
    grant(feed, ("topic", dead, "Read"))
    assert letters() == 1
    with pytest.raises(AuthorizationError, match=f"not create {marks}: .*failed. Grant this client CREATE"):
        discard()
    grant(feed, ("topic", marks, "Create"), ("topic", marks, "Describe"))
    with pytest.raises(AuthorizationError, match=f"WRITE on the transactional id {marks}"):
        discard()
    grant(feed, ("transactional-id", marks, "Write"))
    with pytest.raises(AuthorizationError, match=f"Grant this client WRITE on {marks}, and on the source"):
        discard()
    grant(feed, ("topic", marks, "Write"), ("topic", marks, "Read"))
    assert discard() == 1
