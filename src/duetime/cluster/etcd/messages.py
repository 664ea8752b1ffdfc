"""What etcd's JSON gateway says. Keys and values are base64, long numbers strings: msgspec reads
both as what they are. What we do not ask about is left out."""

from msgspec import Struct, field


class KeyValue(Struct, frozen=True):
    key: bytes
    value: bytes = b""
    mod_revision: int = 0
    lease: int = 0


class Header(Struct, frozen=True):
    revision: int = 0


class Range(Struct, frozen=True):
    kvs: list[KeyValue] = []


class Response(Struct, frozen=True):
    """Of one operation of a transaction."""

    response_range: Range | None = None


class Txn(Struct, frozen=True):
    header: Header
    succeeded: bool = False
    responses: list[Response] = []


class Granted(Struct, frozen=True):
    id: int = field(name="ID")
    ttl_s: int = field(name="TTL")


class Kept(Struct, frozen=True):
    ttl_s: int = field(name="TTL", default=0)
    """0: there is no such lease."""


class Problem(Struct, frozen=True):
    """What went wrong. Older servers call the text `error`, newer ones `message`."""

    error: str = ""
    message: str = ""

    @property
    def text(self) -> str:
        return (self.message or self.error).removeprefix("etcdserver: ")


class KeepAlive(Struct, frozen=True):
    """Of a stream with one answer."""

    result: Kept = Kept()
    error: Problem | None = None


class Token(Struct, frozen=True):
    token: str


class Event(Struct, frozen=True):
    kv: KeyValue
    type: str = "PUT"


class Notification(Struct, frozen=True):
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: int = 0
    """What came before this is forgotten."""
    events: list[Event] = []


class Watched(Struct, frozen=True):
    result: Notification = Notification()
    error: Problem | None = None
