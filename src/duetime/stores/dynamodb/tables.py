"""The three tables, and how they are made."""

import asyncio
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from duetime.errors import SchemaTooNew, StoreUnavailable
from duetime.stores.dynamodb.client import Client
from duetime.stores.dynamodb.errors import TableMissing, TableThere

VERSION = 1
POLL_S = 0.25
READY_S_MAX = 300

BY_TIME = "ExecuteAtWithUuidIndex"
BY_END = "FinishedAtIndex"
TIME_KEY = "timer_execute_at_with_uuid"
LISTED = ("timer_namespace", "timer_id", "timer_created_at")
"""What lists look at."""
_VERSION_KEY = {"document_kind": {"S": "#schema"}, "document_name": {"S": "version"}}


class Tables:
    """Their names and definitions."""

    def __init__(self, prefix: str) -> None:
        self.timers = f"{prefix}_timers"
        self.history = f"{prefix}_history"
        self.documents = f"{prefix}_documents"

    def definitions(self) -> list[dict[str, Any]]:
        return [
            # One partition for each shard: its row, its timers by key, and by the local index in
            # the order in which they fire. The index holds what lists look at, and no payloads:
            # what is in both counts twice against the 400 KB that an item may have.
            _table(
                self.timers,
                ("shard_id", "sort_key"),
                LocalSecondaryIndexes=[_index(BY_TIME, ("shard_id", TIME_KEY), LISTED)],
            ),
            # A partition for each timer, so that none grows large. The indexes have several for
            # each namespace, so that none grows hot.
            _table(
                self.history,
                ("timer_uuid", "finished_at"),
                GlobalSecondaryIndexes=[
                    _index(BY_TIME, ("history_bucket", TIME_KEY), (*LISTED, "finished_status")),
                    _index(BY_END, ("history_bucket", "finished_at"), ()),
                ],
            ),
            _table(self.documents, ("document_kind", "document_name")),
        ]


async def migrate(client: Client, tables: Tables) -> None:
    """Make what is missing. `SchemaTooNew` if it is ahead.

    Where nothing is missing, nothing is asked but the version: then no right on tables is needed.
    """
    try:
        answer = await client.ask(
            "get_item", TableName=tables.documents, Key=_VERSION_KEY, ConsistentRead=True
        )
        found = int(answer.get("Item", {}).get("document_version", {}).get("N", 0))
    except TableMissing:
        found = 0
    if found > VERSION:
        raise SchemaTooNew(found, VERSION)
    if found == VERSION:
        return
    for definition in tables.definitions():  # One by one: no two with indexes at once.
        with suppress(TableThere):  # Another node was first.
            await client.ask("create_table", **definition)
        await _ready(client, definition["TableName"])
    item = {**_VERSION_KEY, "document_version": {"N": str(VERSION)}}
    new = "attribute_not_exists(document_kind)"  # Another node may have been first.
    put = {"TableName": tables.documents, "Item": item, "ConditionExpression": new}
    await client.transact([{"Put": put}])


async def time_of_answer(client: Client, tables: Tables) -> datetime:
    """The `Date` of an answer: DynamoDB has no clock that could be asked."""
    answer = await client.ask("get_item", TableName=tables.documents, Key=_VERSION_KEY)
    try:
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    except (KeyError, ValueError) as error:
        raise StoreUnavailable(f"{client.name}: it does not say what time it is") from error


async def _ready(client: Client, table: str) -> None:
    try:
        async with asyncio.timeout(READY_S_MAX):
            while not await _is_ready(client, table):  # noqa: ASYNC110 - it tells nobody.
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise StoreUnavailable(f"{client.name}: the table {table} is not ready yet") from None


async def _is_ready(client: Client, table: str) -> bool:
    try:
        found = (await client.ask("describe_table", TableName=table))["Table"]
    except TableMissing:
        return False  # Not known everywhere yet.
    indexes = found.get("GlobalSecondaryIndexes", [])
    statuses = {found["TableStatus"], *(index["IndexStatus"] for index in indexes)}
    return statuses == {"ACTIVE"}


def _table(name: str, key: tuple[str, str], **indexes: list[dict[str, Any]]) -> dict[str, Any]:
    named = {key[0], key[1]}
    for index in [index for some in indexes.values() for index in some]:
        named |= {part["AttributeName"] for part in index["KeySchema"]}
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _key(key),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "N" if name == "shard_id" else "S"}
            for name in sorted(named)
        ],
        **indexes,
    }


def _index(name: str, key: tuple[str, str], also: tuple[str, ...]) -> dict[str, Any]:
    projection: dict[str, Any] = {"ProjectionType": "KEYS_ONLY"}
    if also:
        projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(also)}
    return {"IndexName": name, "KeySchema": _key(key), "Projection": projection}


def _key(names: tuple[str, str]) -> list[dict[str, str]]:
    return [
        {"AttributeName": name, "KeyType": kind}
        for name, kind in zip(names, ("HASH", "RANGE"), strict=True)
    ]
