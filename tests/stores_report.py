"""What became of the tests of each store, over several runs of pytest: the table that ends
`make test-all`. `python -m tests.stores_report FILE` prints it."""

import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

import msgspec
import pytest
from scripts.servers import SERVERS

from duetime.testing.conformance import StoreConformance

Kind = Literal["conformance", "smoke"]
PROPERTY = "store"


class Result(msgspec.Struct, frozen=True):
    """One test, as it ended."""

    server: str
    kind: Kind
    outcome: str


class Run(msgspec.Struct):
    """One session of pytest."""

    results: list[Result]
    versions: dict[str, str]
    missing: dict[str, str]


def mark(items: Iterable[pytest.Item]) -> None:
    """Let each test of a store carry whose it is and of what kind, for its report to say."""
    for item in items:
        marker = item.get_closest_marker("store")
        if marker is not None:
            kind = _kind(item)
            if kind is not None:
                item.user_properties.append((PROPERTY, (marker.args[0], kind)))


def result_of(report: pytest.TestReport) -> Result | None:
    """What the report says of a store; None for other tests, and before they end."""
    if report.when != "call" and report.passed:
        return None
    found = dict(report.user_properties).get(PROPERTY)
    if found is None:
        return None
    server, kind = msgspec.convert(found, tuple[str, Kind])
    return Result(server, kind, report.outcome)


def append(path: Path, run: Run) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(run) + b"\n")


def table(runs: Iterable[Run]) -> str:
    """A row for each server, by the scheme of its URLs."""
    counts: Counter[Result] = Counter()
    versions = {"sqlite": f"SQLite {sqlite3.sqlite_version}"}
    missing: dict[str, str] = {}
    for run in runs:
        counts.update(run.results)
        versions |= run.versions
        missing |= run.missing
    rows: list[tuple[str, ...]] = [("scheme", "server", "conformance", "smoke")]
    schemes = {"sqlite": "sqlite"} | {name: server.scheme for name, server in SERVERS.items()}
    for name, scheme in schemes.items():
        if name in missing:
            said = "NOT RUN, it cannot be had" if SERVERS[name].ours else "not run against a server"
            rows.append((scheme, f"{name}: {said}: {missing[name]}", "-", "-"))
        elif any(result.server == name for result in counts):
            parts = [_summary(counts, name, kind) for kind in get_args(Kind)]
            rows.append((scheme, versions.get(name, name), *parts))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _kind(item: pytest.Item) -> Kind | None:
    if isinstance(item, pytest.Function) and item.cls and issubclass(item.cls, StoreConformance):
        return "conformance"
    return "smoke" if item.path.name == "test_stores.py" else None


def _summary(counts: Counter[Result], server: str, kind: Kind) -> str:
    outcomes = {
        "passed": counts[Result(server, kind, "passed")],
        "failed": counts[Result(server, kind, "failed")],
        "skipped by trait" if kind == "conformance" else "skipped": counts[
            Result(server, kind, "skipped")
        ],
    }
    return ", ".join(f"{count} {name}" for name, count in outcomes.items() if count) or "not run"


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_bytes().splitlines()
    sys.stdout.write(table(msgspec.json.decode(line, type=Run) for line in lines) + "\n")
