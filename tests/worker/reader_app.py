"""An application without a topology. KIND says who reads SOURCE: an agent, or a consumer."""

from __future__ import annotations

import os
from typing import Any

from streamapp import App, StreamsConfig, StringSerde

if "KIND" in os.environ:
    app = App(
        os.environ["APP_ID"],
        config=StreamsConfig(os.environ["APP_ID"]),
        datadir=os.environ["DATADIR"],
        web_port=int(os.environ["WEB_PORT"]),
    )
    if os.environ["KIND"] == "agent":

        @app.agent(app.topic(os.environ["SOURCE"], value_serializer="raw"))
        async def look(values: Any) -> None:
            async for _ in values:
                pass

    else:

        @app.consume(os.environ["SOURCE"], key_serde=StringSerde(), value_serde=StringSerde())
        def look_at(record: Any) -> None:
            """Nothing."""
