"""What a scenario says in the end."""

from msgspec import Struct

from chaos.account import Verdict

PROBLEMS_SHOWN = 20


class Report(Struct):
    """A sentence of facts about the run, one line that sums it up, and what went wrong."""

    facts: str
    line: str
    problems: list[str]
    verdict: Verdict
    times: int = 0
    """How often the fault was done, where a table says so."""
    late_ms: int = 0

    def text(self) -> str:
        shown = self.problems[:PROBLEMS_SHOWN]
        more = len(self.problems) - len(shown)
        tail = [f"  … and {more} more"] if more else []
        return "\n".join([*(f"  {problem}" for problem in shown), *tail, self.facts, self.line])


def report(what: str, verdict: Verdict, facts: str, *, duplicates_allowed: bool = False) -> Report:
    """`what` is the fault and how often it was done, as in "25 kills"."""
    problems = list(verdict.problems)
    if verdict.duplicates and not duplicates_allowed:
        problems.append(f"{verdict.duplicates} duplicates although nothing was killed")
    about = (
        f"  {verdict.timers} timers, {verdict.arrivals} callbacks,"
        f" {verdict.superseded} at a superseded time, {verdict.unasked} unasked,"
        f" {verdict.wrong} wrong, {verdict.undecided} undecided,"
        f" {verdict.duplicates - verdict.unexplained} of {verdict.duplicates} duplicates explained;"
        f" {facts}"
    )
    line = (
        f"{what}, {verdict.lost} lost, {verdict.early} early, {verdict.after_cancel} after cancel,"
        f" {verdict.duplicates} duplicates"
    )
    return Report(about, line, problems, verdict)
