"""etcd's JSON gateway: calls that go to the next endpoint when one fails, and watches.

Errors are the store's own. They name the endpoint, and hold nothing of what was sent.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import aiohttp
import msgspec

from duetime.cluster.etcd.messages import Problem, Token, Watched
from duetime.cluster.etcd.url import Address
from duetime.errors import ConfigError, StoreError, StoreUnavailable

T = TypeVar("T")

ANSWER_BYTES_MAX = 16 * 1024 * 1024  # Some ten thousand nodes.
WATCH_S_MAX = 10.0
"""A watch that hears nothing is begun anew: an endpoint that hangs says nothing for ever."""
TRIES_MIN = 2  # The only endpoint may have closed a connection that we kept.
_WATCH_BUFFER_BYTES = 1024 * 1024
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old")
_ELSEWHERE = (408, 500, 502, 503, 504)
"""Answers of one that has no leader, stops, or waited for the others in vain."""

_encode = msgspec.json.encode


class Gateway:
    """One etcd. `open` it before anything else."""

    def __init__(self, address: Address, *, attempt_s: float) -> None:
        """`attempt_s`: how long one endpoint may take to answer. `ConfigError`."""
        self._address = address
        scheme = "https" if address.tls else "http"
        self._urls = [f"{scheme}://{endpoint}" for endpoint in address.endpoints]
        self._tls = _tls(address)
        self._attempt_s = attempt_s
        self._first = 0  # The endpoint that answered last.
        self._token: str | None = None
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Opening twice is fine."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._tls),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                read_bufsize=_WATCH_BUFFER_BYTES,
            )

    async def close(self) -> None:
        """Closing twice is fine."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, path: str, message: Mapping[str, object], answer: type[T]) -> T:
        """The answer of the first endpoint that has one. It may have been done twice, or done
        although it failed. `StoreUnavailable`, and `StoreError` where asking again is no use."""
        count = len(self._urls)
        tries = max(TRIES_MIN, count)
        for number in range(tries):
            index = self._first % count
            try:
                async with asyncio.timeout(self._attempt_s):
                    body = await self._authorized(index, path, message)
                return msgspec.json.decode(body, type=answer, strict=False)
            except StoreUnavailable:
                if number + 1 == tries:
                    raise
            except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one of these.
                if number + 1 == tries:
                    raise self._unavailable(index, _reason(error)) from error
            except msgspec.MsgspecError as error:
                raise self._strange(index) from error
            if self._first % count == index:  # Not if another call has gone on already.
                self._first = index + 1
        raise AssertionError("unreachable")

    async def watch(self, request: Mapping[str, object], take: Callable[[Watched], bool]) -> bool:
        """Give what is heard to `take`, until it says that this is enough: True. False if
        nothing was heard for a while. `StoreError` if the watch failed."""
        index = self._first % len(self._urls)
        try:
            async with asyncio.timeout(self._attempt_s):
                await self._authenticate(index)
            response = await self._post(
                index,
                "/v3/watch",
                {"create_request": request},
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._attempt_s, sock_read=WATCH_S_MAX
                ),
            )
            async with response:
                if response.status != 200:
                    raise self._problem(index, response.status, await _read(response))
                async for line in response.content:
                    heard = msgspec.json.decode(line, type=Watched, strict=False)
                    if heard.error is not None:
                        self._token = None  # It may be that.
                        raise self._unavailable(index, heard.error.text)
                    if heard.result.canceled and not heard.result.compact_revision:
                        raise self._unavailable(index, heard.result.cancel_reason)
                    if take(heard):
                        return True
        except TimeoutError:
            return False
        except (aiohttp.ClientError, OSError) as error:
            raise self._unavailable(index, _reason(error)) from error
        except (msgspec.MsgspecError, ValueError) as error:  # The latter of lines without end.
            raise self._strange(index) from error
        raise self._unavailable(index, "it ended the watch")

    async def _authorized(self, index: int, path: str, message: Mapping[str, object]) -> bytes:
        """The answer; where our token has become invalid, asked again with a new one."""
        await self._authenticate(index)
        status, body = await self._answer(index, path, message)
        if status != 200 and _is_stale(body):
            self._token = None
            await self._authenticate(index)
            status, body = await self._answer(index, path, message)
        if status != 200:
            raise self._problem(index, status, body)
        return body

    async def _authenticate(self, index: int) -> None:
        if self._address.user is None or self._token is not None:
            return
        message = {"name": self._address.user, "password": self._address.password}
        status, body = await self._answer(index, "/v3/auth/authenticate", message)
        if status != 200:
            raise self._problem(index, status, body)
        self._token = msgspec.json.decode(body, type=Token).token

    async def _answer(
        self, index: int, path: str, message: Mapping[str, object]
    ) -> tuple[int, bytes]:
        async with await self._post(index, path, message) as response:
            return response.status, await _read(response)

    async def _post(
        self, index: int, path: str, message: Mapping[str, object], **options: Any
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise StoreUnavailable("etcd: the connection is closed")
        # Whoever is cut off from the other members has no leader: it must not keep us waiting.
        headers = {"Grpc-Metadata-hasleader": "true"}
        if self._token is not None:
            headers["Authorization"] = self._token
        return await self._session.post(
            self._urls[index] + path,
            data=_encode(message),
            headers=headers,
            allow_redirects=False,
            **options,
        )

    def _problem(self, index: int, status: int, body: bytes) -> StoreError:
        try:
            text = msgspec.json.decode(body, type=Problem).text
        except msgspec.MsgspecError:
            text = ""
        if not text:
            return StoreError(f"{self._name(index)}: it answers {status}: no etcd 3.4 or newer")
        kind = StoreUnavailable if status in _ELSEWHERE else StoreError
        return kind(f"{self._name(index)}: {text}")

    def _unavailable(self, index: int, reason: str) -> StoreUnavailable:
        return StoreUnavailable(f"{self._name(index)}: {reason}")

    def _strange(self, index: int) -> StoreError:
        return StoreError(f"{self._name(index)}: its answer cannot be read")

    def _name(self, index: int) -> str:
        return f"etcd at {self._address.endpoints[index]}"


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise StoreError(f"etcd: an answer of more than {ANSWER_BYTES_MAX} bytes")
    return bytes(body)


def _is_stale(body: bytes) -> bool:
    return any(words.encode() in body for words in _STALE_TOKEN)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {error.certificate_error}"
    if isinstance(error, ssl.SSLError | aiohttp.ClientSSLError):
        return "TLS failed"
    if isinstance(error, OSError):
        return f"it cannot be reached: {error.strerror or error}"
    return f"the connection was lost ({type(error).__name__})"


def _tls(address: Address) -> ssl.SSLContext | bool:
    if not address.tls:
        return True  # No URL of ours is https then.
    try:
        context = ssl.create_default_context(cafile=address.ca_file)
        if address.cert_file is not None:
            context.load_cert_chain(address.cert_file, address.key_file)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            "MEMBERSHIP_URL must have PEM files as sslrootcert, sslcert and sslkey:"
            f" {error.strerror or error}"
        ) from error
    return context
