"""Errors carry their facts and make their own message."""

import inspect

import pytest

from duetime import errors
from duetime.errors import (
    ConfigError,
    DuetimeError,
    InvalidInput,
    LeaseLost,
    NamespaceExists,
    NamespaceNotFound,
    NodeNameTaken,
    NodeNotFound,
    OtherShards,
    PayloadTooLarge,
    RefusedStart,
    RequestError,
    SchemaTooNew,
    ShardMoved,
    StoreError,
    StoreUnavailable,
    TimerExecuting,
    TimerFinished,
    TimerNotFound,
    Unavailable,
    UnknownNamespace,
    WrongCluster,
)

EACH = [
    (ConfigError("PORT must be a whole number"), "PORT must be a whole number"),
    (InvalidInput("must be text", "callback/url"), "callback/url must be text"),
    (InvalidInput("the body is not JSON"), "the body is not JSON"),
    (PayloadTooLarge(11, 10, "payload"), "payload is 11 bytes, at most 10 are allowed"),
    (UnknownNamespace("x"), "namespace 'x' does not exist"),
    (NamespaceNotFound("x"), "namespace 'x' not found"),
    (NamespaceExists("x"), "namespace 'x' already exists"),
    (TimerNotFound("n", "i"), "timer not found"),
    (TimerExecuting("n", "i"), "the timer's callback is under way"),
    (TimerFinished("n", "i", "completed"), "the timer is completed"),
    (Unavailable("draining"), "draining"),
    (NodeNotFound("b"), "no live node is named 'b'"),
    (StoreUnavailable("disk full"), "disk full"),
    (ShardMoved(3), "shard 3 is on its way to another node"),
    (
        WrongCluster("blue", "green"),
        "the database belongs to cluster 'blue', and CLUSTER_NAME is 'green'",
    ),
    (
        NodeNameTaken("a", "10.0.0.1:7000"),
        "a node named 'a' is alive at 10.0.0.1:7000: give this one another NODE_NAME",
    ),
    (
        OtherShards(16, 64),
        "the namespace 'default' has 16 shards, and DEFAULT_NUM_SHARDS is 64",
    ),
    (LeaseLost(3, 17), "shard 3: lease v17 was superseded"),
    (
        SchemaTooNew(9, 2),
        "the database has schema version 9, this Duetime knows up to 2: upgrade Duetime",
    ),
]


@pytest.mark.parametrize(("error", "message"), EACH)
def test_each_error_makes_its_own_message(error: DuetimeError, message: str) -> None:
    assert str(error) == message


def test_no_error_is_without_a_message_test() -> None:
    kinds = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__
    }
    assert kinds - {type(error) for error, _ in EACH} == {
        DuetimeError,
        RefusedStart,
        RequestError,
        StoreError,
    }


def test_the_branches_of_the_tree_say_whose_it_is_to_mend() -> None:
    for error, _ in EACH:
        branches = [
            kind for kind in (ConfigError, RequestError, StoreError) if isinstance(error, kind)
        ]
        assert len(branches) == 1


def test_errors_carry_their_facts() -> None:
    assert (LeaseLost(3, 17).shard, LeaseLost(3, 17).version) == (3, 17)
    assert TimerFinished("n", "i", "failed").status == "failed"
    assert PayloadTooLarge(11, 10, "payload").field == "payload"
    assert UnknownNamespace("x").field == "namespace"
    assert Unavailable("busy").retry_after_s == 1
    assert Unavailable("busy", retry_after_s=5).retry_after_s == 5
