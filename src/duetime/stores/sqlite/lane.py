"""A thread that owns one connection, and does what it is handed in the order it came."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from duetime.errors import StoreUnavailable
from duetime.stores.sqlite.errors import translated

T = TypeVar("T")


class Lane:
    """One connection in one thread of its own.

    A thread of our own rather than an executor's: SQLite's connections and their caches
    want one thread each, and handing over by a `SimpleQueue` costs a few microseconds.
    The queue is as long as the callers are many; each waits for its own answer.
    """

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._name = name
        self._connect = connect
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def open(self) -> None:
        """Start the thread and connect; raises what connecting raised."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
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
            raise StoreUnavailable("the store is not open")
        loop = asyncio.get_running_loop()
        task = _Task(work, loop, loop.create_future())
        self._tasks.put(task)
        result: T = await task.future
        return result

    async def close(self) -> None:
        """Finish what was handed over, then close the connection."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._tasks.put(None)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _run(self) -> None:
        connection = None
        while (task := self._tasks.get()) is not None:
            try:
                if connection is None:
                    connection = self._connect()
                result = task.work(connection)
            except sqlite3.Error as error:
                task.fail(translated(error))
            except BaseException as error:
                task.fail(error)
            else:
                task.succeed(result)
        if connection is not None:
            connection.close()


class _Task:
    __slots__ = ("future", "loop", "work")

    def __init__(
        self,
        work: Callable[[sqlite3.Connection], Any],
        loop: asyncio.AbstractEventLoop,
        future: "asyncio.Future[Any]",
    ) -> None:
        self.work = work
        self.loop = loop
        self.future = future

    def succeed(self, result: object) -> None:
        self._answer(self._set_result, result)

    def fail(self, error: BaseException) -> None:
        self._answer(self._set_exception, error)

    def _answer(self, setter: Callable[[Any], None], value: object) -> None:
        with suppress(RuntimeError):  # The loop was closed while we worked: nobody waits.
            self.loop.call_soon_threadsafe(setter, value)

    def _set_result(self, result: object) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _set_exception(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)
