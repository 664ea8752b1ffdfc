"""Servers that no package has: tested where somebody names one that runs.

DUETIME_TEST_ORACLE_URL=oracle://user:password@host:1521/service make test-all
"""

import os
from abc import abstractmethod
from pathlib import Path

from scripts.servers.base import CannotBeHad, Server


class Named(Server):
    """Neither started nor stopped by us. What `new_url` makes is dropped in the end."""

    proven = ours = False

    def __init__(self, folder: Path, settings: object = None) -> None:
        super().__init__(folder)
        self._made: list[str] = []

    @property
    def url(self) -> str:
        variable = f"DUETIME_TEST_{self.name.upper()}_URL"
        if variable not in os.environ:
            raise CannotBeHad(f"no package has it, and {variable} names none that runs")
        return os.environ[variable]

    def start(self) -> None:
        pass

    def new_url(self, name: str) -> str:
        url = self.make(name)
        self._made.append(name)
        return url

    @abstractmethod
    def make(self, name: str) -> str:
        """Make a database of that name; `DATABASE_URL` for it."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Forget what `make` made."""

    @property
    def pid(self) -> int | None:
        return None

    def delete(self) -> None:
        while self._made:
            self.drop(self._made.pop())
        super().delete()
