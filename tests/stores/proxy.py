"""A way to a server that can be made to break."""

import asyncio
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes on between its clients and the server of a URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.target = urlsplit(url).port
        """The server's port."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._passes = asyncio.Event()
        self._passes.set()
        self.swallows_answers = False
        """Whether what the server says is lost on the way."""
        self.refuses = False
        """Whether further connections are broken at once."""

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return self._url.replace(f":{self.target}/", f":{self.port}/")

    def cut(self) -> None:
        """Every connection there is now breaks."""
        for client in self._clients:
            client.transport.abort()

    def hold(self) -> None:
        """Nothing comes through any more, and nobody is told, as when a cable is pulled."""
        self._passes.clear()

    def let_go(self) -> None:
        """What was held comes through after all, also what its sender has given up since."""
        self._passes.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._clients.add(writer)
        for task in (
            asyncio.create_task(self._pass_on(reader, to_server, answers=False)),
            asyncio.create_task(self._pass_on(from_server, writer, answers=True)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        try:
            while data := await source.read(65_536):
                await self._passes.wait()
                if not (answers and self.swallows_answers):
                    target.write(data)
                    await target.drain()
        except ConnectionError:
            pass
        finally:
            self._clients.discard(target)
            target.close()
