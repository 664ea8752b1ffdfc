"""`duetime` with a store in memory that says it is shared: a cluster of processes, each of
which believes to be alone. It is enough to see what becomes of the processes."""

from duetime.cli import main
from duetime.store import Traits
from duetime.stores import memory

memory.TRAITS = Traits(name="memory, as if shared", durable=False, shared=True)

if __name__ == "__main__":
    main()
