"""How much code a store is."""

from importlib.util import find_spec
from pathlib import Path

from duetime.stores import ADAPTERS


def source_lines(scheme: str) -> int:
    """Of its own module or package, the lines that are neither blank nor comments. What stores
    share is not counted again for each."""
    module = ADAPTERS[scheme].module if scheme in ADAPTERS else f"duetime.stores.{scheme}"
    return lines_of(module.removesuffix(".store"))


def lines_of(module: str) -> int:
    """Those of a module; if it is a package, of all of it."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin)
    files = path.parent.glob("*.py") if spec.submodule_search_locations else [path]
    return sum(_is_code(line) for file in files for line in file.read_text().splitlines())


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")
