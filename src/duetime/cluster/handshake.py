"""Who is at the other end: both sides prove that they know the cluster's secret.

    caller                                listener
      Hello(me, whom I mean, nonce)   ->
                                      <-  Challenge(nonce)
      Proof(HMAC)                     ->
                                      <-  Proof(HMAC)

The secret never travels. Each HMAC is over everything both have said and over which side says
it, so that none can be used twice, elsewhere, or be sent back to whoever made it; the caller
proves itself first, so that a stranger gets nothing to guess at. A node is meant by its name
and its boot: whoever got the address of one that is gone is not mistaken for it.
"""

import hmac
from hashlib import sha256

import msgspec
from msgspec import Struct

PROTOCOL = 1
NONCE_BYTES = 32
GREETING_BYTES_MAX = 4_096


def shared_secret(secret: str | None, *, api_key: str) -> bytes:
    """What all nodes of a cluster know: the secret they were given, or one made of the key."""
    return hmac.digest((secret or api_key).encode(), b"duetime nodes", sha256)


class Refused(Exception):
    """The other side is not who it should be, or does not take us for who we are."""


class Node(Struct, frozen=True, array_like=True):
    """One life of one node."""

    name: str
    boot: str


class Hello(Struct, frozen=True, tag="hello"):
    protocol: int
    caller: Node
    listener: Node
    nonce: bytes


class Challenge(Struct, frozen=True, tag="challenge"):
    nonce: bytes


class Proof(Struct, frozen=True, tag="proof"):
    mac: bytes


class No(Struct, frozen=True, tag="no"):
    """The connection ends here."""

    reason: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Hello | Challenge | Proof | No).decode


class Caller:
    """The side that has connected. `take` what comes, send what it answers, until `done`."""

    def __init__(self, secret: bytes, *, me: Node, meant: Node, nonce: bytes) -> None:
        self._secret = secret
        self._hello = Hello(PROTOCOL, me, meant, nonce)
        self._challenge: Challenge | None = None
        self.done = False

    def begin(self) -> bytes:
        return _encode(self._hello)

    def take(self, body: bytes) -> bytes | None:
        message = _read(body)
        if isinstance(message, No):
            raise Refused(message.reason)
        if self._challenge is None:
            if not isinstance(message, Challenge):
                raise Refused("it answered with something else than a challenge")
            self._challenge = message
            return _encode(Proof(_mac(self._secret, b"caller", self._hello, message)))
        mac = _mac(self._secret, b"listener", self._hello, self._challenge)
        if not (isinstance(message, Proof) and hmac.compare_digest(message.mac, mac)):
            raise Refused("it has another CLUSTER_SECRET")
        self.done = True
        return None


class Listener:
    """The side that was called."""

    def __init__(self, secret: bytes, *, me: Node, nonce: bytes) -> None:
        self._secret = secret
        self._me = me
        self._challenge = Challenge(nonce)
        self._hello: Hello | None = None
        self.done = False

    @property
    def caller(self) -> str:
        """The caller's name, as it says."""
        return "" if self._hello is None else self._hello.caller.name

    def take(self, body: bytes) -> bytes | None:
        message = _read(body)
        if self._hello is None:
            if not isinstance(message, Hello) or len(message.nonce) != NONCE_BYTES:
                raise Refused("it does not speak our protocol")
            if message.protocol != PROTOCOL:
                raise Refused(f"it speaks version {message.protocol}, this node {PROTOCOL}")
            if message.listener != self._me:
                raise Refused("it means another node than this one")
            self._hello = message
            return _encode(self._challenge)
        mac = _mac(self._secret, b"caller", self._hello, self._challenge)
        if not (isinstance(message, Proof) and hmac.compare_digest(message.mac, mac)):
            raise Refused("it has another CLUSTER_SECRET")
        self.done = True
        return _encode(Proof(_mac(self._secret, b"listener", self._hello, self._challenge)))


def refusal(refused: Refused) -> bytes:
    """What to tell the other side before it is left."""
    return _encode(No(str(refused)))


def _read(body: bytes) -> Hello | Challenge | Proof | No:
    try:
        message: Hello | Challenge | Proof | No = _decode(body)
    except (msgspec.DecodeError, RecursionError, OverflowError):
        raise Refused("it does not speak our protocol") from None
    return message


def _mac(secret: bytes, side: bytes, hello: Hello, challenge: Challenge) -> bytes:
    return hmac.digest(secret, _encode([side, hello, challenge]), sha256)
