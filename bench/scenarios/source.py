"""How much code a store is."""

from importlib import import_module
from pathlib import Path

from bench.bench import Bench, Numbers


async def source(bench: Bench) -> Numbers:
    """Lines of its package that are neither blank nor comments; what SQL stores share is not
    counted again for each."""
    store = (await bench.databases.new()).store()
    package = import_module(type(store).__module__.rpartition(".")[0])
    assert package.__file__ is not None
    files = Path(package.__file__).parent.glob("*.py")
    return {"lines": sum(_is_code(line) for file in files for line in file.open())}


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")
