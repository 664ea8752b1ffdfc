"""/openapi.json, and /docs: one page of our own that renders it, offline and without a build."""

import base64
import re
from collections.abc import Awaitable, Callable
from hashlib import sha256
from importlib.resources import files

from duetime.http.codec import Answer, encode
from duetime.http.openapi import document
from duetime.http.problems import Headers
from duetime.http.routes import Request, Route, Surface

_HTML = b"text/html; charset=utf-8"


def routes(v1: Surface, rest: Surface) -> tuple[Route, ...]:
    """Both documents about `v1` and `rest`."""
    described = encode(document(v1.routes, rest.routes))
    page = files("duetime.http").joinpath("docs.html").read_bytes()
    policy = _policy(page)
    shown = _answering(Answer(200, described)), _answering(Answer(200, page, policy, _HTML))
    # The same page asks for the key: a browser cannot send it along with an address.
    asking = _answering(Answer(401, page, policy, _HTML))
    return tuple(
        Route(method="GET", path=path, handle=handle, summary=summary, keyless=keyless)
        for path, handle, summary, keyless in (
            ("/openapi.json", shown[0], "This document", None),
            ("/docs", shown[1], "This document as a page", asking),
        )
    )


def _answering(answer: Answer) -> Callable[[Request], Awaitable[Answer]]:
    async def handle(request: Request) -> Answer:
        return answer

    return handle


def _policy(page: bytes) -> Headers:
    """Nothing runs on the page but its own script and style, and it calls only us."""

    def hashes(tag: bytes) -> str:
        found = re.findall(rb"<%s>(.*?)</%s>" % (tag, tag), page, re.DOTALL)
        return " ".join(
            f"'sha256-{base64.b64encode(sha256(text).digest()).decode()}'" for text in found
        )

    policy = (
        f"default-src 'none'; script-src {hashes(b'script')}; style-src {hashes(b'style')};"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )
    return (
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    )
