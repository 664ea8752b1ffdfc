"""How timers are shown: unfinished ones, those executing, and what became of them."""

from duetime.model import Finished, Timer, View
from duetime.requests import Selected, Selection
from duetime.store import ListCursor


def of_pending(timer: Timer) -> View:
    return View(timer, "pending", timer.attempts, timer.last_error, timer.updated_at)


def of_executing(timer: Timer) -> View:
    return View(timer, "executing", timer.attempts, timer.last_error, timer.updated_at)


def of_finished(finished: Finished) -> View:
    return View(
        finished.timer,
        finished.status,
        finished.attempts,
        finished.last_error,
        finished.at,
        None if finished.status == "canceled" else finished.at,
    )


def list_cursor(entry: Timer | Finished) -> ListCursor:
    if isinstance(entry, Finished):
        return ListCursor(entry.timer.execute_at, entry.timer.uuid, entry.at)
    return ListCursor(entry.execute_at, entry.uuid, 0)


def select_executing(selection: Selection, timers: list[Timer]) -> Selected:
    """What is executing is known to the owner only, and bounded: listed from memory."""
    after = selection.after
    matching = [
        timer
        for timer in timers
        if timer.id.startswith(selection.id_prefix)
        and (selection.execute_from is None or timer.execute_at >= selection.execute_from)
        and (selection.execute_before is None or timer.execute_at < selection.execute_before)
    ]
    by_created = selection.sort == "created_at"
    matching.sort(
        key=lambda timer: (timer.created_at if by_created else timer.execute_at, timer.uuid),
        reverse=selection.descending,
    )
    total = len(matching) if selection.total else None
    if after is not None:
        matching = [timer for timer in matching if list_cursor(timer) > after]
    rest = matching[selection.offset :]
    page = rest[: selection.limit]
    more = list_cursor(page[-1]) if len(rest) > len(page) else None
    return Selected([of_executing(timer) for timer in page], more, total)
