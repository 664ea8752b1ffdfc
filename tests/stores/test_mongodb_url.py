"""What a MongoDB `DATABASE_URL` may look like, and that no password leaves it."""

import subprocess
import sys

import pytest

from duetime.errors import ConfigError
from duetime.stores import store_from_url
from duetime.stores.mongodb.url import parse


@pytest.mark.parametrize("scheme", ["mongodb", "MongoDB", "mongodb+srv"])
def test_both_schemes_name_it_and_no_name_is_looked_up(scheme: str) -> None:
    store = store_from_url(f"{scheme}://user:hush@db.invalid/timers")
    assert store.traits.name == "mongodb"
    assert store.traits.shared


def test_what_is_not_said_has_a_default() -> None:
    address = parse("mongodb://a.example,b.example:27018/timers")
    assert address.name == "a.example,b.example:27018/timers"
    assert address.options == {"maxPoolSize": 16, "connectTimeoutMS": 5_000}
    assert (address.pool_size, address.search_s_max, address.call_s_max) == (16, 5.0, 30.0)


def test_what_is_said_is_the_drivers_to_read() -> None:
    url = "mongodb://u:p%40ss@db.example/timers?maxPoolSize=8&TIMEOUTMS=2000&tls=true"
    address = parse(f"{url}&serverSelectionTimeoutMS=700&connectTimeoutMS=9")
    assert address.url == f"{url}&serverSelectionTimeoutMS=700&connectTimeoutMS=9"
    assert address.options == {}
    assert (address.pool_size, address.search_s_max, address.call_s_max) == (8, 0.7, 2.0)


def test_an_srv_record_has_options_of_its_own() -> None:
    url = "mongodb+srv://u:p@db.example/timers?srvServiceName=timers&retryWrites=true&w=majority"
    assert parse(url).url == url


@pytest.mark.parametrize("pool_size", [4, 5, 16, 1_000])
def test_writes_and_lists_together_leave_connections_for_reads(pool_size: int) -> None:
    store = store_from_url(f"mongodb://db.example/timers?maxPoolSize={pool_size}")
    assert 1 <= store.traits.writes_in_flight_max <= pool_size // 4


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mongodb:", "must have the form"),
        ("mongodb://", "must have the form"),
        ("mongodb://u:hush@db.example", "must have the form"),
        ("mongodb://u:hush@db.example/", "must have the form"),
        ("mongodb://u:hush@db.example/timers.rows", "must have the form"),
        ("mongodb://u:hush@db.example:port/timers", "must have the form"),
        # A password that is not escaped ends up elsewhere.
        ("mongodb://u:hush/1@db.example/timers", "must have the form"),
        ("mongodb://u:12/hush@db.example/timers", "must have the form"),
        ("mongodb://u:hu@sh@db.example/timers", "must have the form"),
        ("mongodb://u:1?hush=@db.example/timers", "must have the form"),
        ("mongodb+srv://u:hush@db.example:27017/timers", "must have one host and no port"),
        ("mongodb+srv://u:hush@a.example,b.example/timers", "must have one host and no port"),
        ("mongodb://db.example/t?hush%40=1", "has an option that the driver (pymongo "),
        ("mongodb://db.example/t?maxPoolsize=hush", "has an option 'maxPoolsize' that the driver"),
        ("mongodb://db.example/t?tlsCAFile=/no/ca.pem&tls=true", "has an option 'tlsCAFile'"),
        ("mongodb://db.example/t?tls=true&ssl=false", "has options that contradict each other"),
        ("mongodb://db.example/t?maxPoolSize=3", "must have 4 or more as maxPoolSize"),
        ("mongodb://db.example/t?timeoutMS=0", "must have 1000 to 3600000 as timeoutMS"),
        ("mongodb://db.example/t?timeoutMS=999", "must have 1000 to 3600000 as timeoutMS"),
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
        "import sys; sys.modules['pymongo'] = sys.modules['bson'] = None\n"
        "from duetime.stores import store_from_url\n"
        "store_from_url('memory:')\n"
        "store_from_url('mongodb://u:hush@db.example/timers')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(": pip install 'duetime[mongodb]'")
