"""Who is there, as read from etcd: the missing, and those whom we may have silenced ourselves."""

from duetime.cluster.etcd.roll import Roll
from tests.cluster.meetings import member

A, B, C = ({name: member(name)} for name in "abc")


def roll() -> Roll:
    return Roll(ttl_s=2.0, deaf_s=1.0)


def test_who_is_missing_while_we_listen_is_gone_at_once() -> None:
    them = roll()
    them.read(A | B, 10.0)
    them.read(A, 11.0)
    assert set(them.members) == {"a"}


def test_nobody_is_waited_for_whom_we_have_never_seen() -> None:
    them = roll()
    them.read(A | B, 10.0)
    them.read(A, 10.5)
    assert set(them.members) == {"a"}


def test_who_is_missing_after_we_were_deaf_has_the_time_of_a_lease_to_return() -> None:
    them = roll()
    them.read(A | B, 10.0)
    them.read(A, 20.0)
    assert set(them.members) == {"a", "b"}
    them.read(A, 21.0)
    assert set(them.members) == {"a", "b"}
    them.read(A, 21.9)
    assert set(them.members) == {"a", "b"}
    them.read(A, 22.0)
    assert set(them.members) == {"a"}


def test_who_has_returned_and_goes_again_is_gone_at_once() -> None:
    them = roll()
    them.read(A | B | C, 10.0)
    them.read(A, 20.0)
    them.read(A | B, 20.5)
    them.read(A, 21.0)
    assert set(them.members) == {"a", "c"}


def test_who_returns_in_another_life_is_that() -> None:
    them = roll()
    them.read(A | B, 10.0)
    them.read(A, 20.0)
    again = member("b", boot="1")
    them.read(A | {"b": again}, 20.5)
    assert them.members["b"] is again
