"""`python -m scripts.servers up|down NAME`."""

import sys

from scripts.servers import DAEMONS, CannotBeHad
from scripts.servers.base import shared_folder


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in ("up", "down") or sys.argv[2] not in DAEMONS:
        sys.exit(f"usage: python -m scripts.servers up|down {'|'.join(DAEMONS)}")
    _, command, name = sys.argv
    try:
        server = DAEMONS[name](shared_folder() / name)
        if command == "down":
            server.delete()
            return
        print(server.fetch(), file=sys.stderr)
        if server.pid is None:
            server.start()
        print(f"{server.variable}={server.url}")
    except CannotBeHad as error:
        sys.exit(f"{name} cannot be had: {error}")


if __name__ == "__main__":
    main()
