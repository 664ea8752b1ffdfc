"""Whether this node belongs into the cluster that its settings lead to."""

import msgspec

from duetime.errors import OtherShards, StoreUnavailable, WrongCluster
from duetime.model import DEFAULT_NAMESPACE
from duetime.namespaces import Namespaces
from duetime.store import Store

_KIND = "cluster"
_NAME = "identity"


class _Identity(msgspec.Struct, frozen=True):
    name: str
    founder: str = ""


async def check_cluster(store: Store, name: str, *, owner: str) -> str:
    """`WrongCluster` unless the database is this cluster's, or nobody's yet: then it becomes so.

    Answered by what `owner` was of the node that made it so: no other database has that.
    """
    body = msgspec.json.encode(_Identity(name, owner))
    for _ in range(2):
        documents = await store.documents(_KIND)
        if documents:
            found = msgspec.json.decode(documents[0].body, type=_Identity)
            if found.name != name:
                raise WrongCluster(found.name, name)
            return found.founder
        if await store.write_document(_KIND, _NAME, body, expected_version=0):
            return owner
    raise StoreUnavailable("the cluster's name can be neither read nor written")


def check_num_shards(namespaces: Namespaces, num_shards: int) -> None:
    """`OtherShards` if we would have created the default namespace otherwise."""
    default = namespaces.get(DEFAULT_NAMESPACE)
    if default is not None and default.num_shards != num_shards:
        raise OtherShards(default.num_shards, num_shards)
