"""What a write to a shard consists of, worked out from what was read of the shard before.

Pure. It may rest on what was read because a write takes effect only if nothing was written
since. Rows are never deleted and inserted in one write: of the same instant, Cassandra lets
the deletion win.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from cassandra.query import UNSET_VALUE
from msgspec import Struct

from duetime.model import CURSOR_MIN, Cursor, Timer
from duetime.store import Batch
from duetime.stores.cassandra import statements as cql
from duetime.stores.cassandra.driver import Change
from duetime.stores.sql.rows import Row, history_row, timer_row

PART_TIMERS_MAX = 500
PART_BYTES_MAX = 1024 * 1024


class Layout(Struct, frozen=True):
    """A shard's metadata: where its rows are to be found."""

    floors: dict[int, Cursor] = {}
    """Of each of these types no row lies before its floor. What is to be read from the start is
    read from there, and not through what was deleted before it."""
    namespaces: dict[str, int] = {}
    """The types of their FINISHED rows; that of the FINISHING ones is the next."""

    def floor(self, kind: int) -> Cursor:
        return self.floors.get(kind, CURSOR_MIN)


encode_layout = msgspec.json.Encoder().encode
decode_layout = msgspec.json.Decoder(Layout).decode


class Places(Struct, frozen=True, gc=False):
    """A KEY row: where the key's timer stands, and its newest outcome. None: there is none."""

    execute_at: int | None = None
    finished_type: int | None = None
    finished_at: int | None = None
    finished_execute_at: int | None = None


NOWHERE = Places()


def history_place(uuid: bytes, execute_at: int, at: int) -> Cursor:
    """Of a FINISHED row. Of a FINISHING row the two instants change places."""
    return Cursor(execute_at, uuid + at.to_bytes(8, "big"))


def successor(place: Cursor) -> Cursor:
    """The least place after it."""
    return Cursor(place.execute_at, place.uuid + b"\0")


class Plan:
    """What is to be changed, beside the shard's own row."""

    def __init__(self, shard: int, layout: Layout, known: dict[bytes, Places]) -> None:
        self.gone: dict[int, set[Cursor]] = {}
        self._added: dict[int, list[Cursor]] = {}
        self._shard = shard
        self._layout = layout
        self._namespaces = dict(layout.namespaces)
        self._known = known
        self._places: dict[bytes, Places] = {}
        self._inserts: list[Change] = []

    def apply(self, batch: Batch) -> None:
        for timer in batch.removes:
            if self._place(timer.uuid).execute_at == timer.execute_at:
                self._leave(cql.TIMER, timer.cursor)
                self._move(timer.uuid, execute_at=None)
        for timer in batch.puts:
            stood_at = self._known.get(timer.uuid, NOWHERE).execute_at
            values = timer_row(timer)
            if stood_at != timer.execute_at:
                values = _unset(values)
                if stood_at is not None:
                    self._leave(cql.TIMER, Cursor(stood_at, timer.uuid))
            self._insert(cql.PUT, values, cql.TIMER, timer.cursor)
            self._move(timer.uuid, execute_at=timer.execute_at)
        for entry in batch.finished:
            uuid, execute_at = entry.timer.uuid, entry.timer.execute_at
            newest_at = self._place(uuid).finished_at
            if newest_at == entry.at:
                continue  # Sent again.
            first_unused = cql.FINISHED + 2 * len(self._namespaces)
            kind = self._namespaces.setdefault(entry.timer.namespace, first_unused)
            place = history_place(uuid, execute_at, entry.at)
            row = history_row(entry)
            values = (*_unset((*row[:2], place.uuid, *row[3:])), kind)
            self._insert(cql.RECORD, values, kind, place)
            place = history_place(uuid, entry.at, execute_at)
            values = (self._shard, kind + 1, *place)
            self._insert(cql.RECORD_FINISHING, values, kind + 1, place)
            if newest_at is None or newest_at < entry.at:
                self._move(
                    uuid,
                    finished_type=kind,
                    finished_at=entry.at,
                    finished_execute_at=execute_at,
                )

    def purge(self, kind: int, rows: Collection[Cursor]) -> None:
        """Forget FINISHED rows of that type, and these FINISHING rows, which stand for them."""
        for place in rows:
            uuid, execute_at = place.uuid[:16], int.from_bytes(place.uuid[16:], "big")
            self._leave(kind + 1, place)
            self._leave(kind, history_place(uuid, execute_at, place.execute_at))
            if self._place(uuid).finished_at == place.execute_at:
                self._move(uuid, finished_type=None, finished_at=None, finished_execute_at=None)

    def changes(self, heads: Mapping[int, Sequence[Cursor]]) -> tuple[Layout, list[Change]]:
        """The layout after it, and the statements.

        `heads` are the first rows of a type, from its floor on: those of them that go leave as
        one run, up to the first that stays, or just beyond the last.
        """
        after = dict(self._layout.floors)
        changes = self._inserts + [
            self._put_key(uuid, places)
            for uuid, places in self._places.items()
            if places != self._known.get(uuid, NOWHERE)
        ]
        for kind in self.gone.keys() | self._added.keys():
            gone, head = self.gone.get(kind, set()), heads.get(kind, ())
            floor = self._layout.floor(kind)
            behind = successor(head[-1]) if head else floor
            stays = next((place for place in head if place not in gone), behind)
            after[kind] = min([stays, *self._added.get(kind, ())])
            if after[kind] > floor:
                changes.append((cql.DELETE_RUN, (self._shard, kind, *floor, *after[kind])))
            changes += [
                (cql.DELETE, (self._shard, kind, *place)) for place in gone if place >= after[kind]
            ]
        return Layout(after, self._namespaces), changes

    def _place(self, uuid: bytes) -> Places:
        return self._places.get(uuid) or self._known.get(uuid, NOWHERE)

    def _move(self, uuid: bytes, **places: int | None) -> None:
        self._places[uuid] = msgspec.structs.replace(self._place(uuid), **places)

    def _leave(self, kind: int, place: Cursor) -> None:
        self.gone.setdefault(kind, set()).add(place)

    def _insert(self, statement: str, values: Row, kind: int, place: Cursor) -> None:
        self._inserts.append((statement, values))
        self._added.setdefault(kind, []).append(place)

    def _put_key(self, uuid: bytes, places: Places) -> Change:
        if places == NOWHERE:
            return cql.DELETE_KEY, (self._shard, uuid)
        before = msgspec.structs.astuple(self._known.get(uuid, NOWHERE))
        after = msgspec.structs.astuple(places)
        changed = (
            UNSET_VALUE if old is new is None else new
            for old, new in zip(before, after, strict=True)
        )
        return cql.PUT_KEY, (self._shard, uuid, *changed)


def uuids_of(batch: Batch) -> list[bytes]:
    timers = [*batch.puts, *batch.removes, *[entry.timer for entry in batch.finished]]
    return list({timer.uuid: None for timer in timers})


def parts_of(batch: Batch) -> Iterator[Batch]:
    """All of it, unless it is too much for one write; never a timer's changes apart."""
    timers: dict[bytes, Batch] = {}

    def of(timer: Timer) -> Batch:
        return timers.setdefault(timer.uuid, Batch(batch.lease, [], [], []))

    for timer in batch.puts:
        of(timer).puts.append(timer)
    for timer in batch.removes:
        of(timer).removes.append(timer)
    for entry in batch.finished:
        of(entry.timer).finished.append(entry)
    part, count, room = Batch(batch.lease, [], [], []), 0, PART_BYTES_MAX
    for changes in timers.values():
        weight = _weight(changes)
        if count == PART_TIMERS_MAX or (count and weight > room):
            yield part
            part, count, room = Batch(batch.lease, [], [], []), 0, PART_BYTES_MAX
        part.puts.extend(changes.puts)
        part.removes.extend(changes.removes)
        part.finished.extend(changes.finished)
        count, room = count + 1, room - weight
    yield part


def bytes_of(timer: Timer) -> int:
    return len(timer.payload or b"") + len(timer.metadata or b"")


def _weight(batch: Batch) -> int:
    timers = [*batch.puts, *[entry.timer for entry in batch.finished]]
    return sum(bytes_of(timer) for timer in timers)


def _unset(values: Row) -> Row:
    """For a row that is new: NULL would be written as a deletion."""
    return tuple(UNSET_VALUE if value is None else value for value in values)
