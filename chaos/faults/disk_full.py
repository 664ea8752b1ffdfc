"""The disk fills up while timers come and fire, and has room again later."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.acceptance.processes import instant_passed

from chaos.load import load
from chaos.report import Report, report
from chaos.served import now
from chaos.world import World, world

TIMES = 2
RUN_S = 3.0
FULL_S = 4.0
DISK_MIB = 48
CHUNK = bytes(65_536)


async def run(seed: int) -> Report:
    with _small_disk() as (directory, how):
        async with world("disk-full", seed=seed, directory=directory) as it:
            fill, free = _filler(it, directory) if directory else _no_writes(it)
            async with load(it):
                for _ in range(TIMES):
                    await instant_passed(now() + int(RUN_S * 1000))
                    fill()
                    try:
                        before = it.refused_503
                        await instant_passed(now() + int(FULL_S * 1000))
                        if it.refused_503 == before:
                            it.problems.append("nobody noticed that the disk was full")
                    finally:
                        free()
                    full_until = now()
                    await it.ready()
                    resumed_ms = now() - full_until
            verdict = await it.verdict()
    return report(
        f"the disk full {TIMES} times ({how})",
        verdict,
        f"{it.refused_503} answers 503, writing again {resumed_ms} ms after there was room",
    )


@contextmanager
def _small_disk() -> Iterator[tuple[Path | None, str]]:
    """A file system of its own where we may mount one; else None, and why not."""
    if sys.platform != "linux" or os.geteuid() != 0:
        yield None, "a limit on file sizes: only root may mount a small disk"
        return
    with tempfile.TemporaryDirectory(prefix="duetime-chaos-disk-") as directory:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", directory]
        refused = subprocess.run(mount, capture_output=True, check=False)
        if refused.returncode != 0:
            yield None, "a limit on file sizes: mounting a small disk was refused"
            return
        try:
            yield Path(directory), f"a disk of {DISK_MIB} MiB"
        finally:
            subprocess.run(["umount", directory], check=True)


def _filler(it: World, directory: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """Another file takes all there is."""
    path = directory / "somebody-elses"

    def fill() -> None:
        with path.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(CHUNK)
        with path.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0")

    return fill, path.unlink


def _no_writes(it: World) -> tuple[Callable[[], None], Callable[[], None]]:
    return lambda: it.forbid_writes(True), lambda: it.forbid_writes(False)
