"""`python -m bench [SCENARIO ...]`: run scenarios, print a table, keep the results."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import click
import uvloop
from scripts.servers import CannotBeHad

from bench.bench import FULL, QUICK, STORES, Bench
from bench.databases import NAMES, SQLITE, databases
from bench.processes import ROOT, Receiver
from bench.report import passed, stores_table, table
from bench.runs import Run, commit, keep, machine
from bench.scenarios import SCENARIOS

COMPARE = "compare"
ALL = tuple(name for name in SCENARIOS if name != COMPARE)  # Which has been run by then.
SCENARIO_S_MAX = 900


@click.command()
@click.argument("scenarios", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option(
    "--store",
    "stores",
    multiple=True,
    type=click.Choice(NAMES),
    help="Where timers are kept; several are run one after the other. Default: sqlite.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Of every store (or each --store) the same few numbers, in one table.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Append the results to this file.")
@click.option(
    "--quick",
    is_flag=True,
    help="A few seconds of each, kept only with --out: does the bench work?",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where SQLite's databases go: a real disk. Default: the folder for temporary files.",
)
def main(
    scenarios: tuple[str, ...],
    stores: tuple[str, ...],
    compare: bool,
    out: Path | None,
    quick: bool,
    work: Path | None,
) -> None:
    """Run SCENARIOS (all that suit the store by default) and hold the results against their
    targets."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    scale = QUICK if quick else STORES if compare else FULL
    names = scenarios or ((COMPARE,) if compare else ALL)
    runs: list[Run] = []
    for store in stores or (NAMES if compare else (SQLITE,)):
        with tempfile.TemporaryDirectory(prefix="duetime-bench-", dir=work) as folder:
            run = Run(
                at=at, commit=commit(), store=store, machine=machine(Path(folder)), scale=scale
            )
            if run.machine["filesystem"] in ("tmpfs", "ramfs"):
                click.echo(f"warning: {folder} is in memory, where durable means nothing")
            try:
                uvloop.run(_run(names, run, Path(folder)))
            except CannotBeHad as error:
                click.echo(f"{store}: cannot be had: {error}", err=True)
                if not compare:
                    sys.exit(1)
                continue
            runs.append(run)
    click.echo(stores_table(runs) if compare else table(runs))
    if out is None and not quick:
        kind = "stores-" if compare else ""
        out = ROOT / "bench" / "results" / f"{kind}{at[:10]}-{commit()}.json"
    if out is not None:
        keep(out, runs)
        click.echo(f"\nkept in {out}")
    # A smoke run says whether the bench works; its few timers are no measurement.
    sys.exit(any(run.errors if quick else not passed(run) for run in runs))


async def _run(scenarios: Iterable[str], run: Run, work: Path) -> None:
    """Run them, each on a new database, and put what they say into the run. Those that say
    nothing about its store are passed over."""
    async with Receiver.running() as receiver, databases(run.store, work) as made:
        run.version = made.version
        traits = (await made.new()).store().traits
        bench = Bench(receiver, run.scale, work, made)
        for name in scenarios:
            if not SCENARIOS[name].suits(traits):
                continue
            run.load[name] = round(os.getloadavg()[0], 2)
            click.echo(f"{run.store}: {name}: running (load {run.load[name]})", err=True)
            started = time.monotonic()
            try:
                async with asyncio.timeout(SCENARIO_S_MAX):
                    run.results[name] = await SCENARIOS[name].run(bench)
            except Exception as error:
                # One broken scenario must not cost the results of the others.
                run.errors[name] = f"{type(error).__name__}: {error}"
                click.echo(f"{run.store}: {name}: failed: {run.errors[name]}", err=True)
            click.echo(f"{run.store}: {name}: {time.monotonic() - started:.1f} s", err=True)


if __name__ == "__main__":
    main()
