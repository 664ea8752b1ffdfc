"""The same bytes from a server mean the same to this client and to aiohttp's."""

import aiohttp
import pytest

from duetime.retry import Answer
from tests.delivery.asking import Asking
from tests.delivery.peers import answering, serving

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.0 200 OK\r\n\r\nto the end",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end",
        b"HTTP/1.1 200 OK\r\n\r\n",
        CHUNKED + b"2\r\nok\r\n0\r\n\r\n",
        CHUNKED + b"1;x=y\r\no\r\n1\r\nk\r\n0\r\nA: b\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        CUT_OFF,
        CHUNKED + b"9\r\nok",
        CHUNKED + b"2\r\nok\r\n",
        CHUNKED + b"zz\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"",
    ],
)
async def test_an_answer_means_the_same_to_aiohttp(asking: Asking, raw: bytes) -> None:
    async with serving(answering(raw)) as peer:
        ours = await asking.ask(peer.url(), b"{}")
        theirs = await aiohttps_answer(peer.url())
        assert (ours.status, ours.body) == (theirs.status, theirs.body)


async def aiohttps_answer(url: str) -> Answer:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.post(url, data=b"{}", allow_redirects=False) as response:
                return Answer(response.status, await response.read())
        except aiohttp.ClientError as error:
            return Answer(0, b"", str(error))
