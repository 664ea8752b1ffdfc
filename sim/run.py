"""The command line: many seeds, one seed with its trace, seeds without end, the mutants."""

import argparse
import sys
import time

from sim.world import World


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    if arguments.seed is not None:
        sys.exit(replay(arguments.seed))
    failed = 0
    seconds = 0.0
    began = time.process_time()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        world = World(seed)
        violation = world.run()
        seconds += world.seconds
        if violation is not None:
            failed += 1
            print(f"seed {seed} ({world.weather.mood}): {violation.checker}: {violation.message}")
    took_s = time.process_time() - began
    print(
        f"{arguments.seeds} seeds, {failed} failed, {seconds / 3600:,.0f} simulated hours, {took_s:.0f} s"
    )


def replay(seed: int) -> int:
    world = World(seed)
    violation = world.run()
    for us, process, *what in world.ledger.trace:
        print(f"{us / 1e6:14.6f} {process:6} " + " ".join(str(part) for part in what))
    print(world.weather)
    print(violation)
    return violation is not None
