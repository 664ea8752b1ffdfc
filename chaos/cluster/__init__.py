"""A cluster that really suffers: `make chaos-cluster`.

Three nodes on one PostgreSQL, each a process that is reached, and reaches the database, by ways
that can be cut. Clients ask any of them, and once more another where the first does not answer.
The ledger, the receiver, the load and the accounts are those of `chaos`.
"""
