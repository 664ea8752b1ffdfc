"""Where nodes meet, if not in the store. The client is imported only when it is used."""

import re

from duetime.clock import Clock
from duetime.cluster.membership import Membership
from duetime.errors import ConfigError

_ETCD = re.compile(r"etcds?:", re.IGNORECASE)


def membership_from_url(url: str, *, cluster: str, clock: Clock) -> Membership:
    """The membership that `MEMBERSHIP_URL` names. `ConfigError`, whose message never repeats
    the URL: it may hold a password."""
    if not _ETCD.match(url):
        raise ConfigError("MEMBERSHIP_URL must begin with etcd:// or etcds://")
    try:
        from duetime.cluster.etcd import EtcdMembership
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"MEMBERSHIP_URL needs the module {error.name}: pip install 'duetime[etcd]'"
        ) from error
    return EtcdMembership(url, cluster=cluster, clock=clock)
