"""`python -m chaos.cluster [FAULT ...]`: run faults, a line for each, and a table of all."""

from collections.abc import Mapping
from functools import partial

import click

from chaos.cluster.faults import FAULTS, run
from chaos.cluster.world import postgresql
from chaos.command import do
from chaos.report import Report
from duetime.admin import aligned


@click.command()
@click.argument("faults", nargs=-1, type=click.Choice(list(FAULTS)))
@click.option("--seed", type=int, envvar="SEED", help="Repeat a run's choices.")
def main(faults: tuple[str, ...], seed: int | None) -> None:
    """Do FAULTS (all of them by default) to a cluster under load; account for each timer."""
    with postgresql() as server:
        known = {name: partial(run, fault, server) for name, fault in FAULTS.items()}
        do(known, faults or FAULTS, seed, summary=table)


def table(reports: Mapping[str, Report]) -> str:
    """A row for each fault, and a line that sums up."""
    rows = [
        [name, *map(str, (it.times, *_counts(it))), f"{it.late_ms / 1000:.1f} s"]
        for name, it in reports.items()
    ]
    head = ["fault", "times", "lost", "early", "after cancel", "duplicates", "worst lateness"]
    times = sum(it.times for it in reports.values())
    counts = [_counts(it) for it in reports.values()]
    lost, early, after_cancel, duplicates = map(sum, zip(*counts, strict=True))
    late_ms = max(it.late_ms for it in reports.values())
    return "\n".join(
        [
            "",
            *aligned([head, *rows]),
            "",
            f"{times} faults, {lost} lost, {early} early, {after_cancel} after cancel,"
            f" {duplicates} duplicates, worst lateness {late_ms / 1000:.1f} s",
        ]
    )


def _counts(it: Report) -> tuple[int, int, int, int]:
    verdict = it.verdict
    return verdict.lost, verdict.early, verdict.after_cancel, verdict.duplicates


if __name__ == "__main__":
    main()
