"""The timers of the workloads, as the bytes of the requests that create them."""

import itertools
from collections.abc import Iterator, Mapping

from bench.client import post
from duetime.instants import format_instant

Due = Mapping[int, int]
"""Timer number -> due instant in ms."""

BATCH = 1_000
PAYLOAD = '{"data":"' + "x" * 189 + '"}'  # 200 bytes


class Maker:
    """Writes create requests for one server, their callbacks to one receiver."""

    def __init__(self, *, key: str, receiver_port: int) -> None:
        self._key = key
        self._receiver_port = receiver_port

    def singles(self, timers: Due) -> Iterator[bytes]:
        """A request for each."""
        for number, due_ms in timers.items():
            body = self._timer(number, due_ms).encode()
            yield post("/api/v1/timers/create", body, self._key)

    def batches(self, timers: Due) -> Iterator[bytes]:
        """A request for each `BATCH` of them."""
        items = iter(timers.items())
        while part := list(itertools.islice(items, BATCH)):
            body = f'{{"timers":[{",".join(itertools.starmap(self._timer, part))}]}}'
            yield post("/api/v1/timers/batch", body.encode(), self._key)

    def _timer(self, number: int, due_ms: int) -> str:
        return (
            f'{{"namespace":"default","id":"{number}","executeAt":"{format_instant(due_ms)}",'
            f'"callbackUrl":"http://127.0.0.1:{self._receiver_port}/f/{number}",'
            f'"payload":{PAYLOAD}}}'
        )
