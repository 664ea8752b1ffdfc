"""What a Cassandra `DATABASE_URL` may look like, and that no password leaves it."""

import subprocess
import sys

import pytest

from duetime.errors import ConfigError
from duetime.stores import store_from_url
from duetime.stores.cassandra.url import parse


def test_the_scheme_names_it() -> None:
    store = store_from_url("cassandra://user:hush@db.example/timers")
    assert store.traits.name == "cassandra"
    assert store.traits.shared


def test_all_that_it_may_say() -> None:
    address = parse("cassandra://us%40er:p%3Ass@a.example:9043,[::1]/timers?datacenter=dc1")
    assert address.hosts == [("a.example", 9043), ("::1", 9042)]
    assert (address.user, address.password) == ("us@er", "p:ss")
    assert (address.keyspace, address.datacenter) == ("timers", "dc1")
    assert address.name == "a.example:9043,[::1]/timers"


def test_user_and_datacenter_may_be_left_out() -> None:
    address = parse("cassandra://db.example/timers")
    assert (address.hosts, address.user, address.datacenter) == ([("db.example", 9042)], None, None)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("cassandra:", "must have the form"),
        ("cassandra://", "must have the form"),
        ("cassandra://u:hush@db.example", "must have the form"),
        ("cassandra://u:hush@db.example/", "must have the form"),
        ("cassandra://u:hush@db.example/Timers", "must have the form"),
        ("cassandra://u:hush@db.example,/timers", "must have the form"),
        ("cassandra://u:hush@db.example:port/timers", "must have the form"),
        ("cassandra://u:hush@db.example:99999/timers", "must have the form"),
        ("cassandra://u:hush@db.example/timers?datacenter", "must have the form"),
        # A password that is not escaped ends up elsewhere.
        ("cassandra://u:hush/1@db.example/timers", "must have the form"),
        ("cassandra://u:hu#sh@db.example/timers", "must have the form"),
        ("cassandra://u:hu@sh@db.example/timers", "must have the form"),
        ("cassandra://u@db.example/t?password=hush", "has an unknown option 'password'; known"),
        ("cassandra://db.example/t?hush%40=1", "has an unknown option; known is datacenter"),
    ],
)
def test_what_is_wrong_with_it_is_said_without_repeating_it(url: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        store_from_url(url)
    assert str(caught.value).startswith(f"DATABASE_URL {problem}")
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_the_driver_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['cassandra'] = None\n"
        "from duetime.stores import store_from_url\n"
        "store_from_url('memory:')\n"
        "store_from_url('cassandra://u:hush@db.example/timers')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith(
        "duetime.errors.ConfigError: DATABASE_URL needs the module cassandra"
    )
    assert done.stderr.splitlines()[-1].endswith("pip install 'duetime[cassandra]'")
