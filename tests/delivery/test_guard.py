"""Which addresses may be called back, in whatever form they are written."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from duetime.clock import SystemClock
from duetime.delivery import guard as guard_module
from duetime.delivery.guard import AddressGuard, AddressRefused, NameNotResolved
from duetime.errors import ConfigError

REFUSED = [
    ("127.0.0.1", "loopback", "127.0.0.0/8"),
    ("127.255.255.254", "loopback", "127.0.0.0/8"),
    ("10.0.0.5", "private network", "10.0.0.0/8"),
    ("172.16.0.1", "private network", "172.16.0.0/12"),
    ("172.31.255.255", "private network", "172.16.0.0/12"),
    ("192.168.1.1", "private network", "192.168.0.0/16"),
    ("100.64.0.1", "private network (carrier-grade NAT)", "100.64.0.0/10"),
    ("169.254.1.1", "link-local", "169.254.0.0/16"),
    ("169.254.169.254", "cloud metadata", "169.254.169.254/32"),
    ("169.254.170.2", "cloud metadata", "169.254.170.2/32"),
    ("100.100.100.200", "cloud metadata", "100.100.100.200/32"),
    ("168.63.129.16", "cloud metadata", "168.63.129.16/32"),
    ("0.0.0.0", "unspecified", "0.0.0.0/8"),
    ("0.1.2.3", "unspecified", "0.0.0.0/8"),
    ("224.0.0.1", "multicast", "224.0.0.0/4"),
    ("239.255.255.255", "multicast", "224.0.0.0/4"),
    ("240.0.0.1", "reserved", "240.0.0.0/4"),
    ("255.255.255.255", "broadcast", "255.255.255.255/32"),
    ("192.0.2.1", "reserved", "192.0.2.0/24"),
    ("198.18.0.1", "reserved", "198.18.0.0/15"),
    ("198.51.100.7", "reserved", "198.51.100.0/24"),
    ("203.0.113.7", "reserved", "203.0.113.0/24"),
    ("::", "unspecified", "::/128"),
    ("::1", "loopback", "::1/128"),
    ("fc00::1", "private network", "fc00::/7"),
    ("fdff::1", "private network", "fc00::/7"),
    ("fd00:ec2::254", "cloud metadata", "fd00:ec2::254/128"),
    ("fe80::1", "link-local", "fe80::/10"),
    ("febf::1", "link-local", "fe80::/10"),
    ("fec0::1", "private network (site-local)", "fec0::/10"),
    ("ff02::1", "multicast", "ff00::/8"),
    ("2001:db8::1", "reserved", "2001:db8::/32"),
    ("2001:2::1", "reserved", "2001::/23"),
    ("64:ff9b:1::1", "private network (translated)", "64:ff9b:1::/48"),
    ("4000::1", "reserved", "4000::1/128"),
    ("100::1", "reserved", "100::1/128"),
]
INSIDE_IPV6 = [
    ("::ffff:127.0.0.1", "127.0.0.1", "loopback", "127.0.0.0/8"),
    ("::ffff:a00:5", "10.0.0.5", "private network", "10.0.0.0/8"),
    ("::ffff:169.254.169.254", "169.254.169.254", "cloud metadata", "169.254.169.254/32"),
    ("::ffff:0:10.0.0.5", "10.0.0.5", "private network", "10.0.0.0/8"),
    ("::127.0.0.1", "127.0.0.1", "loopback", "127.0.0.0/8"),
    ("::2", "0.0.0.2", "unspecified", "0.0.0.0/8"),
    ("64:ff9b::10.0.0.5", "10.0.0.5", "private network", "10.0.0.0/8"),
    ("64:ff9b::169.254.169.254", "169.254.169.254", "cloud metadata", "169.254.169.254/32"),
    ("2002:7f00:1::1", "127.0.0.1", "loopback", "127.0.0.0/8"),
    ("2002:c0a8:101::", "192.168.1.1", "private network", "192.168.0.0/16"),
    # Teredo: the server's address first, the client's last and inverted.
    ("2001:0:a00:5:0:0:f7f7:f7f7", "10.0.0.5", "private network", "10.0.0.0/8"),
    ("2001:0:808:808:0:0:80ff:fffe", "127.0.0.1", "loopback", "127.0.0.0/8"),
    ("2600::5efe:10.0.0.5", "10.0.0.5", "private network", "10.0.0.0/8"),
    ("2600::200:5efe:10.0.0.5", "10.0.0.5", "private network", "10.0.0.0/8"),
]
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "169.253.255.255",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]


@pytest.mark.parametrize(("address", "rule", "network"), REFUSED)
async def test_serve_refuses_what_is_not_public(address: str, rule: str, network: str) -> None:
    with pytest.raises(AddressRefused) as refused:
        await AddressGuard((), False).resolve(address)
    assert str(refused.value) == (
        f"address {address} is refused: {rule}; allow it with CALLBACK_ALLOW_NETWORKS={network}"
    )
    assert await AddressGuard((network,), False).resolve(address) == [address]


@pytest.mark.parametrize(("address", "inner", "rule", "network"), INSIDE_IPV6)
async def test_serve_refuses_ipv4_addresses_inside_ipv6_ones(
    address: str, inner: str, rule: str, network: str
) -> None:
    with pytest.raises(AddressRefused) as refused:
        await AddressGuard((), False).resolve(address)
    assert f"is refused: {rule} ({inner} inside an IPv6 address); " in str(refused.value)
    assert str(refused.value).endswith(f"CALLBACK_ALLOW_NETWORKS={network}")
    assert len(await AddressGuard((network,), False).resolve(address)) == 1


@pytest.mark.parametrize("address", PUBLIC)
async def test_public_addresses_are_allowed(address: str) -> None:
    assert len(await AddressGuard((), False).resolve(address)) == 1


@pytest.mark.parametrize(("address", "rule", "_network"), REFUSED)
async def test_dev_allows_loopback_and_private_networks_only(
    address: str, rule: str, _network: str
) -> None:
    local = rule in ("loopback", "private network", "private network (carrier-grade NAT)")
    guard = AddressGuard((), True)
    if local:
        assert await guard.resolve(address) == [address]
    else:
        with pytest.raises(AddressRefused):
            await guard.resolve(address)


@pytest.mark.parametrize(
    "address", ["::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "2002:a9fe:a9fe::"]
)
async def test_dev_refuses_metadata_inside_ipv6_addresses_too(address: str) -> None:
    with pytest.raises(AddressRefused, match="cloud metadata"):
        await AddressGuard((), True).resolve(address)


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "2130706433", "017700000001", "127.0.1"])
async def test_other_ways_to_write_an_address_are_seen_through(host: str) -> None:
    with pytest.raises(AddressRefused, match=f"of {host} is refused: loopback"):
        await AddressGuard((), False).resolve(host)


async def test_a_name_is_judged_by_its_addresses() -> None:
    guard = AddressGuard((), False, lookup=lambda _: ["10.0.0.5", "192.168.0.1"])
    with pytest.raises(AddressRefused) as refused:
        await guard.resolve("example.com")
    assert str(refused.value) == (
        "address 10.0.0.5 of example.com is refused: private network;"
        " allow it with CALLBACK_ALLOW_NETWORKS=10.0.0.0/8"
    )


async def test_of_a_names_addresses_only_the_allowed_ones_are_connected_to() -> None:
    guard = AddressGuard(
        (), False, lookup=lambda _: ["10.0.0.5", "8.8.8.8", "::1", "8.8.8.8", "1.1.1.1"]
    )
    assert await guard.resolve("mixed.test") == ["8.8.8.8", "1.1.1.1"]


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.0.5/8", "example.com", ""])
def test_networks_that_are_none_are_refused_at_start(text: str) -> None:
    with pytest.raises(ConfigError, match="CALLBACK_ALLOW_NETWORKS must be networks such as"):
        AddressGuard((text,), False)


@pytest.mark.parametrize("error", [OSError, UnicodeError])
async def test_a_name_that_cannot_be_looked_up_is_named(error: type[Exception]) -> None:
    def lookup(_: str) -> Sequence[str]:
        raise error

    with pytest.raises(NameNotResolved, match=r"name not resolved: nowhere\.test$"):
        await AddressGuard((), False, lookup=lookup).resolve("nowhere.test")


class Lookups:
    """Looks names up when it is told to, and counts."""

    def __init__(self, answer: Callable[[str], Sequence[str]] = lambda _: ["8.8.8.8"]) -> None:
        self.asked: list[str] = []
        self.go = threading.Event()
        self._answer = answer

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        self.go.wait(10)
        return self._answer(host)


async def test_a_burst_of_attempts_asks_once_and_again_when_the_answer_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookups = Lookups()
    guard = AddressGuard((), False, lookup=lookups)
    burst = [asyncio.ensure_future(guard.resolve("a.test")) for _ in range(50)]
    lookups.go.set()
    assert await asyncio.gather(*burst) == [["8.8.8.8"]] * 50
    assert await guard.resolve("a.test") == ["8.8.8.8"]
    assert lookups.asked == ["a.test"]
    monkeypatch.setattr(guard, "_now", lambda: SystemClock().monotonic() + 6)
    await guard.resolve("a.test")
    assert lookups.asked == ["a.test"] * 2


async def test_one_that_gives_up_waiting_does_not_take_the_answer_from_others() -> None:
    lookups = Lookups()
    guard = AddressGuard((), False, lookup=lookups)
    impatient = asyncio.ensure_future(guard.resolve("a.test"))
    patient = asyncio.ensure_future(guard.resolve("a.test"))
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    lookups.go.set()
    assert await patient == ["8.8.8.8"]


async def test_lookups_at_a_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "LOOKUPS_MAX", 3)
    lookups = Lookups()
    guard = AddressGuard((), False, lookup=lookups)
    asked = [asyncio.ensure_future(guard.resolve(f"{n}.test")) for n in range(10)]
    async with asyncio.timeout(5):
        while len(lookups.asked) < 3:
            await asyncio.sleep(0.001)
    assert len(lookups.asked) == 3
    lookups.go.set()
    assert await asyncio.gather(*asked) == [["8.8.8.8"]] * 10
    assert sorted(lookups.asked) == [f"{n}.test" for n in range(10)]


async def test_names_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "CACHED_NAMES_MAX", 2)
    lookups = Lookups()
    lookups.go.set()
    guard = AddressGuard((), False, lookup=lookups)
    for host in ("a", "b", "c", "c", "b", "a"):
        await guard.resolve(host)
    assert lookups.asked == ["a", "b", "c", "a"]
