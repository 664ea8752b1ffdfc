"""What nodes tell each other so that it need not be found out later. None of it must arrive."""

from msgspec import Struct


class ShardsReleased(Struct, frozen=True, tag="shards_released"):
    """These shards wait for you."""

    shards: list[int]


class NamespacesChanged(Struct, frozen=True, tag="namespaces_changed"):
    """A namespace was created or changed."""


Hint = ShardsReleased | NamespacesChanged
