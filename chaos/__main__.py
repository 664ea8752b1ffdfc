"""`python -m chaos [FAULT ...]`: run faults, and one line for each."""

import asyncio
import random
import sys
import time

import click

from chaos.faults import disk_full, freeze, kill, read_only, receiver_down, wall_clock
from chaos.report import Report

FAULTS = {
    "freeze": freeze.run,
    "receiver-down": receiver_down.run,
    "wall-clock": wall_clock.run,
    "read-only": read_only.run,
    "disk-full": disk_full.run,
    "kill": kill.run,
}
FAULT_S_MAX = 240.0


@click.command()
@click.argument("faults", nargs=-1, type=click.Choice(list(FAULTS)))
@click.option("--seed", type=int, envvar="SEED", help="Repeat a run's choices.")
def main(faults: tuple[str, ...], seed: int | None) -> None:
    """Do FAULTS (all of them by default) to a server under load; account for each timer."""
    chosen = random.SystemRandom().randrange(10**6) if seed is None else seed
    click.echo(f"seed {chosen}")
    failed = [name for name in faults or FAULTS if not _passed(name, chosen)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; again with SEED={chosen}")


def _passed(name: str, seed: int) -> bool:
    started = time.monotonic()
    try:
        report = asyncio.run(_run(name, seed))
    except Exception as error:
        report = Report("", f"did not end: {error!r}", [])
        report.problems += [repr(error)]
        import traceback

        traceback.print_exc()
    click.echo(f"{name} ({time.monotonic() - started:.0f} s)")
    click.echo(report.text())
    return not report.problems


async def _run(name: str, seed: int) -> Report:
    async with asyncio.timeout(FAULT_S_MAX):
        return await FAULTS[name](seed)


if __name__ == "__main__":
    main()
