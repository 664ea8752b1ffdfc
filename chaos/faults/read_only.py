"""The database's files turn read-only while timers come and fire, and back."""

import array
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.processes import instant_passed

from chaos.load import load
from chaos.report import Report, report
from chaos.served import now
from chaos.world import World, world

TIMES = 2
RUN_S = 3.0
READ_ONLY_S = 4.0
# <linux/fs.h>: what `chattr +i` does. A mode of 0444 binds neither root nor open files.
_GETFLAGS, _SETFLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10


async def run(seed: int) -> Report:
    async with world("read-only", seed=seed) as it:
        how, turn = _way(it)
        async with load(it):
            for _ in range(TIMES):
                await instant_passed(now() + int(RUN_S * 1000))
                turn(True)
                try:
                    before = it.refused_503
                    await instant_passed(now() + int(READ_ONLY_S * 1000))
                    if it.refused_503 == before:
                        it.problems.append("nobody noticed that the database was read-only")
                finally:
                    turn(False)
                writable_from = now()
                await it.ready()
                resumed_ms = now() - writable_from
        verdict = await it.verdict()
    return report(
        f"the database read-only {TIMES} times ({how})",
        verdict,
        f"{it.refused_503} answers 503, writing again {resumed_ms} ms after it could be",
    )


def _way(it: World) -> tuple[str, Callable[[bool], None]]:
    """How files become read-only here, and what makes them so."""

    def immutable(on: bool) -> None:
        for name in (it.database, it.database.with_name(it.database.name + "-wal")):
            _set_immutable(name, on)

    try:
        probe = it.directory / "probe"
        probe.touch()
        with probe.open("r+b", buffering=0) as file:
            _set_immutable(probe, True)
            try:
                file.write(b"x")
            except OSError:
                return "immutable files", immutable
            finally:
                _set_immutable(probe, False)
    except OSError as error:
        return f"a limit on file sizes: {error.strerror}", it.forbid_writes
    return "a limit on file sizes: this file system lets open files be written", it.forbid_writes


def _set_immutable(path: Path, on: bool) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(file, _GETFLAGS, flags)
        flags[0] = flags[0] | _IMMUTABLE if on else flags[0] & ~_IMMUTABLE
        fcntl.ioctl(file, _SETFLAGS, flags)
    finally:
        os.close(file)
