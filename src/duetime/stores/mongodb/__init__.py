"""MongoDB: one database that several nodes share, every write durable on return."""

from duetime.stores.mongodb.store import MongoStore

__all__ = ["MongoStore"]
