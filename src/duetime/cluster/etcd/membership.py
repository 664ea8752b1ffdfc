"""Membership through etcd: each node has one key, which lives as long as the node renews its
lease, and everybody watches all keys.

A beat renews the lease and then reads all keys in a transaction that also finds out whether
ours is still there. That transaction needs a majority of etcd's members: one that was cut off
from the others, and does not know it yet, cannot confirm a beat.

Each write is history that etcd keeps until it is compacted. So a key is written at once when
others act on what changed, and seldom when only the load did.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from math import inf
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from duetime.clock import Clock
from duetime.cluster.etcd.gateway import Gateway
from duetime.cluster.etcd.messages import Granted, KeepAlive, KeyValue, Txn, Watched
from duetime.cluster.etcd.roll import Roll
from duetime.cluster.etcd.url import parse
from duetime.cluster.membership import Member
from duetime.cluster.trust import TRUSTED_SHARE
from duetime.errors import NodeNameTaken, StoreError, StoreUnavailable

log = logging.getLogger(__name__)

BEATS_PER_TTL = 4  # Two may fail, and trust still holds.
INTERVAL_S_MAX = 1.0
REWRITTEN_S = 5.0
"""A live node's key is written at least this often: by that its namesakes know it from a dead
one's, and people see its load."""

_decode = msgspec.json.Decoder(Member).decode
_encode = msgspec.json.Encoder().encode


class EtcdMembership:
    """`url` is `MEMBERSHIP_URL`; `ConfigError` says what is wrong with it."""

    def __init__(self, url: str, *, cluster: str, clock: Clock) -> None:
        address = parse(url)
        self._ttl_s = address.ttl_s
        self.interval_s = min(INTERVAL_S_MAX, self._ttl_s / BEATS_PER_TTL)
        self.trust_s = self._ttl_s * TRUSTED_SHARE
        self._cluster = cluster
        self._prefix = b""
        self._gateway = Gateway(address, attempt_s=self.interval_s)
        self._clock = clock
        self._roll = Roll(ttl_s=self._ttl_s, deaf_s=self._ttl_s / 2)
        self._me = ""
        self._lease = 0
        self._mine: KeyValue | None = None  # Our key, as it was last read.
        self._revision = 0  # Of the newest read, or of what was heard since.
        self._written: Member | None = None
        self._written_at = -inf
        self._complaint = ""

    async def join(self, me: Member) -> None:
        self._gateway.open()
        self._me = me.name
        # Quoted, so that no cluster's keys begin as another one's do.
        cluster, founder = quote(self._cluster, safe=""), quote(me.founder, safe="")
        self._prefix = f"/duetime/{cluster}/{founder}/nodes/".encode()
        before: KeyValue | None = None
        while True:
            await self._read()
            if self._mine is None:
                if await self._enter(me):
                    return
            # A key that is found is somebody's, until it is gone.
            elif before is not None and self._mine.mod_revision != before.mod_revision:
                raise NodeNameTaken(me.name, _member(self._mine).address)
            before = self._mine
            await asyncio.sleep(self.interval_s)

    async def beat(self, me: Member) -> list[Member]:
        if not (await self._renew() and await self._publish(me)):
            # We were away for longer than a lease; or somebody has deleted what was ours.
            await self._read()
            if self._mine is not None and (other := _member(self._mine)).boot != me.boot:
                raise NodeNameTaken(me.name, other.address)
            if not await self._enter(me):
                raise StoreUnavailable("another write of this node's key came in between")
        others = [member for name, member in self._roll.members.items() if name != me.name]
        return sorted([me, *others], key=lambda member: member.name)

    async def changed(self) -> None:
        while True:
            try:
                if await self._gateway.watch(
                    self._keys() | {"start_revision": self._revision + 1}, self._is_news
                ):
                    return
                self._complaint = ""
            except StoreError as error:
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    log.warning("members not watched", extra={"reason": self._complaint})
                await asyncio.sleep(self.interval_s)

    async def leave(self, me: Member) -> None:
        # The lease runs out by itself.
        delete = {"request_delete_range": {"key": self._key}}
        await self._transact({"target": "LEASE", "lease": self._lease}, [delete])

    async def close(self) -> None:
        await self._gateway.close()

    # -- the lease --------------------------------------------------------------------

    async def _enter(self, me: Member) -> bool:
        """Write our key under a new lease; whether nobody else wrote it since it was read."""
        granted = await self._gateway.call("/v3/lease/grant", {"TTL": self._ttl_s}, Granted)
        if granted.ttl_s < self._ttl_s:
            raise StoreError(f"etcd grants a lease of {granted.ttl_s}s, not of {self._ttl_s}s")
        if granted.ttl_s > self._ttl_s:
            facts = {"ttl_s": granted.ttl_s, "asked_s": self._ttl_s}
            log.warning("etcd grants longer leases only: takeover takes as long", extra=facts)
        self._lease = granted.id
        seen = 0 if self._mine is None else self._mine.mod_revision
        return await self._write(me, {"target": "MOD", "mod_revision": seen})

    async def _renew(self) -> bool:
        """Whether the lease is still ours."""
        kept = await self._gateway.call("/v3/lease/keepalive", {"ID": self._lease}, KeepAlive)
        if kept.error is not None:
            raise StoreUnavailable(f"etcd: {kept.error.text}")
        return kept.result.ttl_s > 0

    # -- the keys ---------------------------------------------------------------------

    async def _publish(self, me: Member) -> bool:
        """Whether our key was still there under our lease; then it says what `me` does."""
        condition = {"target": "LEASE", "lease": self._lease}
        is_fresh = self._clock.monotonic() - self._written_at < REWRITTEN_S
        if is_fresh and self._written is not None and _what_matters(me) == self._written:
            return await self._transact(condition, [])
        return await self._write(me, condition)

    async def _write(self, me: Member, condition: Mapping[str, object]) -> bool:
        put = {"key": self._key, "value": _encode(me), "lease": self._lease}
        at = self._clock.monotonic()
        written = await self._transact(condition, [{"request_put": put}])
        if written:
            self._written, self._written_at = _what_matters(me), at
        return written

    async def _read(self) -> None:
        await self._transact({"target": "VERSION", "version": 0}, [])

    async def _transact(
        self, condition: Mapping[str, object], writes: Sequence[Mapping[str, object]]
    ) -> bool:
        """If our key is so, do this; read all keys in any case. Whether it was."""
        look = {"request_range": self._keys()}
        txn = await self._gateway.call(
            "/v3/kv/txn",
            {
                "compare": [{"key": self._key, "result": "EQUAL", **condition}],
                "success": [*writes, look],
                "failure": [look],
            },
            Txn,
        )
        found = txn.responses[-1].response_range
        assert found is not None
        self._revision = txn.header.revision
        self._mine = next((each for each in found.kvs if each.key == self._key), None)
        members = {self._name(each): _member(each) for each in found.kvs}
        self._roll.read(members, self._clock.monotonic())
        return txn.succeeded

    def _keys(self) -> dict[str, object]:
        """The range of all nodes' keys."""
        return {"key": self._prefix, "range_end": self._prefix[:-1] + b"0"}  # `0` follows `/`.

    @property
    def _key(self) -> bytes:
        return self._prefix + self._me.encode()

    def _name(self, found: KeyValue) -> str:
        return found.key.removeprefix(self._prefix).decode(errors="replace")

    # -- what is heard ------------------------------------------------------------------

    def _is_news(self, heard: Watched) -> bool:
        """Whether somebody came or went who is not known to have."""
        if heard.result.canceled:  # What we ask for is forgotten: a beat reads what is now.
            self._revision = max(self._revision, heard.result.compact_revision)
            return True
        news = False
        for event in heard.result.events:
            self._revision = max(self._revision, event.kv.mod_revision)
            known = self._roll.members.get(self._name(event.kv))
            if event.type == "DELETE":
                news = news or known is not None
            elif self._name(event.kv) != self._me:
                member = _member(event.kv)
                news = news or known is None or _stance(known) != _stance(member)
        return news


def _what_matters(me: Member) -> Member:
    """Without what nobody acts upon."""
    return replace(me, in_flight=0, backlog=0, skew_ms=None)


def _stance(member: Member) -> tuple[str, bool]:
    """Who it is, and whether it wants shards."""
    return member.owner, member.draining


def _member(found: KeyValue) -> Member:
    try:
        return _decode(found.value)
    except msgspec.MsgspecError as error:
        raise StoreError("etcd: what another node wrote about itself cannot be read") from error
