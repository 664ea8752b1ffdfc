"""What the port `Membership` says, of both its implementations."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from duetime.cluster.membership import Member
from duetime.errors import NodeNameTaken, StoreError
from tests.cluster.meetings import CLOCK, Meeting, Way, meeting, member
from tests.etcds import etcd_of
from tests.servers import Servers

WAIT_S_MAX = 30.0
BUSY_S = 3.0  # What a loaded machine may add.


@pytest.fixture(params=["memory", "sqlite", pytest.param("etcd", marks=pytest.mark.server)])
async def place(request: Any, servers: Servers, tmp_path: Path) -> AsyncIterator[Meeting]:
    async with meeting(request.param, lambda: etcd_of(servers), tmp_path) as place:
        yield place


class Life:
    """One life of a node, which beats until told to be silent."""

    def __init__(self, way: Way, me: Member) -> None:
        self.way = way
        self.me = me
        self.members: list[Member] = []
        self.asked_at = 0.0
        """When the newest beat that was confirmed was asked for."""
        self._beating: asyncio.Task[None] | None = None

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]

    async def beat(self) -> list[str]:
        """One that is confirmed; the names of those who are alive."""
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                asked_at = CLOCK.monotonic()
                try:
                    self.members = await self.way.membership.beat(self.me)
                except NodeNameTaken:
                    raise
                except StoreError:
                    await asyncio.sleep(0.01)  # A busy machine: it comes round again.
                else:
                    self.asked_at = asked_at
                    return self.names

    async def join(self) -> "Life":
        async with asyncio.timeout(WAIT_S_MAX):
            await self.way.membership.join(self.me)
        await self.beat()
        self.speak()
        return self

    def speak(self) -> None:
        self._beating = asyncio.create_task(self._beats())

    async def silence(self) -> None:
        """What `kill -9` and a freeze do."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
            self._beating = None

    async def sees(self, *names: str) -> float:
        """Wait until exactly these are alive; when it was known."""
        async with asyncio.timeout(WAIT_S_MAX):
            while self.names != list(names):
                await asyncio.sleep(0.005)
        return CLOCK.monotonic()

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(self.way.membership.interval_s)
            await self.beat()


@asynccontextmanager
async def lives(place: Meeting, *members: Member) -> AsyncIterator[list[Life]]:
    """Those of nodes that have joined one after the other."""
    them: list[Life] = []
    try:
        for me in members:
            them.append(Life(await place.way(), me))
            await them[-1].join()
        yield them
    finally:
        for life in them:
            await life.silence()
            await life.way.membership.close()
            await life.way.membership.close()  # Twice is fine.


async def test_all_who_have_joined_are_listed_by_name_with_what_they_say(place: Meeting) -> None:
    async with lives(place, member("b"), member("a/1"), member("a:é")) as (b, a, e):
        assert await b.beat() == ["a/1", "a:é", "b"]
        assert b.members == [a.me, e.me, b.me]


async def test_what_a_node_says_of_itself_is_there_with_its_next_beat(place: Meeting) -> None:
    async with lives(place, member("a"), member("b")) as (a, b):
        await b.silence()
        for change in ({"draining": True}, {"moves": 3}, {"namespaces": 7}, {"shards": 16}):
            b.me = replace(b.me, **change)
            assert b.me in await _members(b)
            assert b.me in await _members(a)


async def test_how_loaded_a_node_is_is_known_in_time(place: Meeting) -> None:
    async with lives(place, member("a"), member("b")) as (a, b):
        b.me = replace(b.me, in_flight=5, backlog=6, skew_ms=-7)
        async with asyncio.timeout(WAIT_S_MAX):
            while b.me not in a.members:
                await asyncio.sleep(0.01)


async def test_the_name_of_a_live_node_is_refused(place: Meeting) -> None:
    async with lives(place, member("a")) as (a,):
        twin = await place.way()
        with pytest.raises(NodeNameTaken, match=r"a\.example:1"):
            await twin.membership.join(member("a", boot="1"))
        await twin.membership.close()
        assert await a.beat() == ["a"]


async def test_the_name_of_a_dead_node_is_free_when_it_is_known_to_be_dead(place: Meeting) -> None:
    async with lives(place, member("a")) as (a,):
        await a.silence()
        died_at = a.asked_at
        async with lives(place, member("a", boot="1")) as (again,):
            assert CLOCK.monotonic() - died_at >= a.way.membership.trust_s
            assert again.members == [again.me]


async def test_who_leaves_is_gone_at_once_and_its_name_free(place: Meeting) -> None:
    async with lives(place, member("a"), member("b")) as (a, b):
        assert await a.beat() == ["a", "b"]
        await b.silence()
        await b.way.membership.leave(b.me)
        assert await a.beat() == ["a"]
        async with lives(place, member("b", boot="1")):
            assert await a.beat() == ["a", "b"]


async def test_who_is_silent_is_dead_in_time_and_not_before_its_trust_has_run_out(
    place: Meeting,
) -> None:
    async with lives(place, member("a"), member("b")) as (a, b):
        await a.sees("a", "b")
        await b.silence()
        noticed_at = await a.sees("a")
        assert noticed_at - b.asked_at >= b.way.membership.trust_s
        assert noticed_at - b.asked_at < 3 * place.dead_s + BUSY_S


async def test_nobody_is_missing_for_having_been_silent_while_we_did_not_listen(
    place: Meeting,
) -> None:
    async with lives(place, member("a"), member("b"), member("c")) as (a, b, c):
        for life in (a, b, c):
            await life.sees("a", "b", "c")
        for life in (a, b, c):
            await life.silence()
        await asyncio.sleep(2 * place.dead_s)
        assert await a.beat() == ["a", "b", "c"]
        assert await b.beat() == ["a", "b", "c"]
        a.speak()
        b.speak()
        came_back_at = a.asked_at
        noticed_at = await a.sees("a", "b")  # `c` is dead indeed.
        assert noticed_at - came_back_at >= c.way.membership.trust_s
        assert await b.sees("a", "b")


async def test_who_was_taken_for_dead_comes_back(place: Meeting) -> None:
    async with lives(place, member("a"), member("b")) as (a, b):
        await b.silence()
        await a.sees("a")
        assert "b" in await b.beat()
        b.speak()
        await a.sees("a", "b")
        await b.sees("a", "b")


async def test_whose_name_another_has_taken_meanwhile_is_told(place: Meeting) -> None:
    async with lives(place, member("a")) as (a,):
        await a.silence()
        async with lives(place, member("a", boot="1")):
            with pytest.raises(NodeNameTaken):
                await a.beat()


async def test_who_is_cut_off_cannot_confirm_and_goes_on_when_that_is_mended(
    place: Meeting,
) -> None:
    async with lives(place, member("a"), member("b")) as (a, b):
        await a.sees("a", "b")
        await b.silence()
        b.way.cut()
        with pytest.raises(StoreError):
            await b.way.membership.beat(b.me)
        with pytest.raises(StoreError):
            await b.way.membership.leave(b.me)
        b.way.mend()
        assert await b.beat() == ["a", "b"]


async def test_a_node_beats_several_times_before_its_trust_runs_out(place: Meeting) -> None:
    way = await place.way()
    assert 2 * way.membership.interval_s <= way.membership.trust_s < place.dead_s


async def _members(life: Life) -> list[Member]:
    await life.beat()
    return life.members
