"""Who proves what to whom, step by step; and what anybody else gets out of it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.cluster.handshake import (
    PROTOCOL,
    Caller,
    Challenge,
    Hello,
    Listener,
    Node,
    Proof,
    Refused,
    refusal,
    shared_secret,
)

A, B = Node("a", "1"), Node("b", "2")
SECRET, OTHER = b"s" * 32, b"t" * 32
encode = msgspec.msgpack.encode


def caller(secret: bytes = SECRET, meant: Node = B) -> Caller:
    return Caller(secret, me=A, meant=meant, nonce=b"c" * 32)


def listener(secret: bytes = SECRET, nonce: bytes = b"l" * 32) -> Listener:
    return Listener(secret, me=B, nonce=nonce)


def given_bytes(body: bytes | None) -> bytes:
    assert body is not None
    return body


def test_both_know_each_other_after_two_round_trips() -> None:
    calling, listening = caller(), listener()
    proof = given_bytes(calling.take(given_bytes(listening.take(calling.begin()))))
    assert not listening.done
    last = given_bytes(listening.take(proof))
    assert listening.done
    assert calling.take(last) is None
    assert calling.done
    assert listening.caller == "a"


def test_the_secret_does_not_travel() -> None:
    calling, listening = caller(), listener()
    said = [calling.begin()]
    said.append(given_bytes(listening.take(said[0])))
    said.append(given_bytes(calling.take(said[1])))
    said.append(given_bytes(listening.take(said[2])))
    assert not any(SECRET in body for body in said)


def test_a_listener_proves_nothing_to_who_has_another_secret() -> None:
    calling, listening = caller(OTHER), listener()
    proof = given_bytes(calling.take(given_bytes(listening.take(calling.begin()))))
    with pytest.raises(Refused, match="CLUSTER_SECRET"):
        listening.take(proof)
    assert not listening.done


def test_a_caller_does_not_believe_a_listener_that_has_another_secret() -> None:
    calling, listening = caller(), listener()
    given_bytes(calling.take(given_bytes(listening.take(calling.begin()))))
    with pytest.raises(Refused, match="CLUSTER_SECRET"):
        calling.take(encode(Proof(b"m" * 32)))


def test_a_proof_cannot_be_sent_back_to_whoever_made_it() -> None:
    calling, listening = caller(), listener()
    proof = given_bytes(calling.take(given_bytes(listening.take(calling.begin()))))
    with pytest.raises(Refused):
        calling.take(proof)
    assert not calling.done


def test_a_proof_is_of_no_use_another_time() -> None:
    calling, listening = caller(), listener()
    hello = calling.begin()
    proof = given_bytes(calling.take(given_bytes(listening.take(hello))))
    later = listener(nonce=b"m" * 32)
    later.take(hello)
    with pytest.raises(Refused):
        later.take(proof)


@pytest.mark.parametrize("meant", [Node("b", "an earlier life"), Node("c", "2")])
def test_a_node_that_is_not_meant_says_so(meant: Node) -> None:
    with pytest.raises(Refused, match="means another node") as refused:
        listener().take(caller(meant=meant).begin())
    with pytest.raises(Refused, match="means another node"):
        caller(meant=meant).take(refusal(refused.value))


def test_another_protocol_is_named() -> None:
    hello = Hello(PROTOCOL + 1, A, B, b"c" * 32)
    with pytest.raises(Refused, match=f"version {PROTOCOL + 1}, this node {PROTOCOL}"):
        listener().take(encode(hello))


@pytest.mark.parametrize(
    "body",
    [
        encode(Challenge(b"x")),
        encode(Proof(b"x")),
        encode(Hello(PROTOCOL, A, B, b"short")),
        b"",
        b"\x93",
    ],
)
def test_whatever_else_comes_first_is_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        listener().take(body)


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_no_bytes_of_a_stranger_are_an_accident(bodies: list[bytes]) -> None:
    listening = listener()
    for body in bodies:
        try:
            listening.take(body)
        except Refused:
            break
    assert not listening.done


def test_without_a_secret_of_its_own_a_cluster_has_one_made_of_the_key() -> None:
    key = "k" * 40
    assert shared_secret(None, api_key=key) == shared_secret(None, api_key=key)
    assert key.encode() not in shared_secret(None, api_key=key)
    assert shared_secret("s" * 32, api_key=key) == shared_secret("s" * 32, api_key="other" * 8)
