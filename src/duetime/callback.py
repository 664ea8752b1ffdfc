"""What may be called back: the rules for a callback's URL and headers. Pure.

The service refuses by these rules what no attempt could send, and delivery sends by them,
so that what was accepted is exactly what goes out.
"""

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import NamedTuple
from urllib.parse import quote

from duetime.errors import InvalidInput

URL_CHARS_MAX = 2_048
HEADERS_MAX = 64
HEADERS_BYTES_MAX = 8_192

RESERVED_PREFIX = "x-timer-"
"""Receivers trust these headers to be Duetime's own, those of later versions included."""

REFUSED_HEADERS = frozenset(
    {
        # Duetime says for itself who is calling.
        "user-agent",
        # They frame the message or steer the connection: from a user, they split requests.
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_DEFAULT_PORT = {False: 80, True: 443}
_SCHEME = re.compile(r"https?://", re.IGNORECASE | re.ASCII)
# The rest of RFC 3986's characters, and `[` and `]`, which everybody sends as they are.
_PLAIN = re.compile(r"[hH][tT]{2}[pP][sS]?://[^/?#]+(/[!$&-;=?-Z\[\]_a-z~%]*)", re.ASCII)
_PLAIN_CHARS = "!$%&'()*+,-./:;=?@[]_~"
_FORBIDDEN = re.compile(r"[\s\x00-\x20\x7f-\x9f\\\ud800-\udfff]")
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(.*))?")
_HOST = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?", re.ASCII)
_HOST_CHARS_MAX = 253

_PLAIN_TEXT = re.compile(r"[!-$&-~](?:[ -$&-~]*[!-$&-~])?", re.ASCII)

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?", re.ASCII)


class Origin(NamedTuple):
    """Whom a URL reaches. Connections are shared by `name`, "https://example.com:443"."""

    name: str
    tls: bool
    host: str
    port: int
    host_header: bytes


class Target(NamedTuple):
    """Where a request goes. `host` is ASCII, an IPv6 address without its brackets; `path` is
    the request target as it is sent, query included."""

    tls: bool
    host: str
    port: int
    origin: str
    host_header: bytes
    path: bytes

    @property
    def shown(self) -> str:
        """The URL as an error may show it: without its query, which may hold secrets."""
        scheme = "https" if self.tls else "http"
        path = self.path.partition(b"?")[0]
        return f"{scheme}://{self.host_header.decode()}{path.decode()}"


def parse_url(url: str) -> Target:
    """Where a callback's URL leads. ValueError continues "callback_url …"."""
    # 20,000 different paths a second on few origins: one match, one look into the cache.
    match = _PLAIN.fullmatch(url)
    if match is None or len(url) > URL_CHARS_MAX:
        return _parse_any(url)
    name, tls, host, port, host_header = _origin(url[: match.start(1)])
    return Target(tls, host, port, name, host_header, match[1].encode())


def check_url(url: str) -> None:
    """Refuse what `parse_url` refuses, for less."""
    match = _PLAIN.fullmatch(url)
    if match is None or len(url) > URL_CHARS_MAX:
        _parse_any(url)
    else:
        _origin(url[: match.start(1)])


def destination(url: str) -> str:
    """The origin of a URL that `parse_url` accepts, for a fifth of its cost."""
    slash = url.find("/", 8)
    try:
        return _origin(url[:slash]).name if slash > 0 else parse_url(url).origin
    except ValueError:
        return parse_url(url).origin


def _parse_any(url: str) -> Target:
    if len(url) > URL_CHARS_MAX:
        raise ValueError(f"must be at most {URL_CHARS_MAX} characters")
    if _FORBIDDEN.search(url):
        raise ValueError("must not hold whitespace, control characters or backslashes")
    if not _SCHEME.match(url):
        raise ValueError("must be an http or https URL")
    address = url.partition("#")[0]
    rest = address[address.index("://") + 3 :]
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    head = len(address) - len(rest) + len(authority)
    name, tls, host, port, host_header = _origin(address[:head])
    path = quote(address[head:], safe=_PLAIN_CHARS)
    if not path.startswith("/"):
        path = "/" + path
    return Target(tls, host, port, name, host_header, path.encode())


@lru_cache(maxsize=4_096)
def _origin(prefix: str) -> Origin:
    """The origin of `scheme://authority`. Not a cache of refusals: a ValueError is not kept."""
    scheme, _, authority = prefix.partition("://")
    tls = len(scheme) == len("https")
    if _FORBIDDEN.search(prefix):
        raise ValueError("must not hold whitespace, control characters or backslashes")
    if not _SCHEME.match(prefix):
        raise ValueError("must be an http or https URL")
    if "@" in authority:
        raise ValueError(
            "must not hold a user name or password: send an Authorization header instead"
        )
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ValueError("must name a valid host, an IPv6 address in brackets")
    host = _host(match[1])
    port = _DEFAULT_PORT[tls] if match[2] is None else _port(match[2])
    bracketed = f"[{host}]" if ":" in host else host
    shown = bracketed if port == _DEFAULT_PORT[tls] else f"{bracketed}:{port}"
    return Origin(f"{scheme.lower()}://{bracketed}:{port}", tls, host, port, shown.encode())


def _host(text: str) -> str:
    if not text:
        raise ValueError("must name a host")
    if text.startswith("["):
        try:
            address = IPv6Address(text[1:-1])
        except AddressValueError:
            raise ValueError("must name a valid host: not an IPv6 address in brackets") from None
        if address.scope_id is not None:
            raise ValueError("must name a valid host: a zone has no meaning elsewhere")
        mapped = address.ipv4_mapped  # Python 3.13 began to write these as RFC 5952 has it.
        return address.compressed if mapped is None else f"::ffff:{mapped}"
    # Bounded before it is encoded: that takes time by the square of the length.
    if len(text) > _HOST_CHARS_MAX:
        raise ValueError(f"must name a host of at most {_HOST_CHARS_MAX} characters")
    try:
        host = text.lower() if text.isascii() else text.encode("idna").decode().lower()
    except UnicodeError:
        raise ValueError("must name a valid host") from None
    if not _HOST.fullmatch(host) or len(host) > _HOST_CHARS_MAX:
        raise ValueError("must name a valid host")
    return host


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65_535):
        raise ValueError("must have a port between 1 and 65535")
    return int(text)


def check_headers(headers: dict[str, str]) -> None:
    """Refuse what HTTP forbids and what is not the user's to say; `InvalidInput` names it.

    Values are visible ASCII with spaces and tabs between: what lies beyond ASCII has no
    agreed meaning in a header. A user's Content-Type takes the place of `application/json`.
    """
    if len(headers) > HEADERS_MAX:
        raise InvalidInput(f"must be at most {HEADERS_MAX} headers", "callback_headers")
    size = 0
    seen: set[str] = set()
    for name, value in headers.items():
        problem = _header_problem(name, value, seen)
        if problem is not None:
            raise InvalidInput(problem, f"callback_headers/{name}")
        seen.add(name.lower())
        size += len(name) + len(value)
    if size > HEADERS_BYTES_MAX:
        raise InvalidInput(f"must be at most {HEADERS_BYTES_MAX} bytes in all", "callback_headers")


def _header_problem(name: str, value: str, seen: set[str]) -> str | None:
    lower = name.lower()
    if not _TOKEN.fullmatch(name):
        return "must be a valid header name"
    if lower in REFUSED_HEADERS or lower.startswith(RESERVED_PREFIX):
        return "must not be set: Duetime sets it itself"
    if lower in seen:
        return "must not be given twice: header names do not differ by case"
    if not _VALUE.fullmatch(value):
        return "must be visible ASCII characters, with spaces or tabs only between them"
    return None


def header_text(text: str) -> str:
    """A timer's id or namespace as a header can carry it.

    Percent-encoded in UTF-8 is only what must be: controls, what is not ASCII, a space at
    either end, and `%` itself, so that decoding gives back every id.
    """
    if _PLAIN_TEXT.fullmatch(text):
        return text
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(inner) - before
    encoded = "".join(
        char if " " <= char <= "~" and char != "%" else quote(char, safe="") for char in inner
    )
    return "%20" * before + encoded + "%20" * after
