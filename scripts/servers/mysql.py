"""MySQL, from Debian's unstable packages, unpacked beside the system.

Beside it, because they would replace the system's own C library: MySQL runs with the one that
it was packaged with. Unstable moves on; what was downloaded once is kept, and `fetch` names
its version.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from scripts.servers.base import CannotBeHad, cache, run, shared_folder
from scripts.servers.mariadb import Mariadb

PACKAGES = ("mysql-server-core", "mysql-client-core")
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


class Mysql(Mariadb):
    name = scheme = "mysql"
    hasty_settings: ClassVar[Mapping[str, str]] = {**Mariadb.hasty_settings, "sync-binlog": "0"}

    def fetch(self) -> str:
        said = run([*_program(), "--version"])
        return said.partition("Ver ")[2].strip()

    def _program(self) -> Sequence[str | Path]:
        return [*_program(), "--no-defaults", *_places(), "--mysqlx=OFF"]

    def _initialize(self) -> Sequence[str | Path]:
        return [*_program(), "--no-defaults", *_places(), "--initialize-insecure"]


def _program() -> list[str | Path]:
    libraries = _unpacked() / _LIBRARIES
    loader = libraries / "ld-linux-x86-64.so.2"
    return [loader, "--library-path", libraries, _unpacked() / "usr/sbin/mysqld"]


def _places() -> list[str]:
    usr = _unpacked() / "usr"
    return [
        f"--basedir={usr}",
        f"--lc-messages-dir={usr}/share/mysql",
        f"--character-sets-dir={usr}/share/mysql/charsets",
        f"--plugin-dir={usr}/lib/mysql/plugin",
        "--secure-file-priv=",
    ]


def _unpacked() -> Path:
    folder = shared_folder() / "mysql-unstable"
    if not folder.exists():
        packages = _downloaded()
        new = folder.with_name(f"{folder.name}-{os.getpid()}")
        for package in packages:
            run(["dpkg-deb", "-x", package, new])
        try:
            new.rename(folder)
        except OSError as error:
            raise CannotBeHad(f"{folder} cannot be made: {error.strerror}") from error
    return folder


def _downloaded() -> list[Path]:
    """All packages that it needs, its C library included: as if nothing were installed."""
    folder = cache() / "mysql-unstable"
    if not folder.exists():
        if shutil.which("apt-get") is None or not _KEYRING.exists():
            raise CannotBeHad("it comes from Debian's packages, and this is no Debian")
        new = folder.with_name(f"{folder.name}-{os.getpid()}")
        _download(new)
        new.rename(folder)
    return sorted(folder.glob("cache/archives/*.deb"))


def _download(folder: Path) -> None:
    for path in ("state/lists/partial", "cache/archives/partial"):
        (folder / path).mkdir(parents=True)
    (folder / "state/status").touch()
    sources = folder / "sources.list"
    sources.write_text(f"deb [signed-by={_KEYRING}] {_mirror()} sid main\n")
    options = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "state/status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/nonexistent",
        "Dir::Etc::preferencesparts": "/nonexistent",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
    }
    apt: list[str | Path] = ["apt-get", "-qq"]
    for name, value in options.items():
        apt += ["-o", f"{name}={value}"]
    run([*apt, "update"])
    run([*apt, "-y", "-d", "install", *PACKAGES])


def _mirror() -> str:
    """That of the machine."""
    files = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.*")]
    for file in files:
        if file.suffix in (".list", ".sources") and file.exists():
            for line in file.read_text().splitlines():
                found = re.match(r"(?:URIs:|deb(?: \[.*?\])?)\s+(\S+/debian)/?(?:\s|$)", line)
                if found:
                    return found[1]
    raise CannotBeHad("it comes from Debian's packages, and no mirror of Debian is set up")
