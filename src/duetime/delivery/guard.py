"""Where callbacks may go: hosts resolved, every address checked before it is connected to.

A timer's URL is written by users, and this process stands inside a network: without a guard,
a callback reads the cloud's metadata or posts to the database next door. Names are no safer
than addresses (`127.1`, a name that answers 10.0.0.5, one that answers differently the second
time), so what is checked is the address itself, and that very address is connected to.
"""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import NamedTuple

from duetime.clock import SystemClock
from duetime.errors import ConfigError, DuetimeError

SETTING = "CALLBACK_ALLOW_NETWORKS"

LOOKUPS_MAX = 16
"""Names being looked up at the same time; further ones wait, under their own deadlines."""
ADDRESSES_MAX = 8
"""Of one name's addresses; no attempt has the time for more."""
CACHED_NAMES_MAX = 1_024
CACHED_S = 5.0
FAILURE_CACHED_S = 1.0

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Lookup = Callable[[str], Sequence[str]]


class AddressRefused(DuetimeError):
    """A rule of the guard forbids the address."""

    def __init__(self, address: str, host: str, rule: str, network: str) -> None:
        whose = address if address == host else f"{address} of {host}"
        super().__init__(f"address {whose} is refused: {rule}; allow it with {SETTING}={network}")


class NameNotResolved(DuetimeError):
    """The host has no address, or nobody could be asked for it."""

    def __init__(self, host: str) -> None:
        super().__init__(f"name not resolved: {host}")


class Rule(NamedTuple):
    network: Network
    name: str
    local: bool = False
    """Whether it is the developer's own: allowed where `allow_local` is."""


def _rules(*rows: tuple[str, str, bool]) -> tuple[Rule, ...]:
    return tuple(Rule(ip_network(network), name, local) for network, name, local in rows)


# The first that holds the address counts, so the narrower stand above the wider.
_RULES_4 = _rules(
    ("169.254.169.254/32", "cloud metadata", False),
    ("169.254.170.2/32", "cloud metadata", False),  # Amazon's container credentials.
    ("169.254.170.23/32", "cloud metadata", False),
    ("100.100.100.200/32", "cloud metadata", False),  # Alibaba's, amid shared addresses.
    ("168.63.129.16/32", "cloud metadata", False),  # Azure's, amid public addresses.
    ("192.0.0.192/32", "cloud metadata", False),  # Oracle's.
    ("127.0.0.0/8", "loopback", True),
    ("10.0.0.0/8", "private network", True),
    ("172.16.0.0/12", "private network", True),
    ("192.168.0.0/16", "private network", True),
    ("100.64.0.0/10", "private network (carrier-grade NAT)", True),
    ("169.254.0.0/16", "link-local", False),
    ("0.0.0.0/8", "unspecified", False),
    ("224.0.0.0/4", "multicast", False),
    ("255.255.255.255/32", "broadcast", False),
    ("240.0.0.0/4", "reserved", False),
    ("192.0.0.0/24", "reserved", False),
    ("192.0.2.0/24", "reserved", False),
    ("192.88.99.0/24", "reserved", False),
    ("198.18.0.0/15", "reserved", False),
    ("198.51.100.0/24", "reserved", False),
    ("203.0.113.0/24", "reserved", False),
)
_RULES_6 = _rules(
    ("fd00:ec2::254/128", "cloud metadata", False),
    ("fd00:ec2::23/128", "cloud metadata", False),
    ("fd20:ce::254/128", "cloud metadata", False),
    ("::1/128", "loopback", True),
    ("::/128", "unspecified", False),
    ("fc00::/7", "private network", True),
    ("fe80::/10", "link-local", False),
    ("fec0::/10", "private network (site-local)", False),
    ("64:ff9b:1::/48", "private network (translated)", False),
    ("ff00::/8", "multicast", False),
    ("2001:db8::/32", "reserved", False),
    ("3fff::/20", "reserved", False),
)
_TEREDO = IPv6Network("2001::/32")
_PROTOCOLS = Rule(IPv6Network("2001::/23"), "reserved")
_GLOBAL = IPv6Network("2000::/3")

# How far right of the address's end its IPv4 address ends, in bits.
_EMBEDDED = tuple(
    (IPv6Network(network), shift)
    for network, shift in (
        ("::ffff:0:0/96", 0),  # IPv4-mapped
        ("::ffff:0:0:0/96", 0),  # IPv4-translated
        ("::/96", 0),  # IPv4-compatible
        ("64:ff9b::/96", 0),  # NAT64
        ("2002::/16", 80),  # 6to4
        ("2001::/32", 64),  # Teredo: its server
    )
)
_ISATAP = (0x00005EFE, 0x02005EFE)


def embedded(address: IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that a packet to this one may be handed on to."""
    value = int(address)
    if value <= 1:  # `::` and `::1` are their own, though they look like IPv4-compatible ones.
        return []
    found = [
        IPv4Address(value >> shift & 0xFFFFFFFF)
        for network, shift in _EMBEDDED
        if address in network
    ]
    if address in _TEREDO:
        found.append(IPv4Address(~value & 0xFFFFFFFF))
    if value >> 32 & 0xFFFFFFFF in _ISATAP:
        found.append(IPv4Address(value & 0xFFFFFFFF))
    return found


def rule_for(address: Address) -> Rule | None:
    """The rule by which the address is not a public one. Embedded IPv4 is not looked into."""
    for rule in _RULES_4 if isinstance(address, IPv4Address) else _RULES_6:
        if address in rule.network:
            return rule
    if isinstance(address, IPv4Address):
        return None
    if address in _PROTOCOLS.network and address not in _TEREDO:
        return _PROTOCOLS
    if address in _GLOBAL or any(address in network for network, _ in _EMBEDDED):
        return None
    return Rule(IPv6Network((address, 128)), "reserved")


class AddressGuard:
    """Checks addresses and resolves names, off the event loop, into checked addresses only.

    `allow_networks` may be called back whatever else they are. `allow_local` allows loopback
    and private networks, which is for development. A name's answer is kept a few seconds, so
    that a burst asks once.
    """

    def __init__(
        self,
        allow_networks: Sequence[str],
        allow_local: bool,
        *,
        lookup: Lookup | None = None,
    ) -> None:
        self._allowed = tuple(_network(text) for text in allow_networks)
        self._allow_local = allow_local
        self._lookup = _getaddrinfo if lookup is None else lookup
        self._now = SystemClock().monotonic
        self._known: dict[str, tuple[float, list[str]]] = {}
        self._asked: dict[str, asyncio.Future[list[str]]] = {}
        self._queue: deque[str] = deque()
        self._running = 0
        # Per guard, and bounded: `_problem` asks a dozen networks.
        self._problem = lru_cache(maxsize=CACHED_NAMES_MAX)(self._find_problem)

    async def resolve(self, host: str) -> list[str]:
        """The host's addresses that may be connected to, in the order to try them.

        `NameNotResolved`; `AddressRefused` where none of them is allowed.
        """
        addresses = _literal(host) or await self._addresses(host)
        if not addresses:
            raise NameNotResolved(host)
        problems = [self._problem(address) for address in addresses]
        checked = [a for a, problem in zip(addresses, problems, strict=True) if problem is None]
        if not checked and problems[0] is not None:
            raise AddressRefused(addresses[0], host, *problems[0])
        return checked

    async def _addresses(self, host: str) -> list[str]:
        known = self._known.get(host)
        if known is not None and self._now() < known[0]:
            return known[1]
        future = self._asked.get(host)
        if future is None:
            future = self._asked[host] = asyncio.get_running_loop().create_future()
            self._queue.append(host)
            self._start_lookups()
        # Shielded: one attempt's deadline must not take the answer from the others.
        return await asyncio.shield(future)

    def _start_lookups(self) -> None:
        while self._queue and self._running < LOOKUPS_MAX:
            host = self._queue.popleft()
            self._running += 1
            # A thread that nobody waits for at exit: a resolver may take half a minute.
            threading.Thread(
                target=self._look_up, args=(host, self._asked[host]), daemon=True
            ).start()

    def _look_up(self, host: str, future: asyncio.Future[list[str]]) -> None:
        try:
            addresses = list(dict.fromkeys(self._lookup(host)))[:ADDRESSES_MAX]
        except (OSError, UnicodeError):
            addresses = []
        try:
            future.get_loop().call_soon_threadsafe(self._learned, host, future, addresses)
        except RuntimeError:
            return  # The loop has gone, and with it all who wanted to know.

    def _learned(self, host: str, future: asyncio.Future[list[str]], addresses: list[str]) -> None:
        self._known.pop(host, None)
        if len(self._known) >= CACHED_NAMES_MAX:
            del self._known[next(iter(self._known))]
        kept_s = CACHED_S if addresses else FAILURE_CACHED_S
        self._known[host] = (self._now() + kept_s, addresses)
        del self._asked[host]
        self._running -= 1
        if not future.done():
            future.set_result(addresses)
        self._start_lookups()

    def _find_problem(self, text: str) -> tuple[str, str] | None:
        """The rule that refuses the address and the network that would allow it."""
        address = ip_address(text)
        if self._is_named(address):
            return None
        inner = embedded(address) if isinstance(address, IPv6Address) else []
        for candidate in (address, *inner):
            rule = rule_for(candidate)
            if rule is None or (rule.local and self._allow_local) or self._is_named(candidate):
                continue
            inside = "" if candidate is address else f" ({candidate} inside an IPv6 address)"
            return rule.name + inside, str(rule.network)
        return None

    def _is_named(self, address: Address) -> bool:
        return any(address in network for network in self._allowed)


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigError(f"{SETTING} must be networks such as 10.0.0.0/8: {error}") from None


def _literal(host: str) -> list[str]:
    try:
        return [str(ip_address(host))]
    except ValueError:
        return []


def _getaddrinfo(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for _, _, _, _, sockaddr in found]
