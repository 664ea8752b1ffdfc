"""`serve --workers N`: several nodes on one machine behind one port, and who looks after them.

The parent serves nothing. It takes the port, so that it is theirs alone, forks a worker for
each node, and starts one anew that has ended, after a pause that grows. The first one starts
alone, because it brings the schema up to date; a worker that never got as far as to listen
takes all others with it: what keeps it from starting will not go away.

Told to stop, it has all of them drain; told again, it kills them. Where it dies itself they
notice, because a pipe that only it held open ends, and drain. As whoever told it to stop may
have told them as well (a terminal does, systemd does), a worker takes no second signal for
impatience.
"""

import logging
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from msgspec import Struct

from duetime.clock import Clock

log = logging.getLogger(__name__)

PAUSE_S_MIN = 0.5
PAUSE_S_MAX = 30.0
STEADY_S = 60.0
"""A worker that ran this long starts anew at once, as if it had never failed."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker(Struct, frozen=True):
    """What a worker is told when it starts."""

    number: int
    """From 1."""
    lifeline: int
    """A descriptor that reads as ended when the parent is gone."""
    ready: int
    """A descriptor; `listens` writes to it."""

    def listens(self) -> None:
        """Tell the parent."""
        os.write(self.ready, bytes((self.number,)))


class Supervisor:
    """Keeps the workers running. `work` is called in each, and ends when that is to exit."""

    def __init__(self, count: int, work: Callable[[Worker], None], *, clock: Clock) -> None:
        self._count = count
        self._work = work
        self._clock = clock
        self._numbers: dict[int, int] = {}  # By process id.
        self._started_at: dict[int, float] = {}
        self._pauses: dict[int, float] = {}
        self._due: dict[int, float] = {}
        self._listening: set[int] = set()  # Whoever has ever listened.
        self._stopped_by = 0
        self._code = 0

    def run(self) -> int:
        """Until all have ended; the exit code."""
        lifeline, self._held = os.pipe()
        ready, self._ready = os.pipe()
        os.set_blocking(ready, False)
        self._lifeline = lifeline
        with _signals() as woken:
            self._woken = woken
            self._start(1)
            while self._numbers or self._due:
                self._wait(woken, ready)
                self._reap()
                self._start_due()
        return self._code

    # -- events -----------------------------------------------------------------------

    def _wait(self, woken: int, ready: int) -> None:
        now = self._clock.monotonic()
        due = min(self._due.values(), default=None)
        timeout = None if due is None else max(0.0, due - now)
        readable, _, _ = select.select([woken, ready], [], [], timeout)
        if woken in readable:
            for number in os.read(woken, 4_096):
                if number in SIGNALS:
                    self._told(signal.Signals(number))
        if ready in readable:
            for worker in os.read(ready, 4_096):
                self._listens(worker)

    def _told(self, number: signal.Signals) -> None:
        if not self._stopped_by:
            log.info("draining", extra={"signal": number.name, "workers": len(self._numbers)})
            self._stop(signal.SIGTERM)
        else:
            log.warning("killing", extra={"signal": number.name, "workers": len(self._numbers)})
            self._stop(signal.SIGKILL)
            self._code = 128 + number
        self._stopped_by = number

    def _listens(self, worker: int) -> None:
        self._listening.add(worker)
        if worker == 1 and len(self._listening) == 1:
            now = self._clock.monotonic()
            self._due |= dict.fromkeys(range(2, self._count + 1), now)

    def _reap(self) -> None:
        while self._numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            number = self._numbers.pop(pid, None)
            if number is not None:
                self._ended(number, os.waitstatus_to_exitcode(status))

    def _ended(self, number: int, code: int) -> None:
        now = self._clock.monotonic()
        if self._stopped_by:
            self._code = self._code or (0 if code == 0 else 1)
        elif number not in self._listening:
            self._code = code if code > 0 else 1
            self._stopped_by = signal.SIGTERM
            self._stop(signal.SIGTERM)
        else:
            steady = now - self._started_at[number] >= STEADY_S
            pause_s = 0.0 if steady else self._pauses.get(number, PAUSE_S_MIN)
            self._pauses[number] = min(PAUSE_S_MAX, max(PAUSE_S_MIN, pause_s * 2))
            self._due[number] = now + pause_s
            facts = {"worker": number, "code": code, "pause_s": pause_s}
            log.error("worker ended", extra=facts)

    def _stop(self, number: signal.Signals) -> None:
        self._due.clear()
        for pid in self._numbers:
            os.kill(pid, number)  # Not yet waited for, so it is still ours.

    # -- starting -----------------------------------------------------------------------

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        for number in [number for number, at in self._due.items() if at <= now]:
            del self._due[number]
            self._start(number)

    def _start(self, number: int) -> None:
        self._started_at[number] = self._clock.monotonic()
        # A signal that comes between the fork and the worker's own handlers must not be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pid = os.fork()
        if pid == 0:
            self._be(Worker(number, self._lifeline, self._ready))
        self._numbers[pid] = number
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _be(self, worker: Worker) -> None:
        """In the child, which never returns to where its parent came from."""
        code = 1
        try:
            os.close(self._held)
            os.close(self._woken)
            signal.set_wakeup_fd(-1)
            for number in (*SIGNALS, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._work(worker)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)


@contextmanager
def _signals() -> Iterator[int]:
    """A descriptor from which the numbers of the signals that come can be read."""

    def heard(number: int, frame: FrameType | None) -> None:
        """What matters is that it wakes us."""

    woken, waking = os.pipe()
    for end in (woken, waking):
        os.set_blocking(end, False)
    before = {number: signal.signal(number, heard) for number in (*SIGNALS, signal.SIGCHLD)}
    former = signal.set_wakeup_fd(waking)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(former)
        for number, handler in before.items():
            signal.signal(number, handler)
        for end in (woken, waking):
            os.close(end)
