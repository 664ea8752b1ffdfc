"""TiDB, where DUETIME_TEST_TIDB_URL names one."""

from urllib.parse import urlsplit

from scripts.servers.mariadb import ask
from scripts.servers.named import Named


class Tidb(Named):
    name = scheme = "tidb"

    def fetch(self) -> str:
        return ask(self.url, "SELECT version()")

    def make(self, name: str) -> str:
        ask(self.url, f"CREATE DATABASE {name}")
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def drop(self, name: str) -> None:
        ask(self.url, f"DROP DATABASE {name}")
