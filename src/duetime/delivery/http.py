"""Callbacks over HTTP: what a timer's request looks like."""

import asyncio
import ssl
from functools import lru_cache

import msgspec
from msgspec import Raw, Struct

from duetime import __version__
from duetime.callback import Target, check_headers, destination, header_text, parse_url
from duetime.delivery.client import HttpClient
from duetime.delivery.guard import AddressGuard
from duetime.errors import ConfigError, InvalidInput
from duetime.instants import format_instant
from duetime.model import Timer
from duetime.retry import Answer
from duetime.writes import Attempt

_USER_AGENT = f"duetime/{__version__}".encode()
_CONTENT_TYPE = b"Content-Type: application/json\r\n"
_NULL = Raw(b"null")
_encode = msgspec.json.Encoder().encode


class _V1Body(Struct, gc=False, rename="camel"):
    namespace: str
    timer_id: str
    execute_at: str
    attempt: int
    payload: Raw


class HttpCarrier:
    """Sends a timer's callback as HTTP. Made on the event loop that it works on."""

    def __init__(
        self,
        *,
        guard: AddressGuard,
        tls_verify: bool,
        ca_file: str | None,
        response_bytes_max: int,
    ) -> None:
        self._client = HttpClient(
            guard,
            ssl_context=tls_context(tls_verify=tls_verify, ca_file=ca_file),
            response_bytes_max=response_bytes_max,
        )
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def destination(self, url: str) -> str:
        """The URL's origin: what shares connections, and so what shares one fate."""
        try:
            return destination(url)
        except ValueError:
            return url  # `send` will say what is wrong with it.

    def send(self, attempt: Attempt) -> None:
        """Begin the attempt; the client's answer is the attempt's."""
        timer = attempt.timer
        try:
            target = parse_url(timer.callback_url)
            request = request_of(timer, attempt.number, target)
        except (ValueError, InvalidInput) as error:
            # The rules were others when this timer was accepted.
            answer = Answer(0, b"", f"the callback cannot be sent: {error}")
            self._loop.call_soon(self._refuse, attempt, answer)
        else:
            self._client.send(
                target, request, timer.timeout_s, attempt.answered, stands=attempt.stands
            )

    async def close(self) -> None:
        """Drop everything in flight without an answer."""
        self._closed = True
        await self._client.close()

    def _refuse(self, attempt: Attempt, answer: Answer) -> None:
        if not self._closed:
            attempt.answered(answer)


def tls_context(*, tls_verify: bool, ca_file: str | None) -> ssl.SSLContext:
    """The system's roots, and those of `ca_file` beside them; `ConfigError` if it is no good."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise ConfigError(
                f"CALLBACK_CA_FILE must be a file of PEM certificates, got {ca_file!r}: {reason}"
            ) from None
    if not tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def request_of(timer: Timer, number: int, target: Target) -> bytes:
    """The bytes of attempt `number`, head and body."""
    at = format_instant(timer.scheduled_at)
    if timer.reply == "v1":
        payload = _NULL if timer.payload is None else Raw(timer.payload)
        body = _encode(_V1Body(timer.namespace, timer.id, at, number, payload))
    else:
        body = timer.payload or b""
    return (
        b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%bX-Timer-Id: %b\r\nX-Timer-Attempt: %d\r\n"
        b"X-Timer-Scheduled-At: %b\r\nContent-Length: %d\r\n\r\n%b"
        % (
            timer.method.encode(),
            target.path,
            target.host_header,
            _own_lines(timer.namespace),
            _header_lines(tuple(timer.headers.items())) if timer.headers else _CONTENT_TYPE,
            header_text(timer.id).encode(),
            number,
            at.encode(),
            len(body),
            body,
        )
    )


@lru_cache(maxsize=1_024)
def _own_lines(namespace: str) -> bytes:
    return b"User-Agent: %b\r\nX-Timer-Namespace: %b\r\n" % (
        _USER_AGENT,
        header_text(namespace).encode(),
    )


@lru_cache(maxsize=1_024)
def _header_lines(headers: tuple[tuple[str, str], ...]) -> bytes:
    # Checked here once more: what a database holds must not be able to split a request.
    check_headers(dict(headers))
    own = b"" if any(name.lower() == "content-type" for name, _ in headers) else _CONTENT_TYPE
    return own + "".join(f"{name}: {value}\r\n" for name, value in headers).encode("ascii")
