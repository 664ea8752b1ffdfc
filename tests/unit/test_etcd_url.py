"""`MEMBERSHIP_URL`: what it may say, and how what it may not say is refused."""

import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from duetime.clock import SystemClock
from duetime.cluster.etcd.url import ENDPOINTS_MAX, parse
from duetime.cluster.meeting import membership_from_url
from duetime.errors import ConfigError

SECRET = "p4ssw0rd"


def test_hosts_ports_and_the_time_of_a_lease_are_read() -> None:
    address = parse("etcd://one,two.example:1,[::1]:2/?ttl=10s")
    assert address.endpoints == ("one:2379", "two.example:1", "[::1]:2")
    assert (address.ttl_s, address.tls, address.user) == (10, False, None)


def test_a_lease_is_as_short_as_etcd_grants_it_if_nothing_is_said() -> None:
    assert parse("etcd://one").ttl_s == 2


def test_user_and_password_are_unescaped() -> None:
    address = parse("etcds://us%40er:p%3Aw%2F%25@one:1")
    assert (address.user, address.password, address.tls) == ("us@er", "p:w/%", True)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://one", "must begin with etcd:// or etcds://"),
        (f"user:{SECRET}@one", "must begin with etcd:// or etcds://"),
        ("etcd:one", "must have the form"),
        ("etcd://", "must have the form"),
        ("etcd://one,", "must have the form"),
        ("etcd://one two", "must have the form"),
        ("etcd://one:port", "must have the form"),
        ("etcd://one/path", "must have the form"),
        ("etcd://one#fragment", "must have the form"),
        ("etcd://[::1", "must have the form"),
        ("etcd://user@one", "must have the form"),
        (f"etcd://:{SECRET}@one", "must have the form"),
        (f"etcd://user:a/{SECRET}@one", "must have the form"),
        (f"etcd://user:a@{SECRET}@one", "must have the form"),
        (f"etcd://user:a?{SECRET}@one", "must have the form"),
        ("etcd://one:70000", "with ports up to 65535"),
        ("etcd://" + ",".join(["one"] * (ENDPOINTS_MAX + 1)), "must have at most 16 hosts"),
        ("etcd://one?colour=red", "has an unknown option 'colour'; known are ttl, sslrootcert,"),
        (f"etcd://one?{SECRET}=1", "has an unknown option; known are"),
        ("etcd://one?ttl", "must have the form"),
        ("etcd://one?ttl=2", "must have whole seconds from 2s to 600s as ttl"),
        ("etcd://one?ttl=1s", "must have whole seconds from 2s to 600s as ttl"),
        ("etcd://one?ttl=11m", "must have whole seconds from 2s to 600s as ttl"),
        ("etcd://one?ttl=2500ms", "must have whole seconds from 2s to 600s as ttl"),
        ("etcds://one?sslrootcert=/nowhere", "must have the path of a file as sslrootcert"),
        (f"etcd://one?sslcert={__file__}", "begin with etcds://"),
        (f"etcds://one?sslkey={__file__}", "must have sslcert where it has sslkey"),
        (f"etcds://one?sslrootcert={__file__}", "must have PEM files as sslrootcert"),
    ],
)
def test_what_it_must_not_say_is_refused_without_repeating_it(url: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        membership_from_url(url, cluster="x", clock=SystemClock())
    assert str(caught.value).startswith("MEMBERSHIP_URL ")
    assert problem in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "client.pem")
    with pytest.raises(ConfigError, match="must have PEM files"):
        membership_from_url(
            f"etcds://one?sslcert={tmp_path}/client.pem", cluster="x", clock=SystemClock()
        )


def test_a_client_that_is_not_installed_is_named_with_its_extra() -> None:
    program = """
import sys
sys.modules["aiohttp"] = None
import duetime.server
from duetime.cluster.meeting import membership_from_url
membership_from_url("etcd://one", cluster="x", clock=None)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "MEMBERSHIP_URL needs the module aiohttp: pip install 'duetime[etcd]'" in done.stderr
