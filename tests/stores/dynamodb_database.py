"""Sets of tables on a DynamoDB for tests, and a way to it that can be made to break."""

import itertools
from contextlib import AbstractContextManager

from scripts.servers import Dynamodb

from duetime.store import Store
from duetime.stores.dynamodb import DynamoStore
from duetime.testing.conformance import Hold

_numbers = itertools.count(1)


class DynamoDatabase:
    def __init__(self, url: str) -> None:
        self.url = url

    def handle(self) -> Store:
        return DynamoStore(self.url)

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        return None


def new_database(server: Dynamodb) -> DynamoDatabase:
    return DynamoDatabase(server.new_url(f"test_{next(_numbers)}"))
