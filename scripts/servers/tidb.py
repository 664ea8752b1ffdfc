"""TiDB, where somebody names one that runs: there is no package of it.

DUETIME_TEST_TIDB_URL=tidb://user:password@host:4000/test make test-all
"""

import os
from urllib.parse import urlsplit

from scripts.servers.base import CannotBeHad, Server
from scripts.servers.mariadb import ask

VARIABLE = "DUETIME_TEST_TIDB_URL"


class Tidb(Server):
    """Neither started nor stopped by us. What `new_url` makes is dropped in the end."""

    name = scheme = "tidb"
    proven = ours = False

    def fetch(self) -> str:
        return ask(self.url, "SELECT version()")

    def start(self) -> None:
        self._made: list[str] = []

    @property
    def url(self) -> str:
        if VARIABLE not in os.environ:
            raise CannotBeHad(f"no package has it, and {VARIABLE} names none that runs")
        return os.environ[VARIABLE]

    def new_url(self, name: str) -> str:
        ask(self.url, f"CREATE DATABASE {name}")
        self._made.append(name)
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    @property
    def pid(self) -> int | None:
        return None

    def delete(self) -> None:
        while self._made:
            ask(self.url, f"DROP DATABASE {self._made.pop()}")
