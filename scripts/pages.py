"""The generated parts of the documentation: each stands between two marks on its page."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def brought_up_to_date(name: str, parts: Mapping[str, str]) -> None:
    """Write them into the page; with --check, only say if it is stale."""
    path = DOCS / name
    page = current = path.read_text(encoding="utf-8")
    for part, text in parts.items():
        begin, end = f"<!-- {part}: written by `make docs` -->\n", f"<!-- end of {part} -->"
        before, rest = current.split(begin)
        _, after = rest.split(end)
        current = before + begin + text + end + after
    if "--check" not in sys.argv:
        path.write_text(current, encoding="utf-8")
    elif current != page:
        sys.exit(f"docs/{name} is stale: run `make docs`")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
