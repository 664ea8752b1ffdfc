"""Holding a process to a share of a core, so that what else is running has the rest.

Two cores are too few for two nodes, their database, the receiver and the driver: whatever one
node leaves free, a second one takes from the others. Held to a share of a core each, nodes are
what is scarce, as they would be on a machine with a core for each.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

CONTROLLER = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000


@contextmanager
def held_to(share: float, pids: Iterable[int]) -> Iterator[None]:
    """Each of the processes gets this share of a core, and no more, until the end."""
    folders: list[Path] = []
    try:
        for pid in pids:
            folder = CONTROLLER / f"duetime-bench-{pid}"
            try:
                folder.mkdir()
            except OSError as error:
                raise RuntimeError(f"{CONTROLLER} cannot be used: {error.strerror}") from error
            folders.append(folder)
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(round(share * PERIOD_US)))
            (folder / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for folder in folders:
            for member in (folder / "cgroup.procs").read_text().split():
                (CONTROLLER / "cgroup.procs").write_text(member)
            folder.rmdir()
