"""What servers are made of: fetched by the usual clients, checked, and kept in the cache."""

import hashlib
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from scripts.servers.base import CannotBeHad, cache, run

FETCH_S_MAX = 60.0
_APT = Path("/etc/apt")
_MIRROR = re.compile(r"^(?:URIs:|deb) *(https?://\S+/debian)/?\s", re.MULTILINE)


def npm_package(name: str, version: str, *, sha256: str) -> Path:
    """The tarball of a package."""

    def fetch(folder: Path) -> None:
        if shutil.which("npm") is None:
            raise CannotBeHad("npm is needed to fetch it")
        pack = ["npm", "pack", "--silent", f"--pack-destination={folder}"]
        run([*pack, f"{name}@{version}"])

    return _kept(f"{name}-{version}.tgz", sha256, fetch)


def debian_package(path: str, *, sha256: str) -> Path:
    """A package from the pool of the mirror that this machine uses, whichever release has it."""

    def fetch(folder: Path) -> None:
        try:
            with urllib.request.urlopen(f"{_mirror()}/{path}", timeout=FETCH_S_MAX) as answer:
                (folder / Path(path).name).write_bytes(answer.read())
        except urllib.error.URLError as error:
            raise CannotBeHad(f"{Path(path).name} cannot be fetched: {error.reason}") from error

    return _kept(Path(path).name, sha256, fetch)


def _kept(name: str, sha256: str, fetch: Callable[[Path], None]) -> Path:
    file = cache() / name
    if not file.exists():
        fetch(cache())
    if hashlib.sha256(file.read_bytes()).hexdigest() != sha256:
        file.unlink()
        raise CannotBeHad(f"{name} is not the one whose sha256 is pinned")
    return file


def _mirror() -> str:
    for file in (*sorted(_APT.glob("sources.list.d/*.sources")), _APT / "sources.list"):
        found = _MIRROR.search(file.read_text()) if file.exists() else None
        if found:
            return found[1]
    raise CannotBeHad("this machine has no Debian mirror")
