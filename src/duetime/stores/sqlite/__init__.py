"""SQLite: the embedded default. One file, one process, every write durable on return."""

from duetime.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
