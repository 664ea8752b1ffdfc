"""What was run, as it is kept: results with machine, commit, settings and load."""

import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench.bench import Numbers, Scale
from bench.databases import SQLITE
from bench.processes import ROOT


class Run(msgspec.Struct, kw_only=True):
    """One run on one store."""

    at: str
    commit: str
    store: str = SQLITE
    version: str = ""
    """The database's."""
    machine: dict[str, str | int | float]
    scale: Scale
    load: dict[str, float] = {}
    """The machine's load average before each scenario: what else was going on."""
    results: dict[str, Numbers] = {}
    errors: dict[str, str] = {}


def keep(path: Path, new: Iterable[Run]) -> None:
    """Append them to those that the file has."""
    runs = msgspec.json.decode(path.read_bytes(), type=list[Run]) if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode([*runs, *new]), indent=1) + b"\n")


def commit() -> str:
    """The commit that is measured, marked where the tree differs from it."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    dirty = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True)
    return (commit.stdout.strip() or "unknown") + ("-dirty" if dirty.stdout.strip() else "")


def machine(folder: Path) -> dict[str, str | int | float]:
    info = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "cpu": next((line.split(": ")[1] for line in info if line.startswith("model name")), ""),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        "system": platform.platform(),
        "python": platform.python_version(),
        "filesystem": _filesystem(folder),
    }


def _filesystem(folder: Path) -> str:
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        if folder.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind
