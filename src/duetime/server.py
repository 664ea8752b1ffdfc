"""The process: one node behind its HTTP surfaces, from the bound socket to the drained exit.

Started: the port is taken, the node starts, and only then do we listen, so that nothing is
accepted which cannot be stored. Stopped (SIGTERM, SIGINT): we no longer listen, requests
under way are answered, then the node drains: callbacks under way finish up to their bound,
everything is written, leases are released. Where there are other nodes, they are given the
shards first, while we still listen and pass requests on to them: `/ready` says no by then, and
each answer ends its connection, so that clients turn elsewhere before we are gone. A second
signal ends the process at once; what that cuts off fires again after the next start.
"""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import uvicorn
import uvloop
from msgspec.structs import replace

from duetime import logs
from duetime.clock import SystemClock
from duetime.cluster.handshake import shared_secret
from duetime.cluster.meeting import membership_from_url
from duetime.cluster.membership import Membership
from duetime.cluster.tcp import TcpPeers
from duetime.config import Config
from duetime.delivery.client import IDLE_CONNECTIONS_MAX
from duetime.delivery.guard import AddressGuard
from duetime.delivery.http import HttpCarrier
from duetime.errors import ConfigError
from duetime.http.app import create_app
from duetime.http.protocol import Protocol
from duetime.listening import bind, url_of
from duetime.node import Node
from duetime.store import Store
from duetime.stores import store_from_url
from duetime.workers import Supervisor, Worker

REQUESTS_DRAIN_S = 5
# Connections in use carry a request within this time, and whoever asks `/ready` has asked.
GOODBYE_S = 1.0
# Longer than the pools of common clients keep a connection, so that they close it, not we:
# a POST that meets a closing connection fails and must not be repeated blindly.
KEEP_ALIVE_S = 120
# The writer's thread must get its turn while the loop is saturated: at Python's 5 ms it
# commits a handful of times a second.
SWITCH_INTERVAL_S = 0.0001
GC_THRESHOLD = 50_000
# The database and its log, name lookups, and connections on their way out.
FILES_RESERVED = 256

log = logging.getLogger(__name__)


def serve(
    config: Config,
    *,
    allow_local: bool,
    listening: Callable[[str], None],
    worker: Worker | None = None,
) -> None:
    """Run until told to stop by a signal, then drain. `listening` is told our address once.

    A `worker` is one of several behind one port: it also stops when its parent is gone.
    """
    number = None if worker is None else worker.number
    logs.configure(config.log_level, config.log_format, worker=number)
    _raise_file_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with (
        bind(config.host, config.port, shared=worker is not None) as bound,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        serving = _serve(config, bound, allow_local=allow_local, listening=listening, worker=worker)
        runner.run(serving)


def serve_with_workers(config: Config, count: int, work: Callable[[Config, Worker], None]) -> int:
    """Run so many nodes behind one port, until told to stop by a signal; the exit code.

    `work` is called in each worker's process, with the settings that are its own.
    """
    _check_shared(store_from_url(config.database_url), "--workers")
    logs.configure(config.log_level, config.log_format)
    # First unshared, so that it is nobody else's; then kept, so that it stays ours.
    bind(config.host, config.port).close()
    with bind(config.host, config.port, shared=True) as bound:
        config = replace(config, port=bound.getsockname()[1])
        log.info("starting workers", extra={"workers": count, "url": url_of(bound)})

        def be(worker: Worker) -> None:
            work(_of_worker(config, worker.number), worker)

        code = Supervisor(count, be, clock=SystemClock()).run()
    log.info("all workers stopped")
    return code


def _of_worker(config: Config, number: int) -> Config:
    """The settings of one of several nodes on this machine."""
    name = config.node_name or f"{socket.gethostname()}:{os.getpid()}"
    port = config.cluster_port and config.cluster_port + number - 1
    return replace(config, node_name=f"{name}/{number}", cluster_port=port)


async def _serve(
    config: Config,
    bound: socket.socket,
    *,
    allow_local: bool,
    listening: Callable[[str], None],
    worker: Worker | None,
) -> None:
    told_to_stop = _stop_signals(worker)
    guard = AddressGuard(config.callback_allow_networks, allow_local=allow_local)
    carrier = HttpCarrier(
        guard=guard,
        tls_verify=config.callback_tls_verify,
        ca_file=config.callback_ca_file,
        response_bytes_max=config.callback_response_bytes_max,
    )
    store = store_from_url(config.database_url)
    node = Node(
        config,
        store,
        carrier,
        membership=_membership(config, store),
        peers=_peers(config) if store.traits.shared else None,
    )

    def on_listening() -> None:
        url = url_of(bound)
        if worker is not None:
            worker.listens()
        log.info("listening", extra={"url": url})
        listening(url)

    try:
        if not await _finished_before(told_to_stop, node.start()):
            return
        # What start-up left behind lives for ever. Walking it takes a full collection 6 ms, and
        # that often a timer would be so late.
        gc.collect()
        gc.freeze()
        # A burst makes many objects and no cycles; at Python's 700 it is walked over and over.
        gc.set_threshold(GC_THRESHOLD)
        app = create_app(
            node.service,
            api_key=config.api_key,
            body_bytes_max=config.body_bytes_max,
            payload_bytes_max=config.payload_bytes_max,
        )
        clients_max = _clients_max(config.in_flight_max)
        server = _HttpServer(app, on_listening, stops=told_to_stop.is_set, clients_max=clients_max)
        saying_goodbye = asyncio.create_task(_say_goodbye(told_to_stop, node, server))
        await server.serve(sockets=[bound])
        saying_goodbye.cancel()
        await node.drain()
    finally:
        await node.stop()
    log.info("stopped")


async def _say_goodbye(told_to_stop: asyncio.Event, node: Node, server: uvicorn.Server) -> None:
    await told_to_stop.wait()
    try:
        if len(node.members()) > 1:
            await asyncio.gather(node.hand_over(), asyncio.sleep(GOODBYE_S))
    finally:
        server.should_exit = True


def _peers(config: Config) -> TcpPeers:
    return TcpPeers(
        host=config.cluster_host,
        port=config.cluster_port,
        advertise=config.cluster_advertise,
        secret=shared_secret(config.cluster_secret, api_key=config.api_key),
    )


def _membership(config: Config, store: Store) -> Membership | None:
    if config.membership_url is None:
        return None
    _check_shared(store, "MEMBERSHIP_URL")
    return membership_from_url(
        config.membership_url, cluster=config.cluster_name, clock=SystemClock()
    )


def _check_shared(store: Store, who: str) -> None:
    if not store.traits.shared:
        raise ConfigError(
            f"{who} needs a database that several processes can share;"
            f" {store.traits.name} serves one at a time"
        )


class _HttpServer(uvicorn.Server):
    """uvicorn, which leaves the signals to us and says when it listens."""

    def __init__(
        self,
        app: Any,
        on_listening: Callable[[], None],
        *,
        stops: Callable[[], bool],
        clients_max: int,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                interface="asgi3",
                http=partial(Protocol, stops=stops),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=clients_max,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=REQUESTS_DRAIN_S,
            )
        )
        self._on_listening = on_listening

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_listening()


def _stop_signals(worker: Worker | None) -> asyncio.Event:
    """Set by the first signal to stop; a second one ends the process where it stands, unless
    it is a worker, whose parent sees to that."""
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if not told_to_stop.is_set():
            log.info("draining", extra={"signal": number.name})
            told_to_stop.set()
        elif worker is None:
            os._exit(128 + number)

    def on_parent_gone(lifeline: int) -> None:
        loop.remove_reader(lifeline)
        if not told_to_stop.is_set():
            log.warning("draining", extra={"reason": "the parent process is gone"})
            told_to_stop.set()

    if worker is not None:
        loop.add_reader(worker.lifeline, on_parent_gone, worker.lifeline)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return told_to_stop


async def _finished_before(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work was done before the event, which otherwise cancels it."""
    task = asyncio.create_task(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task  # Raises what it raised.
        return task.done()
    finally:
        for unfinished in (task, waiting):
            unfinished.cancel()
        await asyncio.wait((task, waiting))


def _raise_file_limit() -> None:
    """Each callback under way and each client is an open file; the usual 1,024 is soon spent."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS says "unlimited" and refuses it: then the limit stays what it was.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _clients_max(in_flight_max: int) -> int:
    """How many clients may be connected: whoever opens connections without end must not take
    the open files that callbacks need, which would fail."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    outgoing = in_flight_max + IDLE_CONNECTIONS_MAX
    return max(limit // 4, limit - outgoing - FILES_RESERVED)
