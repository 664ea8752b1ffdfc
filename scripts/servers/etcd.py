"""etcd, the one that Debian packages. No database for timers: where nodes meet."""

import os
import ssl
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from shutil import which

from scripts.servers.base import (
    CannotBeHad,
    Daemon,
    cache,
    free_port,
    run,
    spawn,
    wait_until,
)

PACKAGE = "etcd-server"
HEALTH_S_MAX = 2.0


class Etcd(Daemon):
    """One member; of a cluster of its own unless `initial-cluster` says otherwise."""

    name = "etcd"
    variable = "MEMBERSHIP_URL"
    quick = True

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        folder.mkdir(parents=True, exist_ok=True)
        ports = folder / "ports"
        if not ports.exists():
            ports.write_text(f"{free_port()} {free_port()}")
        self.port, self.peer_port = map(int, ports.read_text().split())

    def fetch(self) -> str:
        return run([_program(), "--version"]).splitlines()[0]

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start it without waiting: of a cluster, none is ready before most are."""
        tls = "https" if "cert-file" in self.settings else "http"
        client, peer = f"{tls}://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        settings = {
            "name": self.folder.name,
            "data-dir": str(self.folder / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": self.initial_cluster,
            "logger": "zap",
            **self.settings,
        }
        command: list[str | Path] = [
            _program(),
            *(f"--{name}={value}" for name, value in settings.items()),
        ]
        self.process = spawn(command, log=self._log)
        (self.folder / "pid").write_text(str(self.process.pid))

    def await_ready(self) -> None:
        assert self.process is not None
        wait_until(self._is_healthy, self.process, self._log)

    @property
    def initial_cluster(self) -> str:
        return f"{self.folder.name}=http://127.0.0.1:{self.peer_port}"

    @property
    def url(self) -> str:
        scheme = "etcds" if "cert-file" in self.settings else "etcd"
        return f"{scheme}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        try:
            pid = int((self.folder / "pid").read_text())
            # After a restart of the machine the number may be another process's.
            mine = str(self.folder / "data").encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if mine else None

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _is_healthy(self) -> bool:
        scheme = "https" if "cert-file" in self.settings else "http"
        anyone = ssl.create_default_context()
        anyone.check_hostname = False
        anyone.verify_mode = ssl.CERT_NONE
        try:
            with urllib.request.urlopen(
                f"{scheme}://127.0.0.1:{self.port}/health", timeout=HEALTH_S_MAX, context=anyone
            ) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False


def trio(folder: Path) -> list[Etcd]:
    """Three members of one cluster, running."""
    members = [Etcd(folder / name) for name in ("one", "two", "three")]
    together = ",".join(member.initial_cluster for member in members)
    for member in members:
        member.settings["initial-cluster"] = together
        member.launch()
    for member in members:
        member.await_ready()
    return members


def _program() -> Path:
    """Where the machine has none, the package is unpacked: installed, it would start one."""
    installed = which("etcd")
    if installed is not None:
        return Path(installed)
    folder = cache() / PACKAGE
    program = folder / "usr" / "bin" / "etcd"
    if not program.exists():
        folder.mkdir(exist_ok=True)
        try:
            if os.getuid() == 0:
                run(["apt-get", "-qq", "update"])
            run(["sh", "-c", f'cd "$0" && apt-get -qq download {PACKAGE}', folder])
            (package,) = folder.glob("*.deb")
            run(["dpkg-deb", "-x", package, folder])
        except (CannotBeHad, OSError, ValueError) as error:
            raise CannotBeHad(f"install the Debian package {PACKAGE} ({error})") from error
    return program
