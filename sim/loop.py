"""Virtual time: an event loop for each process, and one schedule that runs them all.

When nothing is ready, time jumps to the next timer. Events of one instant run in the order
in which they were asked for, so a run depends on nothing but what its code does. A process
is a `ProcessLoop`: everything that runs on its behalf runs on its loop, so that killing it
is to forget its events, and freezing it to keep them back.
"""

import asyncio
from asyncio import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from math import ceil
from typing import Any, Literal

EVENTS_PER_INSTANT_MAX = 300_000


class Livelock(Exception):
    """Time does not move on: something runs round and round in one instant."""


class Handle:
    """A call to come. Of asyncio's own, the engine uses no more than this."""

    __slots__ = ("args", "callback", "process", "when_us")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        process: "ProcessLoop",
        when_us: int,
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.process = process
        self.when_us = when_us

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_us / 1e6


class Schedule:
    """The events of a whole world, in order. Time is whole microseconds from 0."""

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        self.stopped = False
        self.ready: deque[Handle] = deque()
        self.timers: list[tuple[int, int, Handle]] = []
        self.sequence = 0  # Breaks ties between timers of one instant: first come, first served.

    def stop(self) -> None:
        """Leave `run` after the present event."""
        self.stopped = True

    def run(self) -> None:
        """Until `stop`, or until nothing is left to come."""
        ready, timers = self.ready, self.timers
        running: ProcessLoop | None = None
        events, last_of_instant = 0, EVENTS_PER_INSTANT_MAX
        try:
            while not self.stopped:
                if ready:
                    handle = ready.popleft()
                elif timers:
                    when_us, _, handle = heappop(timers)
                    if when_us > self.now_us:
                        if handle.callback is None:
                            continue
                        self.now_us = when_us
                        last_of_instant = events + EVENTS_PER_INSTANT_MAX
                else:
                    return
                callback = handle.callback
                if callback is None:
                    continue
                process = handle.process
                if process is not running or process.state != "runs":
                    if process.state != "runs":
                        process.keep_back(handle)
                        continue
                    running = process
                    _set_running_loop(process)  # type: ignore[arg-type]
                events += 1
                if events == last_of_instant:
                    raise Livelock(f"{EVENTS_PER_INSTANT_MAX} events in one instant")
                try:
                    callback(*handle.args)
                except Exception as error:  # As asyncio does: hand it on, keep running.
                    process.call_exception_handler({"message": "callback", "exception": error})
        finally:
            self.events += events
            _set_running_loop(None)


class ProcessLoop:
    """The event loop of one simulated process. `troubled` hears of exceptions nobody caught.

    Not a subclass of asyncio's, which asks for forty methods more that nothing here calls.
    """

    def __init__(
        self,
        schedule: Schedule,
        name: str,
        *,
        troubled: Callable[[BaseException | None, str], None],
    ) -> None:
        self.name = name
        self.state: Literal["runs", "frozen", "dead"] = "runs"
        self._schedule = schedule
        self._troubled = troubled
        self._kept: list[Handle] = []

    # -- what asyncio asks of a loop -----------------------------------------------------

    def time(self) -> float:
        return self._schedule.now_us / 1e6

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        # The engine keeps nothing in contexts, so there is none to enter.
        handle = Handle(callback, args, self, self._schedule.now_us)
        self._schedule.ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Handle:
        # Rounded up: what waits until an instant has then reached it.
        schedule = self._schedule
        when_us = schedule.now_us + (ceil(delay * 1e6) if delay > 0 else 0)
        handle = Handle(callback, args, self, when_us)
        schedule.sequence = sequence = schedule.sequence + 1
        heappush(schedule.timers, (when_us, sequence, handle))
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Handle:
        return self.call_later(when - self.time(), callback, *args)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=options.get("name"))  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.state == "runs"

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.state != "dead":  # Tasks of the dead are destroyed while pending, of course.
            self._troubled(context.get("exception"), str(context.get("message")))

    # -- what befalls a process ------------------------------------------------------------

    def keep_back(self, handle: Handle) -> None:
        if self.state == "frozen":
            self._kept.append(handle)

    def freeze(self) -> None:
        """Nothing of it runs until `resume`; what comes due meanwhile runs then, in order."""
        if self.state == "runs":
            self.state = "frozen"

    def resume(self) -> None:
        if self.state == "frozen":
            self.state = "runs"
            self._schedule.ready.extend(self._kept)
            self._kept = []

    def kill(self) -> None:
        """None of its code runs any more, not even `finally`: that goes to a void."""
        self.state = "dead"
        self._kept = []
        before = asyncio._get_running_loop()
        _set_running_loop(_Void())  # type: ignore[arg-type]
        try:
            for task in asyncio.all_tasks(self):  # type: ignore[arg-type]
                coro = task.get_coro()
                assert isinstance(coro, Coroutine)
                _end(coro)
        finally:
            _set_running_loop(before)


class _Void(ProcessLoop):
    """Where the last instructions of a killed process go: nothing comes of them."""

    def __init__(self) -> None:
        super().__init__(Schedule(), "void", troubled=lambda error, message: None)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        _end(coro)
        never = self.create_future()
        never.cancel()
        return never  # type: ignore[return-value]


def _end(coro: Coroutine[Any, Any, Any]) -> None:
    try:
        coro.close()
    except RuntimeError:
        # It awaits in its own end. All of its state is the dead process's, and nobody looks.
        return
