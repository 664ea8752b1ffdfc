"""PostgreSQL: one database that several nodes share, every write durable on return."""

from duetime.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
