"""`python -m bench.alone serve`: `duetime` whose every request is a commit of its own.

With `WRITE_BATCH_TIMERS_MAX=1` a commit holds one timer, and here as many commits are under
way as the bench has callers, which is nothing that the product has a setting for.
"""

from duetime.cli import main
from duetime.stores.postgres import store

COMMITS = 50

if __name__ == "__main__":
    store.WRITES_IN_FLIGHT_MAX = COMMITS
    main()
