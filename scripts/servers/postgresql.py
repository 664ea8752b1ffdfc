"""PostgreSQL, the one that Debian packages."""

import asyncio
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import asyncpg

from scripts.servers.base import CannotBeHad, Server, account, free_port, run, spawn, wait_until

USER = "duetime"


class Postgresql(Server):
    """`initdb` and `postgres` refuse to run as root; as root, the account `postgres` runs them."""

    name = scheme = "postgresql"
    quick = True
    hasty_settings: ClassVar[Mapping[str, str]] = {"fsync": "off", "full_page_writes": "off"}

    def fetch(self) -> str:
        return run([self._programs() / "postgres", "--version"]).strip()

    def start(self) -> None:
        programs = self._programs()
        user = account("postgres")
        if not self._data.exists():
            self._initialize()
        command: list[str | Path] = [programs / "postgres", "-D", self._data]
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "100",
            **self.settings,
        }
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        log = self.folder / "log"
        self._status.unlink(missing_ok=True)  # Of a crash, it would say that all is well.
        self.process = spawn(command, log=log, user=user)
        wait_until(self._is_ready, self.process, log)

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def new_url(self, name: str) -> str:
        asyncio.run(self._create(name))
        return self.url_of(name)

    def url_of(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self._port}/{database}"

    @property
    def pid(self) -> int | None:
        try:
            return int(self._status.read_text().splitlines()[0])
        except (OSError, IndexError):
            return None

    async def _create(self, database: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(f"CREATE DATABASE {database}")
        finally:
            await connection.close()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _status(self) -> Path:
        return self._data / "postmaster.pid"

    @property
    def _port(self) -> int:
        return int((self.folder / "port").read_text())

    @property
    def _password(self) -> str:
        return (self.folder / "password").read_text()

    def _is_ready(self) -> bool:
        try:
            return self._status.read_text().splitlines()[-1].strip() == "ready"
        except (OSError, IndexError):
            return False

    def _initialize(self) -> None:
        user = account("postgres")
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        password = self.folder / "password"
        password.write_text(secrets.token_hex(16))
        (self.folder / "port").write_text(str(free_port()))
        if user is not None:
            for path in (self.folder, password):
                os.chown(path, user.pw_uid, user.pw_gid)
        run(
            [
                self._programs() / "initdb",
                f"--pgdata={self._data}",
                f"--username={USER}",
                f"--pwfile={password}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ],
            user=user,
        )

    def _programs(self) -> Path:
        """The folder of `postgres` and `initdb`; of several versions the newest."""
        found = _packaged()
        if not found and os.getuid() == 0:
            run(["apt-get", "-qq", "update"])
            run(["apt-get", "-qq", "-y", "--no-install-recommends", "install", "postgresql"])
            found = _packaged()
        if not found:
            raise CannotBeHad("install the Debian package postgresql")
        return max(found, key=lambda path: int(path.parent.name))


def _packaged() -> list[Path]:
    return [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
