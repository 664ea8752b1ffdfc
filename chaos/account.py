"""Each timer is accounted for: pure functions from the ledger and the log to a verdict."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from chaos.ledger import Arrival, Firing, Found, Kill, Op, Record

ATTEMPTS_MAX = 30
"""The retry policy of every timer of the load that has one."""
# A create may come over a callback that is under way, which may still be travelling when the
# create is acknowledged. An update or a cancel is refused then, so they have no such excuse.
TRAVEL_MS = 1_000
FINAL_STATUSES = {"refuse": ("failed",)}
COMPLETES = ("completed",)


class Verdict(Struct, kw_only=True):
    """Counts for the last line, and a sentence for each thing that went wrong."""

    timers: int = 0
    arrivals: int = 0
    lost: int = 0
    early: int = 0
    after_cancel: int = 0
    superseded: int = 0
    duplicates: int = 0
    unexplained: int = 0
    unasked: int = 0
    wrong: int = 0
    """The server's own account disagrees with the clients' or the receiver's."""
    undecided: int = 0
    """Outcomes that nobody can tell: neither good nor bad."""
    problems: list[str] = []

    @property
    def good(self) -> bool:
        return not self.problems


def account(
    records: Iterable[Record],
    arrivals: Sequence[Arrival],
    kills: Sequence[Kill],
    found: Mapping[str, Found],
    *,
    forgetful: frozenset[str] = frozenset(),
    wall: Callable[[int], int] = lambda at: at,
) -> Verdict:
    """Hold what arrived against what was asked.

    `wall` is the latest that the server's clock can have shown when it sent what arrived at a
    real instant. Namespaces in `forgetful` keep no history, so `found` says nothing of theirs.
    """
    records = list(records)
    verdict = Verdict(arrivals=len(arrivals))
    of_key: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        of_key[arrival.firing.key].append(arrival)
    for record in records:
        verdict.timers += 1
        own = of_key.pop(record.key, [])
        _fired_when_it_should(record, own, verdict, wall)
        seen = None if record.namespace in forgetful else found.get(record.key)
        known = record.namespace not in forgetful
        _ended_as_it_should(record, own, seen, verdict, known=known)
    for key, strangers in of_key.items():
        verdict.unasked += len(strangers)
        verdict.problems.append(f"{key}: {len(strangers)} callbacks of a timer nobody asked for")
    _duplicates(records, arrivals, kills, verdict)
    return verdict


def expected(record: Record) -> Op | None:
    """The schedule that must have fired in the end; None if none must have, or it is unknown."""
    last = None
    for op in record.ops:
        if op.outcome == "maybe":
            return None
        if op.outcome == "done":
            last = None if op.kind == "cancel" else op
    return last


def lateness_ms(records: Iterable[Record], arrivals: Iterable[Arrival]) -> int:
    """The longest that a schedule's first callback came after it was due, or after its client
    was told of it, if that was later; the first attempt only, retries are late on purpose."""
    first: dict[tuple[str, int], int] = {}
    for arrival in arrivals:
        firing = arrival.firing
        if firing.attempt == 1:
            place = (firing.key, firing.revision)
            first[place] = min(arrival.at, first.get(place, arrival.at))
    return max(
        (
            first[record.key, op.revision] - max(op.due, op.ended)
            for record in records
            for op in record.ops
            if op.outcome == "done" and (record.key, op.revision) in first
        ),
        default=0,
    )


def _fired_when_it_should(
    record: Record, arrivals: list[Arrival], verdict: Verdict, wall: Callable[[int], int]
) -> None:
    asked = {op.revision: op for op in record.ops if op.kind != "cancel"}
    silenced = _silenced(record)
    for arrival in arrivals:
        firing = arrival.firing
        op = asked.get(firing.revision)
        name = f"{record.key} revision {firing.revision}, arrived at {arrival.at}"
        if op is None or op.outcome in ("refused", "absent"):
            verdict.unasked += 1
            verdict.problems.append(f"{name}: this schedule was {op.outcome if op else 'unasked'}")
            continue
        if wall(arrival.at) < max(op.due, firing.scheduled_at):
            verdict.early += 1
            verdict.problems.append(f"{name}: early, due at {op.due}")
        if firing.attempt > ATTEMPTS_MAX:
            verdict.wrong += 1
            verdict.problems.append(f"{name}: attempt {firing.attempt} of {ATTEMPTS_MAX}")
        for at, kind in silenced.get(firing.revision, ()):
            if arrival.at <= at:
                continue
            if kind == "cancel":
                verdict.after_cancel += 1
            else:
                verdict.superseded += 1
            verdict.problems.append(f"{name}: after the {kind} acknowledged at {at}")
            break


def _silenced(record: Record) -> dict[int, list[tuple[int, str]]]:
    """From when on a revision must not arrive any more, and what forbids it."""
    silenced: dict[int, list[tuple[int, str]]] = defaultdict(list)
    before: list[int] = []
    for op in record.ops:
        if op.outcome == "done":
            for revision in before:
                grace = TRAVEL_MS if op.kind == "create" else 0
                silenced[revision].append((op.ended + grace, op.kind))
        if op.kind != "cancel":
            before.append(op.revision)
    return silenced


def _ended_as_it_should(
    record: Record,
    arrivals: list[Arrival],
    seen: Found | None,
    verdict: Verdict,
    *,
    known: bool,
) -> None:
    if any(op.outcome == "maybe" for op in record.ops):
        verdict.undecided += 1
        return
    last = expected(record)
    if last is not None:
        arrived = any(arrival.firing.revision == last.revision for arrival in arrivals)
        if not arrived:
            verdict.lost += 1
            verdict.problems.append(
                f"{record.key} revision {last.revision}, due at {last.due}: lost; the server has"
                f" {seen}"
            )
            return
    if not known:
        return
    problem = _disagreement(record, last, seen)
    if problem is not None:
        verdict.wrong += 1
        verdict.problems.append(f"{record.key}: {problem}; the server has {seen}")


def _disagreement(record: Record, last: Op | None, seen: Found | None) -> str | None:
    if last is None:
        existed = any(op.outcome == "done" for op in record.ops)
        if existed and (seen is None or seen.status != "canceled"):
            return "was canceled"
        return "never existed" if not existed and seen is not None else None
    allowed = FINAL_STATUSES.get(last.script.split("/")[0], COMPLETES)
    if seen is None or seen.revision != last.revision or seen.status not in allowed:
        return f"{last} should be {' or '.join(allowed)}"
    return None


def _duplicates(
    records: Iterable[Record], arrivals: Sequence[Arrival], kills: Sequence[Kill], verdict: Verdict
) -> None:
    """A firing may be repeated only by a kill at which its outcome was not on disk, or by a
    client that asks twice: what it asked first may have fired before the same comes again."""
    asked_twice = {
        (record.key, op.revision): op.ended for record in records for op in record.ops if op.again
    }
    times: dict[Firing, list[int]] = defaultdict(list)
    for arrival in arrivals:
        times[arrival.firing].append(arrival.at)
    for firing, instants in times.items():
        instants.sort()
        for before, again in pairwise(instants):
            verdict.duplicates += 1
            explained = before <= asked_twice.get((firing.key, firing.revision), 0) or any(
                before <= (kill.until or kill.at) + TRAVEL_MS
                and kill.at <= again
                and firing in kill.unfinished
                for kill in kills
            )
            if not explained:
                verdict.unexplained += 1
                verdict.problems.append(f"{firing} arrived at {before} and again at {again}")
