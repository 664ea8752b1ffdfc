"""Say whether requirements.lock serves pyproject.toml, without asking a registry."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([\w.-]+)==(\S+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    problems = _problems(project, lock)
    if problems:
        sys.exit("\n".join(["requirements.lock: run `make lock`", *problems]))


def _problems(project: dict[str, Any], lock: str) -> list[str]:
    problems = []
    pins: dict[str, Version] = {}
    for name, version, rest in PIN.findall(lock):
        pins[canonicalize_name(name)] = Version(version)
        if "--hash=sha256:" not in rest:
            problems.append(f"{name} has no hash")
    if "://" in lock:
        problems.append("it names a host")
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
    ]
    for line in wanted:
        requirement = Requirement(line)
        pinned = pins.get(canonicalize_name(requirement.name))
        if pinned is None:
            problems.append(f"{requirement.name} is not in it")
        elif not requirement.specifier.contains(pinned, prereleases=True):
            problems.append(f"{requirement.name} {pinned} is not {requirement.specifier}")
    return problems


if __name__ == "__main__":
    main()
