"""What nodes tell each other so that it need not be found out later. None of it must arrive."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from duetime.cluster.membership import Member


class ShardsReleased(Struct, frozen=True, tag="shards_released"):
    """These shards wait for you."""

    shards: list[int]


class NamespacesChanged(Struct, frozen=True, tag="namespaces_changed"):
    """A namespace was created or changed."""


Hint = ShardsReleased | NamespacesChanged


class Peers(Protocol):
    """The connection to other nodes."""

    on_message: Callable[[Struct], None]
    """Who is given the hints that arrive."""

    async def start(self) -> str:
        """Listen; the `host:port` where other nodes reach us. `OSError`."""

    async def tell(self, member: Member, message: Struct) -> None:
        """Send a hint, if that can be done soon. Raises nothing."""

    async def close(self) -> None:
        """Listen no more. Closing twice is fine."""
