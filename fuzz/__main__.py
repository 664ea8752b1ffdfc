"""`python -m fuzz [PART ...]`: hostile input of several kinds, and one line in the end."""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import click

from fuzz import api, crowd, wire
from fuzz.report import Report

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = 1_000


async def values(directory: Path, seed: int) -> Report:
    """The Hypothesis tests of the quick suite, with many more examples, from this seed."""
    report = Report()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "tests/fuzz", f"--hypothesis-seed={seed}"),
        cwd=ROOT,
        env=os.environ | {"FUZZ_EXAMPLES": str(EXAMPLES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    if process.returncode != 0:
        report.problems.append(out.decode(errors="replace"))
    report.add("examples of each property", EXAMPLES)
    return report


PARTS = {"values": values, "api": api.run, "wire": wire.run, "crowd": crowd.run}
PART_S_MAX = 400.0


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
@click.option("--seed", type=int, envvar="SEED", help="Repeat a run's choices.")
def main(parts: tuple[str, ...], seed: int | None) -> None:
    """Send a real server what it should not get (all PARTS by default)."""
    chosen = random.SystemRandom().randrange(10**6) if seed is None else seed
    click.echo(f"seed {chosen}")
    counts: list[str] = []
    problems = 0
    for name in parts or PARTS:
        report = asyncio.run(_run(name, chosen))
        told = [f"{number} {what}" for what, number in report.counts.items()]
        click.echo("\n".join([*report.problems, f"{name}: {', '.join(told)}"]))
        counts += told
        problems += len(report.problems)
    click.echo(f"{', '.join(counts)}: {problems} failed")
    if problems:
        sys.exit(f"again with SEED={chosen}")


async def _run(name: str, seed: int) -> Report:
    with tempfile.TemporaryDirectory(prefix=f"duetime-fuzz-{name}-") as directory:
        try:
            async with asyncio.timeout(PART_S_MAX):
                return await PARTS[name](Path(directory), seed)
        except Exception:
            return Report(problems=[traceback.format_exc()])


if __name__ == "__main__":
    main()
