"""A thread that owns one connection, and does what it is handed in the order it came."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from duetime.errors import StoreUnavailable
from duetime.stores.sqlite.errors import DRIVER_ERRORS, translated

T = TypeVar("T")


class Lane:
    """One connection in one thread of its own.

    A thread of our own rather than an executor's: SQLite's connections and their caches
    want one thread each, and handing over by a `SimpleQueue` costs a few microseconds.
    The queue is as long as the callers are many; each waits for its own answer.
    """

    def __init__(
        self,
        role: str,
        database: Path,
        connect: Callable[[], sqlite3.Connection],
        disconnect: Callable[[sqlite3.Connection], None] = sqlite3.Connection.close,
    ) -> None:
        self._role = role
        self._database = database
        self._connect = connect
        self._disconnect = disconnect
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def open(self) -> None:
        """Start the thread and connect; raises what connecting raised."""
        assert self._thread is None
        self._thread = threading.Thread(
            target=self._run, name=f"duetime-sqlite-{self._role}", daemon=True
        )
        self._thread.start()
        try:
            await self.do(lambda _: None)
        except BaseException:
            await self.close()
            raise

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` with the connection, in the lane's thread; its errors are the store's.

        What was begun is finished even if the caller is cancelled meanwhile.
        """
        if self._thread is None:
            raise StoreUnavailable(f"{self._database}: the store is not open")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._tasks.put(_Task(work, loop, future))
        return await future

    def post(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Have `work` done when its turn comes. Nobody hears of its errors."""
        if self._thread is not None:
            self._tasks.put(_Task(work))

    async def close(self) -> None:
        """Finish what was handed over, then close the connection."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._tasks.put(None)
            await asyncio.to_thread(thread.join)

    def _run(self) -> None:
        connection = None
        while (task := self._tasks.get()) is not None:
            try:
                if connection is None:
                    connection = self._connect()
                result = task.work(connection)
            except DRIVER_ERRORS as error:
                mine = translated(error, self._database)
                mine.__cause__ = error
                task.answer(error=mine)
            except BaseException as error:
                task.answer(error=error)
            else:
                task.answer(result)
        if connection is not None:
            self._disconnect(connection)


class _Task:
    """Work, and where its answer goes."""

    __slots__ = ("future", "loop", "work")

    def __init__(
        self,
        work: Callable[[sqlite3.Connection], Any],
        loop: asyncio.AbstractEventLoop | None = None,
        future: "asyncio.Future[Any] | None" = None,
    ) -> None:
        self.work = work
        self.loop = loop
        self.future = future

    def answer(self, result: object = None, *, error: BaseException | None = None) -> None:
        if self.loop is not None:
            with suppress(RuntimeError):  # The loop was closed while we worked: nobody waits.
                self.loop.call_soon_threadsafe(self._settle, result, error)

    def _settle(self, result: object, error: BaseException | None) -> None:
        if self.future is None or self.future.done():  # Its caller was cancelled.
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)
