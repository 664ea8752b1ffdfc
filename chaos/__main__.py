"""`python -m chaos [FAULT ...]`: run faults, and one line for each."""

import click

from chaos.command import do
from chaos.faults import disk_full, freeze, kill, read_only, receiver_down, wall_clock

FAULTS = {
    "freeze": freeze.run,
    "receiver-down": receiver_down.run,
    "wall-clock": wall_clock.run,
    "read-only": read_only.run,
    "disk-full": disk_full.run,
    "kill": kill.run,
}


@click.command()
@click.argument("faults", nargs=-1, type=click.Choice(list(FAULTS)))
@click.option("--seed", type=int, envvar="SEED", help="Repeat a run's choices.")
def main(faults: tuple[str, ...], seed: int | None) -> None:
    """Do FAULTS (all of them by default) to a server under load; account for each timer."""
    do(FAULTS, faults or FAULTS, seed)


if __name__ == "__main__":
    main()
