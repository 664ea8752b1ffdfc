"""One simulated machine that runs a node: it can die, freeze, come back and be set wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from duetime.config import Config
from duetime.errors import RefusedStart, RequestError, StoreError
from duetime.node import Node
from duetime.service import Service
from sim.clock import SimClock
from sim.ledger import Ledger
from sim.loop import ProcessLoop, Schedule
from sim.peers import Network, SimPeers
from sim.receivers import Receivers, SimCarrier
from sim.store import Connection, Database, machine_of


class ConnectionLost(Exception):
    """The node went away before it answered: whether the request took effect is not known."""


class GaveUp(Exception):
    """The caller did not want to wait any longer."""


class Process:
    """A node from its start to its end. A restart is a new process with a name of its own; to
    the cluster it is known by its machine's."""

    def __init__(
        self,
        name: str,
        *,
        schedule: Schedule,
        database: Database,
        network: Network,
        receivers: Receivers,
        ledger: Ledger,
        config: Config,
        clock: SimClock,
        random: Random,
        troubled: Callable[[str, BaseException | None, str], None],
    ) -> None:
        self.name = name
        self.machine = machine_of(name)
        self.loop = ProcessLoop(
            schedule, name, troubled=lambda error, text: troubled(name, error, text)
        )
        self.clock = clock
        self.started = False
        self.ended = False
        self._ledger = ledger
        self._schedule = schedule
        carrier = SimCarrier(receivers, ledger=ledger, loop=self.loop, clock=clock)
        self._peers = SimPeers(network, self.loop)
        self.node = Node(
            replace(config, node_name=self.machine),
            Connection(database, self.loop),
            carrier,
            peers=self._peers,
            clock=clock,
            chance=random.random,
        )
        self._requests: dict[asyncio.Future[Any], None] = {}
        self._serving: dict[asyncio.Task[None], None] = {}
        ledger.processes[name] = self

    @property
    def serves(self) -> bool:
        return self.started and not self.ended and self.loop.state == "runs"

    def boot(self, failed: Callable[["Process"], None]) -> None:
        """Start the node; a start that fails ends the process, as it does the real one."""

        async def start() -> None:
            try:
                await self.node.start()
            except (StoreError, RefusedStart) as error:
                self._ledger.note(self.name, "does not start", str(error))
                self.kill()
                failed(self)
            else:
                self.started = True
                self._ledger.note(self.name, "serves")

        self._ledger.note(self.name, "boots")
        self.loop.call_soon(self._spawn, start())

    def kill(self) -> None:
        """`kill -9`: nothing of it runs any more, and its callers' connections break."""
        if self.ended:
            return
        self.ended = True
        self._ledger.note(self.name, "killed")
        self.loop.kill()
        self._peers.die()
        for request in list(self._requests):
            _settle(request, ConnectionLost())

    def stop(self, stopped: Callable[[], None]) -> None:
        """`SIGTERM`: drain and end."""

        async def stop() -> None:
            await self.node.stop()
            self.kill()
            stopped()

        self.started = False
        self._ledger.note(self.name, "stops")
        self.loop.call_soon(self._spawn, stop())

    def _spawn(self, coro: Any) -> None:
        self._keep = self.loop.create_task(coro)

    async def request(
        self,
        call: Callable[[Service], Awaitable[Any]],
        *,
        client: ProcessLoop,
        ended: Callable[[object], None] = lambda outcome: None,
        timeout_s: float = 60.0,
        give_up_s: float | None = None,
    ) -> Any:
        """Have the service do this, from another process. `ended` hears what came of it there.

        The outcome is the service's answer or its error; `ConnectionLost` or `GaveUp` when
        nothing was heard. With `give_up_s` the request is canceled in the node after so long.
        """
        answer = client.create_future()
        self._requests[answer] = None

        async def serve() -> None:
            outcome: object
            try:
                outcome = await call(self.node.service)
            except RequestError as error:
                outcome = error
            except asyncio.CancelledError as error:
                outcome = error
            ended(outcome)
            client.call_later(0.0002, _settle, answer, outcome)

        def arrive() -> None:
            task = self.loop.create_task(serve())
            self._serving[task] = None
            task.add_done_callback(self._served)
            if give_up_s is not None:
                self.loop.call_later(give_up_s, task.cancel)

        self.loop.call_later(0.0002, arrive)
        late = client.call_later(timeout_s, _settle, answer, GaveUp())
        try:
            outcome = await answer
        finally:
            late.cancel()
            self._requests.pop(answer, None)
        return outcome

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.call_exception_handler({"message": "a request died", "exception": error})


def _settle(future: asyncio.Future[Any], outcome: object) -> None:
    if not future.done():
        future.set_result(outcome)
