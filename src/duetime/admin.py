"""`duetime cluster`: asks a running server, as any client could, and says it to people."""

import json
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from duetime.clock import SystemClock
from duetime.config import Config
from duetime.errors import DuetimeError

TIMEOUT_S = 40.0
POLL_S = 0.25
_COLUMNS = (
    ("node", "name"),
    ("address", "address"),
    ("version", "version"),
    ("started", "startedAt"),
    ("shards", "shards"),
    ("in flight", "inFlight"),
    ("backlog", "backlog"),
    ("skew ms", "skewMs"),
    ("", "draining"),
)
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not where we listen.


class NotDone(DuetimeError):
    """The server refused, or could not be reached."""


class Admin:
    """The server at `url`."""

    def __init__(self, url: str, api_key: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise NotDone(f"{url!r} is no http or https URL")
        self._url = url.rstrip("/")
        self._api_key = api_key
        self._open = build_opener(ProxyHandler({})).open  # Never by way of a proxy: it is ours.

    def cluster(self) -> Any:
        """What `GET /api/v1/cluster` answers. `NotDone`."""
        return self._ask("GET", "/api/v1/cluster")

    def drain(self, node: str, *, undo: bool) -> None:
        """Have the node begin. `NotDone`."""
        self._ask("POST", "/api/v1/cluster/drain", {"node": node, "undo": undo})

    def drained(self, node: str, *, seconds: float, tell: Callable[[int], None]) -> None:
        """Wait until the node owns no shard any more, or is gone. `tell` hears how many are
        left. `NotDone`."""
        clock = SystemClock()
        until = clock.monotonic() + seconds
        told = None
        while left := _shards_of(node, self.cluster()):
            if left != told:
                tell(left)
                told = left
            if clock.monotonic() >= until:
                raise NotDone(f"node {node!r} still owns {left} shards after {seconds:g} s")
            time.sleep(POLL_S)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"X-API-Key": self._api_key}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = Request(self._url + path, data, headers, method=method)  # noqa: S310 - theirs.
        try:
            with self._open(request, timeout=TIMEOUT_S) as response:
                return json.load(response)
        except HTTPError as error:
            raise NotDone(_said(error)) from error
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise NotDone(f"{self._url} cannot be asked: {reason}") from error
        except ValueError as error:
            raise NotDone(f"{self._url} does not answer as Duetime would") from error


def default_url(config: Config) -> str:
    """Where a server with these settings is reached from its own machine."""
    host = _WILDCARDS.get(config.host, config.host)
    return f"http://[{host}]:{config.port}" if ":" in host else f"http://{host}:{config.port}"


def table(cluster: Any) -> str:
    """For people: a line for each node, and one that sums up."""
    rows = [[title for title, _ in _COLUMNS]]
    for node in cluster["nodes"]:
        shown = {**node, "draining": "draining" if node["draining"] else ""}
        rows.append(["-" if shown[key] is None else str(shown[key]) for _, key in _COLUMNS])
    shards = cluster["shards"]
    nobodys = sum(shard["owner"] is None for shard in shards)
    summary = f"{len(cluster['nodes'])} nodes, {len(shards)} shards"
    summary += f", {nobodys} of them nobody's" if nobodys else ""
    return "\n".join([*aligned(rows), "", f"{summary}, {cluster['namespaces']} namespaces"])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, their columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _shards_of(node: str, cluster: Any) -> int:
    return sum(shard["owner"] == node for shard in cluster["shards"])


def _said(error: HTTPError) -> str:
    try:
        answer = json.load(error)
        return f"{answer['message']} ({answer['error']})"
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code}"
