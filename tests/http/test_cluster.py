"""Readiness, and what a person may ask of the cluster, on one node that is alone."""

import pytest

from duetime import __version__
from tests.http.server import Server


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_readiness_needs_no_key(server: Server, method: str) -> None:
    reply = await server.ask(method, "/ready", key=None)
    assert reply.status == 200
    if method == "GET":
        assert reply.json == {"code": 0, "message": "ready", "data": {"ready": True}}


async def test_a_node_that_drains_is_alive_and_not_ready(server: Server) -> None:
    await server.node.drain()
    reply = await server.ask("GET", "/ready", key=None)
    assert reply.status == 503
    assert reply.json == {"code": 1, "message": "this node drains", "data": {"ready": False}}
    assert reply.headers["retry-after"] == "1"
    assert (await server.ask("GET", "/health", key=None)).status == 200


async def test_the_cluster_is_shown_to_who_has_the_key(server: Server) -> None:
    assert (await server.ask("GET", "/api/v1/cluster", key=None)).status == 401
    reply = await server.ask("GET", "/api/v1/cluster")
    assert reply.status == 200
    (node,) = reply.json["nodes"]
    me = server.node.me
    assert (node["name"], node["version"], node["shards"]) == (me.name, __version__, 16)
    assert (node["inFlight"], node["backlog"], node["draining"]) == (0, 0, False)
    assert reply.json["shards"] == [
        {"number": number, "version": 1, "owner": me.name} for number in range(16)
    ]
    assert reply.json["namespaces"] == 1


async def test_callbacks_under_way_are_counted(server: Server) -> None:
    await server.executing()
    (node,) = (await server.ask("GET", "/api/v1/cluster")).json["nodes"]
    assert node["inFlight"] == 1


async def test_the_only_node_is_not_drained(server: Server) -> None:
    path, name = "/api/v1/cluster/drain", server.node.me.name
    reply = await server.ask("POST", path, {"node": name})
    assert (reply.status, reply.json["error"]) == (400, "INVALID_INPUT")
    assert reply.json["details"] == {"field": "/node"}
    assert "only" in reply.json["message"]
    undone = await server.ask("POST", path, {"node": name, "undo": True})
    assert (undone.status, undone.json) == (200, {"node": name, "draining": False})
    unknown = await server.ask("POST", path, {"node": "nobody"})
    assert (unknown.status, unknown.json["error"]) == (404, "NODE_NOT_FOUND")


async def test_wrong_methods_are_named_in_the_shape_of_v1(server: Server) -> None:
    reply = await server.ask("POST", "/api/v1/cluster", {})
    assert (reply.status, reply.json["error"]) == (405, "METHOD_NOT_ALLOWED")
    assert reply.headers["allow"] == "GET, HEAD"
