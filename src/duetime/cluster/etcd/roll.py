"""Who is there, as one observer read it from etcd. Pure: time is an argument."""

from collections.abc import Mapping
from math import inf

from duetime.cluster.membership import Member


class Roll:
    """The members of the newest read, and those whom the observer may have silenced itself.

    Leases run out by etcd's clock, whether or not this observer could see it. If what kept it
    from reading kept others from renewing theirs (a database that was away stops all beats),
    they are gone without having been dead: they are given a lease's time to come back.
    """

    def __init__(self, *, ttl_s: float, deaf_s: float) -> None:
        self.members: Mapping[str, Member] = {}
        """By name."""
        self._ttl_s = ttl_s
        self._deaf_s = deaf_s
        self._read_at = -inf
        self._awaited: dict[str, Member] = {}
        self._awaited_until = -inf

    def read(self, listed: Mapping[str, Member], at: float) -> None:
        """These have leases, read by `at`."""
        if at - self._read_at > self._deaf_s:
            self._awaited = dict(self.members)
            self._awaited_until = at + self._ttl_s
        elif at >= self._awaited_until:
            self._awaited = {}
        self._read_at = at
        for name in listed:
            self._awaited.pop(name, None)
        self.members = self._awaited | dict(listed)
