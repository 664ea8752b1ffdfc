"""Faults from the command line: one after the other, and a word on each."""

import asyncio
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping

import click

from chaos.account import Verdict
from chaos.report import Report

FAULT_S_MAX = 240.0

Fault = Callable[[int], Awaitable[Report]]


def do(
    faults: Mapping[str, Fault],
    names: Iterable[str],
    seed: int | None,
    *,
    summary: Callable[[Mapping[str, Report]], str] | None = None,
) -> None:
    """Do the named faults, say what came of each and of all; fails if one did not pass."""
    chosen = random.SystemRandom().randrange(10**6) if seed is None else seed
    click.echo(f"seed {chosen}")
    reports = {name: _report(name, faults[name], chosen) for name in names}
    if summary is not None:
        click.echo(summary(reports))
    failed = [name for name, report in reports.items() if report.problems]
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}; again with SEED={chosen}")


def _report(name: str, fault: Fault, seed: int) -> Report:
    started = time.monotonic()
    try:
        report = asyncio.run(_bounded(fault, seed))
    except Exception as error:
        traceback.print_exc()
        report = Report("", f"did not end: {error!r}", [repr(error)], Verdict())
    click.echo(f"{name} ({time.monotonic() - started:.0f} s)")
    click.echo(report.text())
    return report


async def _bounded(fault: Fault, seed: int) -> Report:
    async with asyncio.timeout(FAULT_S_MAX):
        return await fault(seed)
