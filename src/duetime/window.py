"""The part of a shard's timers that its owner holds in memory.

Everything the store has up to one cursor, `loaded_to`, and nothing beyond it. Pages come
from the store already sorted and stay lists; timers that arrive later go onto a small heap
beside them, because a heap of all of them costs twenty times as much per timer.

A timer is *live* from when it enters until it is started, moved or canceled. Taking it out
of a page or a heap would cost a search, so what is no longer live just stays there and is
passed over when its turn comes; `drop` sweeps when more lies there dead than alive.
"""

from bisect import bisect_right
from heapq import heapify, heappop, heappush

from duetime.model import CURSOR_MIN, Cursor, Timer

POPPED_MAX = 32


class Window:
    """Holds timers, hands out the due ones in cursor order. Time is an argument."""

    __slots__ = ("_added", "_dead", "_live", "_next", "_page", "loaded_to")

    def __init__(self) -> None:
        self.loaded_to = CURSOR_MIN
        self._live: dict[bytes, Timer] = {}
        self._page: list[Timer] = []
        self._next = 0  # The first of the page that was not handed out yet.
        self._added: list[tuple[int, bytes, int, Timer]] = []
        self._dead = 0

    def __len__(self) -> int:
        """How many timers are live: waiting, or handed out and not started."""
        return len(self._live)

    def get(self, uuid: bytes) -> Timer | None:
        return self._live.get(uuid)

    def extend(self, timers: list[Timer], loaded_to: Cursor) -> None:
        """Take the next page in: sorted, and every one of it after the old `loaded_to`."""
        assert loaded_to >= self.loaded_to
        self._page = self._page[self._next :] + timers
        self._next = 0
        self.loaded_to = loaded_to
        live = self._live
        for timer in timers:
            live[timer.uuid] = timer

    def add(self, timer: Timer) -> None:
        """Take one timer in, in place of one of the same uuid. Due ones are handed out next."""
        if timer.uuid in self._live:
            self._dead += 1
        self._live[timer.uuid] = timer
        # `id` breaks ties between entries of one cursor: timers themselves do not compare.
        heappush(self._added, (timer.execute_at, timer.uuid, id(timer), timer))

    def drop(self, uuid: bytes) -> Timer | None:
        """This timer is not to be handed out, or started, any more."""
        timer = self._live.pop(uuid, None)
        if timer is not None:
            self._dead += 1
            if self._dead > 1_000 + len(self._live):
                self._sweep()
        return timer

    def start(self, timer: Timer) -> bool:
        """Take a timer that was handed out away for good; False if it is live no more."""
        if self._live.get(timer.uuid) is not timer:
            return False
        del self._live[timer.uuid]
        return True

    def take_due(self, now: int) -> list[Timer]:
        """Hand out what is due and was not handed out before, in cursor order."""
        live = self._live
        page, at = self._page, self._next
        if at < len(page) and page[at].execute_at <= now:
            end = bisect_right(page, now, lo=at, key=_execute_at)
            due = [timer for timer in page[at:end] if live.get(timer.uuid) is timer]
            self._next = end
            if end == len(page):
                self._page, self._next = [], 0
        else:
            due = []
        added = self._added
        if added and added[0][0] <= now:
            while added and added[0][0] <= now and len(due) < POPPED_MAX:
                timer = heappop(added)[3]
                if live.get(timer.uuid) is timer:
                    due.append(timer)
            if added and added[0][0] <= now:
                # A burst: to part them costs a tenth of popping them.
                due += [e[3] for e in added if e[0] <= now and live.get(e[1]) is e[3]]
                added[:] = [entry for entry in added if entry[0] > now]
                heapify(added)
            due.sort(key=_cursor)
        return due

    def next_at(self) -> int | None:
        """When the next timer that was not handed out is due."""
        live, page, added = self._live, self._page, self._added
        while self._next < len(page):
            timer = page[self._next]
            if live.get(timer.uuid) is timer:
                break
            self._next += 1
        while added and live.get(added[0][1]) is not added[0][3]:
            heappop(added)
        of_page = page[self._next].execute_at if self._next < len(page) else None
        of_added = added[0][0] if added else None
        if of_page is None or of_added is None:
            return of_page if of_added is None else of_added
        return min(of_page, of_added)

    def trim(self, keep: int) -> None:
        """Give up the tail beyond the next `keep` timers that were not handed out.

        The rows are in the store and come back with a later page.
        """
        assert keep >= 1
        self._sweep()
        # By uuid: a timer that was added again lies there twice, and must not be cut in half.
        waiting = {t.uuid: t for t in (*self._page, *(entry[3] for entry in self._added))}
        if len(waiting) <= keep:
            return
        in_order = sorted(waiting.values(), key=_cursor)
        for timer in in_order[keep:]:
            del self._live[timer.uuid]
        self._page, self._added = in_order[:keep], []
        # What was handed out lies before all that waits, so this cursor covers it as well.
        self.loaded_to = self._page[-1].cursor

    def _sweep(self) -> None:
        live = self._live
        self._page = [t for t in self._page[self._next :] if live.get(t.uuid) is t]
        self._next = 0
        self._added = [entry for entry in self._added if live.get(entry[1]) is entry[3]]
        heapify(self._added)
        self._dead = 0


def _execute_at(timer: Timer) -> int:
    return timer.execute_at


def _cursor(timer: Timer) -> tuple[int, bytes]:
    return timer.execute_at, timer.uuid
