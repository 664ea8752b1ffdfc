"""`python -m bench [SCENARIO ...]`: run scenarios, print a table, keep the results."""

import asyncio
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
import uvloop

from bench.processes import ROOT, Receiver
from bench.report import judge, table
from bench.scenarios import FULL, QUICK, SCENARIOS, Bench, Numbers, Scale

SCENARIO_S_MAX = 900


class Run(msgspec.Struct, kw_only=True):
    """One run, as it is kept."""

    at: str
    commit: str
    machine: dict[str, str | int | float]
    scale: Scale
    load: dict[str, float] = {}
    """The machine's load average before each scenario: what else was going on."""
    results: dict[str, Numbers] = {}
    errors: dict[str, str] = {}

    def passed(self) -> bool:
        verdicts = [
            judge(self.results, name, measure)
            for name, found in self.results.items()
            for measure in found
        ]
        return not self.errors and all(
            verdict.holds is not False for verdict in verdicts if verdict
        )


@click.command()
@click.argument("scenarios", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option("--out", type=click.Path(path_type=Path), help="Append the results to this file.")
@click.option(
    "--quick",
    is_flag=True,
    help="A few seconds of each, kept only with --out: does the bench work?",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where the databases go: a real disk. Default: the folder for temporary files.",
)
def main(scenarios: tuple[str, ...], out: Path | None, quick: bool, work: Path | None) -> None:
    """Run SCENARIOS (all of them by default) and hold the results against their targets."""
    run = Run(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_commit(),
        machine={},
        scale=QUICK if quick else FULL,
    )
    with tempfile.TemporaryDirectory(prefix="duetime-bench-", dir=work) as folder:
        run.machine = _machine(Path(folder))
        if run.machine["filesystem"] in ("tmpfs", "ramfs"):
            click.echo(f"warning: {folder} is in memory, where durable means nothing: see --work")
        uvloop.run(_run(scenarios or tuple(SCENARIOS), run, Path(folder)))
    click.echo(table(run.results, run.errors))
    if out is None and not quick:
        out = ROOT / "bench" / "results" / f"{run.at[:10]}-{run.commit}.json"
    if out is not None:
        _append(out, run)
        click.echo(f"\nkept in {out}")
    # A smoke run says whether the bench works; its few timers are no measurement.
    sys.exit(bool(run.errors) if quick else not run.passed())


async def _run(scenarios: tuple[str, ...], run: Run, work: Path) -> None:
    async with Receiver.running() as receiver:
        bench = Bench(receiver, run.scale, work)
        for name in scenarios:
            run.load[name] = round(os.getloadavg()[0], 2)
            click.echo(f"{name}: running (load {run.load[name]})", err=True)
            started = time.monotonic()
            try:
                async with asyncio.timeout(SCENARIO_S_MAX):
                    run.results[name] = await SCENARIOS[name](bench)
            except Exception as error:
                # One broken scenario must not cost the results of the others.
                run.errors[name] = f"{type(error).__name__}: {error}"
                click.echo(f"{name}: failed: {run.errors[name]}", err=True)
            click.echo(f"{name}: {time.monotonic() - started:.1f} s", err=True)


def _append(path: Path, run: Run) -> None:
    runs = msgspec.json.decode(path.read_bytes(), type=list[Run]) if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode([*runs, run]), indent=1) + b"\n")


def _commit() -> str:
    """The commit that is measured, marked where the tree differs from it."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    dirty = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True)
    return (commit.stdout.strip() or "unknown") + ("-dirty" if dirty.stdout.strip() else "")


def _machine(folder: Path) -> dict[str, str | int | float]:
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


if __name__ == "__main__":
    main()
