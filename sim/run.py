"""The command line: many seeds, one seed with its trace, seeds without end, the mutants."""

import argparse
import hashlib
import sys
import time

from sim.mutants import MUTANTS, hunt
from sim.world import World

SEEDS = 200


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many worlds to live through")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one, with its trace")
    parser.add_argument("--soak", action="store_true", help="until one fails or you stop it")
    parser.add_argument("--mutants", nargs="*", metavar="WORD", help="hunt mutants (with WORD)")
    parser.add_argument("--digest", action="store_true", help="of each seed's trace, one line")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.seed is not None:
        sys.exit(replay(arguments.seed))
    if arguments.mutants is not None:
        sys.exit(hunt_all(seeds, arguments.mutants))
    if arguments.digest:
        for seed in seeds:
            print(seed, digest(seed))
    elif arguments.soak:
        sys.exit(soak(arguments.first))
    else:
        sys.exit(many(seeds))


def many(seeds: range) -> int:
    """Every seed; one line for each that fails, and one that sums up."""
    tally = _Tally()
    for seed in seeds:
        tally.add(seed)
    tally.sum_up()
    return min(tally.failed, 1)


def soak(first: int) -> int:
    """Seed after seed, until one fails."""
    tally = _Tally()
    try:
        while not tally.failed:
            tally.add(first + tally.worlds)
            if tally.worlds % 100 == 0:
                tally.sum_up()
    except KeyboardInterrupt:
        print()
    tally.sum_up()
    return min(tally.failed, 1)


def replay(seed: int) -> int:
    """One seed, with everything that happened in it."""
    world = World(seed)
    print(world.weather)
    violation = world.run()
    for line in lines(world):
        print(line)
    if violation is not None:
        print(f"\n{violation.checker}: {violation.message}")
    tally = _Tally()
    tally.count(world)
    tally.sum_up()
    return min(tally.failed, 1)


def hunt_all(seeds: range, words: list[str]) -> int:
    """A table of what caught each mutant. One that survives is a hole in the checkers."""
    began = time.process_time()
    names = [name for name in MUTANTS if all(word in name for word in words)]
    survivors = 0
    print(f"{'mutation':<58} {'caught by':<36} seed")
    for name in names:
        caught = hunt(name, seeds)
        if caught is None:
            survivors += 1
            print(f"{name:<58} {'NOTHING':<36} -", flush=True)
        else:
            print(f"{name:<58} {caught.checker:<36} {caught.seed}", flush=True)
    took_s = time.process_time() - began
    print(f"{len(names)} mutants, {survivors} survived, {took_s:.0f} s")
    return min(survivors, 1)


def lines(world: World) -> list[str]:
    """The trace: when, in which process, what."""
    return [
        f"{us / 1e6:14.6f} {process:6} " + " ".join(str(part) for part in what)
        for us, process, *what in world.ledger.trace
    ]


def digest(seed: int) -> str:
    """One line that any difference between two runs would change."""
    world = World(seed)
    world.run()
    trace = "\n".join(lines(world))
    return f"{world.schedule.events} {hashlib.sha256(trace.encode()).hexdigest()}"


class _Tally:
    """Worlds, failures, and how much time passed in there and out here."""

    def __init__(self) -> None:
        self.worlds = self.failed = self.fired = 0
        self._hours = 0.0
        self._began = time.process_time()

    def add(self, seed: int) -> None:
        world = World(seed)
        violation = world.run()
        self.count(world)
        if violation is not None:
            print(f"seed {seed}: {violation.checker}: {violation.message}", flush=True)

    def count(self, world: World) -> None:
        self.worlds += 1
        self.failed += world.violation is not None
        self.fired += world.ledger.fired
        self._hours += world.seconds / 3600

    def sum_up(self) -> None:
        took_s = time.process_time() - self._began
        print(
            f"{self.worlds:,} seeds, {self.failed} failed, {self._hours:,.0f} simulated hours,"
            f" {self.fired:,} callbacks, {took_s:.0f} s",
            flush=True,
        )
