"""What a part of the fuzzing says in the end."""

from msgspec import Struct


class Report(Struct):
    """How much was tried, what was measured, and what went wrong."""

    counts: dict[str, str] = {}
    problems: list[str] = []

    def add(self, what: str, number: int, unit: str = "") -> None:
        self.counts[what] = f"{number:,}{unit}"
