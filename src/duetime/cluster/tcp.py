"""Peers over TCP: one listening socket, and a connection to each node that we ask something.

Strangers reach the listening socket, too. Until they have proven themselves they may send one
small frame at a time, for three seconds, and only so many at once; the log says once a minute
that they were there.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from duetime.cluster import wire
from duetime.cluster.connection import Connection
from duetime.cluster.handshake import NONCE_BYTES, Caller, Listener, Node
from duetime.cluster.hints import Hint
from duetime.cluster.membership import Member
from duetime.cluster.peers import Operation, PeerLost
from duetime.errors import RequestError, Unavailable
from duetime.listening import bind

log = logging.getLogger(__name__)

CONNECT_S = 2.0
RECONNECT_S = 0.2
"""After a failure, this long nobody tries again: whoever waits for a shard asks often."""
STRANGERS_MAX = 64
CONNECTIONS_MAX = 1_024
ANSWERS_S = 2.0
"""How long `close` waits for what is being answered."""
COMPLAINT_S = 60.0
FAILURES_MAX = 1_000


class TcpPeers:
    """See `Peers`."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        secret: bytes,
        advertise: str | None = None,
        nonce: Callable[[], bytes] = lambda: secrets.token_bytes(NONCE_BYTES),
    ) -> None:
        self.on_message: Callable[[Hint], None] = _ignore
        self.on_call: Callable[[Operation], Awaitable[Any]] = _refuse
        self._host = host
        self._port = port
        self._secret = secret
        self._advertise = advertise
        self._nonce = nonce
        self._me = Node("", "")
        self._server: asyncio.Server | None = None
        self._out: dict[str, _Link] = {}
        self._in: dict[Connection, None] = {}
        self._strangers: dict[Connection, None] = {}
        self._failures: dict[str, str] = {}
        self._complained: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # The loop itself keeps only weak ones.
        self._closed = False

    def introduce(self, name: str, boot: str) -> None:
        self._me = Node(name, boot)

    async def start(self) -> str:
        loop = asyncio.get_running_loop()
        bound = bind(self._host, self._port)
        self._server = await loop.create_server(self._admit, sock=bound)
        port = self._server.sockets[0].getsockname()[1]
        advertised = self._advertise or join_address(self._host, port)
        has_port = re.search(r":[0-9]+$", advertised) is not None
        return advertised if has_port else f"{advertised}:{port}"

    async def call(self, member: Member, operation: Operation) -> Any:
        return await self._link(member).connection.call(operation)

    async def tell(self, member: Member, message: Hint) -> None:
        with suppress(PeerLost):
            self._link(member).connection.tell(message)

    async def close(self) -> None:
        self._closed = True
        if self._server is not None:
            self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ANSWERS_S)
        for connection in [*self._in, *(link.connection for link in self._out.values())]:
            connection.finish("this node stops")
        for task in self._tasks:
            task.cancel()

    # -- asking -----------------------------------------------------------------------

    def _link(self, member: Member) -> "_Link":
        """The connection to this life of that node, which may only just be made."""
        if self._closed:
            raise PeerLost(member.name, "this node stops", sent=False)
        link = self._out.get(member.name)
        now = asyncio.get_running_loop().time()
        if link is not None and link.leads_to(member):
            if not link.connection.over:
                return link
            if now < link.retry_at:
                raise PeerLost(member.name, "it could not be reached", sent=False)
        elif link is not None:
            link.connection.close("another node has taken its place")
        meant = Node(member.name, member.boot)
        greeting = Caller(self._secret, me=self._me, meant=meant, nonce=self._nonce())
        connection = Connection(self, greeting, name=member.name)
        link = self._out[member.name] = _Link(member, connection, now + RECONNECT_S)
        self._spawn(self._connect(link))
        return link

    async def _connect(self, link: "_Link") -> None:
        try:
            host, port = split_address(link.member.address)
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: link.connection, host, port
                )
        except TimeoutError:
            link.connection.close("it does not answer")
        except (OSError, ValueError) as error:
            link.connection.close(str(error))

    # -- being asked ------------------------------------------------------------------

    def _admit(self) -> Connection:
        greeting = Listener(self._secret, me=self._me, nonce=self._nonce())
        connection = Connection(self, greeting, name="")
        self._in[connection] = None
        self._strangers[connection] = None
        if len(self._strangers) > STRANGERS_MAX or len(self._in) > CONNECTIONS_MAX:
            connection.close("there are too many connections")
        return connection

    async def _serve(self, connection: Connection, call: wire.Call) -> None:
        number, operation = call.number, call.operation
        try:
            message = wire.answer(number, operation, await self.on_call(operation))
            if len(message) > wire.FRAME_BYTES_MAX - 16:
                too_large = Unavailable("the answer is too large to be passed on")
                message = wire.encode(wire.Failed(number, wire.failure_of(too_large)))
        except RequestError as error:
            message = wire.encode(wire.Failed(number, wire.failure_of(error)))
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("call of another node failed", extra={"node": connection.name})
            message = wire.encode(wire.Failed(number, wire.UNFORESEEN))
        connection.answer(message)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- from connections -----------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        if connection in self._in:
            del self._strangers[connection]
        elif self._failures.pop(connection.name, None) is not None:
            log.info("node can be reached again", extra={"node": connection.name})

    def called(self, connection: Connection, call: wire.Call) -> None:
        self._spawn(self._serve(connection, call))

    def told(self, hint: Hint) -> None:
        self.on_message(hint)

    def closed(self, connection: Connection, reason: str) -> None:
        if connection in self._in:
            del self._in[connection]
            if connection in self._strangers:
                del self._strangers[connection]
                self._complain(connection.address, reason)
        elif not self._closed and self._failures.get(connection.name) != reason:
            if len(self._failures) >= FAILURES_MAX:
                self._failures.clear()
            self._failures[connection.name] = reason
            log.warning("node lost", extra={"node": connection.name, "reason": reason})

    def _complain(self, address: str, reason: str) -> None:
        """Of strangers the log hears once a minute for each address, and of few addresses."""
        now = asyncio.get_running_loop().time()
        recent = {who: at for who, at in self._complained.items() if now - at < COMPLAINT_S}
        if address not in recent and len(recent) < STRANGERS_MAX:
            recent[address] = now
            log.warning("stranger turned away", extra={"address": address, "reason": reason})
        self._complained = recent


class _Link:
    """The way to one life of a node."""

    def __init__(self, member: Member, connection: Connection, retry_at: float) -> None:
        self.member = member
        self.connection = connection
        self.retry_at = retry_at

    def leads_to(self, member: Member) -> bool:
        mine = self.member
        return (mine.name, mine.boot, mine.address) == (member.name, member.boot, member.address)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """`ValueError` if it is none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"its address is {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _ignore(hint: Hint) -> None:
    pass


async def _refuse(operation: Operation) -> Any:
    raise Unavailable("this node is only just starting")
