"""The real service on the memory store, behind uvicorn on a real socket of this machine."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
import uvicorn

from duetime.config import Config
from duetime.http import create_app
from duetime.http.protocol import Protocol
from duetime.node import Node
from duetime.stores.memory import MemoryStore
from tests.http.server import BODY_BYTES_MAX, KEY, HeldCarrier, Server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    config = Config(database_url="memory:", api_key=KEY, min_delay_s=0, drain_timeout_s=0)
    carrier = HeldCarrier()
    node = Node(config, MemoryStore(), carrier)
    await node.start()
    stops = asyncio.Event()
    app = create_app(
        node.service,
        api_key=KEY,
        body_bytes_max=BODY_BYTES_MAX,
        payload_bytes_max=config.payload_bytes_max,
    )
    listening = uvicorn.Server(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=0,
            http=partial(Protocol, stops=stops.is_set),  # type: ignore[arg-type]
            ws="none",
            interface="asgi3",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
    )
    # As uvicorn's `serve` does, less its loop and its waits of a tenth of a second.
    listening.config.load()
    listening.lifespan = listening.config.lifespan_class(listening.config)
    await listening.startup()
    try:
        yield Server(node, carrier, listening, stops)
    finally:
        for listener in listening.servers:
            listener.close()
        await asyncio.wait_for(listening.lifespan.shutdown(), 10)
        await node.stop()
