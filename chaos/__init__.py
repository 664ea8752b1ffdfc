"""Real processes that really suffer: `make chaos`.

A `duetime serve` on SQLite works under load while one fault at a time is done to it. Clients
keep a ledger of everything they asked and were told, a receiver in a process of its own logs
every callback, and at the end each timer is accounted for. `SEED=n` repeats a run's choices;
the operating system's scheduling remains its own.
"""
