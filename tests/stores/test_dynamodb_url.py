import subprocess
import sys

import pytest

from duetime.errors import ConfigError, StoreUnavailable
from duetime.stores import store_from_url
from duetime.stores.dynamodb import DynamoStore
from duetime.stores.dynamodb.url import Address, parse


def test_a_region_is_enough() -> None:
    assert parse("dynamodb://eu-central-1") == Address(
        region="eu-central-1",
        prefix="duetime",
        endpoint=None,
        key=None,
        secret=None,
        pool_size=50,
        timeout_s=30,
    )


def test_all_that_can_be_said() -> None:
    address = parse(
        "dynamodb://AKIA:a%2Fb%2Bc%25@us-gov-west-1/team.a_b-c"
        "?endpoint=http://127.0.0.1:8000&pool_size=8&timeout=5s"
    )
    assert address == Address(
        region="us-gov-west-1",
        prefix="team.a_b-c",
        endpoint="http://127.0.0.1:8000",
        key="AKIA",
        secret="a/b+c%",
        pool_size=8,
        timeout_s=5,
    )
    assert address.name == "http://127.0.0.1:8000/team.a_b-c"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("dynamodb:", "must have the form"),
        ("dynamodb://", "must have the form"),
        ("dynamodb:///prefix", "must have the form"),
        ("dynamodb://localhost:8000/x", "must have the form"),
        ("dynamodb://eu-central/x", "must have the form"),
        ("dynamodb://[bad/x", "must have the form"),
        ("dynamodb://key@eu-central-1/x", "must have the form"),
        ("dynamodb://key:@eu-central-1/x", "must have the form"),
        ("dynamodb://:hunter2@eu-central-1/x", "must have the form"),
        ("dynamodb://key:hun/ter2@eu-central-1/x", "must have the form"),
        ("dynamodb://key:hun:ter2@eu-central-1/x", "must have the form"),
        ("dynamodb://key:hunter2@eu-central-1/x#y", "must have the form"),
        ("dynamodb://key:hunter2@eu-central-1/x/y", "prefix of tables"),
        ("dynamodb://key:hunter2@eu-central-1/x%20", "prefix of tables"),
        ("dynamodb://eu-central-1/" + "x" * 201, "prefix of tables"),
        ("dynamodb://eu-central-1/x?hunter2", "must have the form"),
        ("dynamodb://eu-central-1/x?secret=hunter2", "an unknown option 'secret'"),
        ("dynamodb://eu-central-1/x?Hunter2=1", "an unknown option; known are endpoint"),
        ("dynamodb://eu-central-1/x?endpoint=127.0.0.1:8000", "as endpoint"),
        ("dynamodb://eu-central-1/x?endpoint=http://key:hunter2@host:1", "as endpoint"),
        ("dynamodb://eu-central-1/x?endpoint=http://host:1/path", "as endpoint"),
        ("dynamodb://eu-central-1/x?endpoint=http://host:99999", "as endpoint"),
        ("dynamodb://eu-central-1/x?pool_size=3", "4 to 1000 as pool_size"),
        ("dynamodb://eu-central-1/x?pool_size=1001", "4 to 1000 as pool_size"),
        ("dynamodb://eu-central-1/x?pool_size=many", "4 to 1000 as pool_size"),
        ("dynamodb://eu-central-1/x?timeout=500ms", "from 1s to 1h as timeout"),
        ("dynamodb://eu-central-1/x?timeout=30", "from 1s to 1h as timeout"),
    ],
)
def test_nonsense_is_refused_with_the_reason_and_without_a_secret(url: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        store_from_url(url)
    message = str(caught.value)
    assert message.startswith("DATABASE_URL ")
    assert problem in message
    assert "hun" not in message.lower()
    assert "ter2" not in message


def test_without_the_driver_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['aiobotocore'] = None\n"
        "from duetime.stores import store_from_url\n"
        "store_from_url('dynamodb://eu-central-1')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    message = done.stderr.splitlines()[-1]
    assert "ConfigError: DATABASE_URL needs the module aiobotocore" in message
    assert message.endswith(": pip install 'duetime[dynamodb]'")


async def test_without_credentials_it_says_where_they_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = DynamoStore("dynamodb://eu-central-1?endpoint=http://127.0.0.1:1")
    with pytest.raises(StoreUnavailable, match="no credentials were found"):
        await store.open()
