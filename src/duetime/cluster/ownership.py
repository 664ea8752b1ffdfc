"""Who should own which shard, and what to do about it. Pure.

Rendezvous hashing: each (member, shard) has a score that everybody computes alike, and the
highest one wins. So nodes agree without talking, and when one comes or goes only its own
shards move.
"""

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from duetime.cluster.membership import Member
from duetime.model import Lease
from duetime.shard import Shard
from duetime.store import ShardRow


class Rendezvous:
    """Remembers the scores of the names it has seen lately: they never change."""

    def __init__(self) -> None:
        self._scores: dict[str, list[int]] = {}

    def assign(self, names: Collection[str], num_shards: int) -> list[str | None]:
        """The name that should own each shard; None of them if there are no names."""
        if not names:
            return [None] * num_shards
        self._scores = {name: self._scored(name, num_shards) for name in sorted(names)}
        best = [-1] * num_shards
        winners: list[str | None] = [None] * num_shards
        for name, scores in self._scores.items():
            for shard in range(num_shards):
                if scores[shard] > best[shard]:
                    best[shard], winners[shard] = scores[shard], name
        return winners

    def _scored(self, name: str, num_shards: int) -> list[int]:
        scores = self._scores.get(name, [])
        # A digest, because Python's own hash differs between processes.
        return scores + [
            int.from_bytes(blake2b(f"{name}/{shard}".encode(), digest_size=8).digest())
            for shard in range(len(scores), num_shards)
        ]


class Plan(NamedTuple):
    """What one node is to do, in this order."""

    lost: list[Shard]
    """Ours, as we thought; somebody else has claimed them since."""
    leave: list[Shard]
    """Ours, and should be another's."""
    release: list[Lease]
    """In our name in the store, not held and not wanted: a claim or release that failed."""
    claim: list[int]
    """Should be ours, and nobody alive has them."""
    awaited: bool
    """Some should be ours and are another's, who is to hand them over."""


def plan(
    me: Member,
    members: Sequence[Member],
    *,
    wanted: Sequence[str | None],
    held: Mapping[int, Shard],
    rows: Mapping[int, ShardRow],
) -> Plan:
    """Compare who should own each shard with who does.

    `rows` may be older than what we hold, by claims of our own, but not newer than `members`:
    whoever had claimed a shard by then had joined before. The shards of `held` are all in
    `wanted`, which is by shard.
    """
    live = {member.owner for member in members}
    lost: list[Shard] = []
    leave: list[Shard] = []
    release: list[Lease] = []
    claim: list[int] = []
    awaited = False
    for number, name in enumerate(wanted):
        row = rows.get(number)
        owner = None if row is None else row.owner
        shard = held.get(number)
        if shard is not None:
            if row is not None and _is_superseded(shard, row, me):
                lost.append(shard)
                if name != me.name:
                    continue
            else:
                if name != me.name and not shard.leaving:
                    leave.append(shard)
                continue
        if name == me.name:
            if owner is None or owner == me.owner or owner not in live:
                claim.append(number)
            else:
                awaited = True
        elif row is not None and owner == me.owner:
            release.append(Lease(number, row.version, owner))
    return Plan(lost, leave, release, claim, awaited)


def _is_superseded(shard: Shard, row: ShardRow, me: Member) -> bool:
    # A paused shard is being claimed anew by ourselves.
    return row.version > shard.lease.version and not (shard.paused and row.owner == me.owner)
