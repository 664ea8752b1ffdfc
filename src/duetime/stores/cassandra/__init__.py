"""Cassandra: a cluster that several nodes share, each shard a partition of it."""

from duetime.stores.cassandra.store import CassandraStore

__all__ = ["CassandraStore"]
