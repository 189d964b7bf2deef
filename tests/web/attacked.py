"""A web server with users, large tables and no worker, as a process of its own: ``python -m tests.web.attacked PORT``."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import faust
from faust.web import View

from streamapp.web.server import install

from .fakes import FakeSource, key_value_stores


def main(port: int) -> None:
    app = faust.App("t", broker="kafka://localhost:1", debug=True, web_port=port, web_bind="127.0.0.1")
    source = FakeSource(2, f"http://127.0.0.1:{port}")
    large = {f"key-{n}": "x" * 20_000 for n in range(1_000)}
    source.add_table("large", "key_value", key_value_stores(source, large))
    source.add_table("elsewhere", "key_value", {}, owners={0: None, 1: "http://127.0.0.1:9"})
    install(app, source)

    @app.page("/mine/")
    class Mine(View):  # type: ignore[misc]
        async def get(self, request: Any) -> Any:
            return self.json({})

        async def post(self, request: Any) -> Any:
            return self.json({"bytes": len(await request.read())})

    async def serve() -> None:
        app.web.init_server()
        await app.web.start_server()
        print("ready", flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main(int(sys.argv[1]))
