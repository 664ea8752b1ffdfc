"""The namespaces: documents in the store, held in memory by each node."""

import asyncio
from collections.abc import Callable

import msgspec

from duetime.errors import NamespaceExists, StoreError
from duetime.model import Namespace
from duetime.store import Store

KIND = "namespace"
_decode = msgspec.json.Decoder(Namespace).decode
_encode = msgspec.json.Encoder().encode


class Namespaces:
    """All namespaces by name, as of the last `load` or our own writes since."""

    def __init__(self, store: Store) -> None:
        self.on_change: Callable[[], None] = _nobody_listens
        """Called when one was created or changed by us."""
        self._store = store
        self._known: dict[str, tuple[Namespace, int]] = {}
        # What was read before a write of ours must not be taken in after it.
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        """Read them all from the store."""
        async with self._turn:
            await self._load()

    async def _load(self) -> None:
        documents = await self._store.documents(KIND)
        self._known = {
            document.name: (_decode(document.body), document.version) for document in documents
        }

    @property
    def revision(self) -> int:
        """Goes up with each change of any of them."""
        return sum(version for _, version in self._known.values())

    def get(self, name: str) -> Namespace | None:
        entry = self._known.get(name)
        return None if entry is None else entry[0]

    def all(self) -> list[Namespace]:
        """By name."""
        return [self._known[name][0] for name in sorted(self._known)]

    def num_shards_max(self) -> int:
        """Shard numbers are shared by all namespaces: this many are in use."""
        return max((namespace.num_shards for namespace, _ in self._known.values()), default=0)

    async def create(self, namespace: Namespace) -> None:
        """`NamespaceExists` if the name is taken."""
        async with self._turn:
            written = await self._store.write_document(
                KIND, namespace.name, _encode(namespace), expected_version=0
            )
            if not written:
                await self._load()
                raise NamespaceExists(namespace.name)
            self._known[namespace.name] = (namespace, 1)
        self.on_change()

    async def replace(self, namespace: Namespace) -> bool:
        """Write a changed one; False if somebody else changed it since it was read here."""
        async with self._turn:
            _, version = self._known[namespace.name]
            written = await self._store.write_document(
                KIND, namespace.name, _encode(namespace), expected_version=version
            )
            if written:
                self._known[namespace.name] = (namespace, version + 1)
            else:
                await self._load()
                if namespace.name not in self._known:
                    raise StoreError(f"namespace {namespace.name!r} was deleted")
        if written:
            self.on_change()
        return written


def _nobody_listens() -> None:
    pass
