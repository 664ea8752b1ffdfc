"""MariaDB, the one that Debian packages."""

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import asyncmy
from asyncmy.errors import MySQLError

from scripts.servers.base import (
    CannotBeHad,
    Server,
    account,
    alive,
    free_port,
    run,
    spawn,
    wait_until,
)

USER = "duetime"
ADMINISTRATION = "mysql"  # The database that is always there.
_CONNECT_S_MAX = 2
_ANSWER_S_MAX = 30


class Mariadb(Server):
    """Also what others of its family have in common with it."""

    name = scheme = "mariadb"
    quick = True
    # Nothing that was handed to the kernel is lost with the process.
    hasty_settings: ClassVar[Mapping[str, str]] = {"innodb-flush-log-at-trx-commit": "2"}

    def fetch(self) -> str:
        return run([_program("mariadbd"), "--version"]).partition("Ver ")[2].strip()

    def start(self) -> None:
        user = account("mysql")
        if not self._data.exists():
            self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            self._temporary.mkdir()
            (self.folder / "password").write_text(secrets.token_hex(16))
            (self.folder / "port").write_text(str(free_port()))
            (self.folder / "init.sql").write_text(
                f"CREATE USER IF NOT EXISTS {USER} IDENTIFIED BY '{self._password}';\n"
                f"GRANT ALL ON *.* TO {USER} WITH GRANT OPTION;\n"
            )
            for path in (self.folder, *self.folder.iterdir()):
                if user is not None:
                    os.chown(path, user.pw_uid, user.pw_gid)
            run([*self._initialize(), f"--datadir={self._data}"], user=user)
        settings = {
            "datadir": str(self._data),
            "socket": str(self.folder / "socket"),
            "pid-file": str(self._pid_file),
            "port": str(self._port),
            "bind-address": "127.0.0.1",
            # One of its own: where it starts, it deletes the temporary tables of others.
            "tmpdir": str(self._temporary),
            "init-file": str(self.folder / "init.sql"),
            "innodb-buffer-pool-size": "64M",
            **self.settings,
        }
        log = self.folder / "log"
        self._pid_file.unlink(missing_ok=True)  # Of a crash.
        command = [*self._program(), *(f"--{name}={value}" for name, value in settings.items())]
        self.process = spawn(command, log=log, user=user)
        wait_until(self._is_ready, self.process, log)

    @property
    def url(self) -> str:
        return self._url_of(ADMINISTRATION)

    def new_url(self, name: str) -> str:
        ask(self.url, f"CREATE DATABASE {name}")
        return self._url_of(name)

    @property
    def pid(self) -> int | None:
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None
        return pid if alive(pid) else None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """It pays no heed to SIGINT."""
        super().stop(how)

    def _program(self) -> Sequence[str | Path]:
        """What runs the server."""
        return [_program("mariadbd"), "--no-defaults"]

    def _initialize(self) -> Sequence[str | Path]:
        """What makes a data folder."""
        return [
            _program("mariadb-install-db"),
            "--no-defaults",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
        ]

    def _url_of(self, database: str) -> str:
        return f"{self.scheme}://{USER}:{self._password}@127.0.0.1:{self._port}/{database}"

    def _is_ready(self) -> bool:
        try:
            ask(self.url, "SELECT 1")
        except (MySQLError, OSError):
            return False
        return True

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _temporary(self) -> Path:
        return self.folder / "temporary"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    @property
    def _port(self) -> int:
        return int((self.folder / "port").read_text())

    @property
    def _password(self) -> str:
        return (self.folder / "password").read_text()


def ask(url: str, statement: str) -> str:
    """The first thing that it answers, if anything."""
    parts = urlsplit(url)

    async def answer() -> str:
        connection = await asyncmy.connect(
            host=parts.hostname,
            port=parts.port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            connect_timeout=_CONNECT_S_MAX,
            read_timeout=_ANSWER_S_MAX,
        )
        try:
            async with connection.cursor() as cursor:
                await cursor.execute(statement)
                row = await cursor.fetchone()
                return str(row[0]) if row else ""
        finally:
            await connection.ensure_closed()

    return asyncio.run(answer())


def _program(name: str) -> Path:
    found = _installed(name)
    if found is None and os.getuid() == 0:
        run(["apt-get", "-qq", "update"])
        run(["apt-get", "-qq", "-y", "--no-install-recommends", "install", "mariadb-server"])
        found = _installed(name)
    if found is None:
        raise CannotBeHad("install the Debian package mariadb-server")
    return found


def _installed(name: str) -> Path | None:
    paths = [Path(folder) / name for folder in ("/usr/sbin", "/usr/bin")]
    return next((path for path in paths if path.exists()), None)
