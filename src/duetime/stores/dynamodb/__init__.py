"""DynamoDB: three tables that several nodes share, a shard's fence in every transaction."""

from duetime.stores.dynamodb.store import DynamoStore

__all__ = ["DynamoStore"]
