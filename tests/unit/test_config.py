"""Settings: where they come from, and how what breaks a rule is refused."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import asdict

from duetime.config import Config
from duetime.errors import ConfigError
from duetime.settings import SETTINGS, load, written

KEY = "k" * 32
NEEDED = {"DATABASE_URL": "sqlite:////tmp/x.db", "API_KEY": KEY}
ROOT = Path(__file__).parents[2]


def loaded(tmp_path: Path, **environ: str) -> Config:
    return load({}, environ=NEEDED | environ, directory=tmp_path)


def refusal(tmp_path: Path, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, **environ)
    return str(caught.value).splitlines()


def test_defaults_are_those_of_config(tmp_path: Path) -> None:
    assert loaded(tmp_path) == Config(database_url=NEEDED["DATABASE_URL"], api_key=KEY)


def test_what_is_required_is_named_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load({}, environ={}, directory=tmp_path)
    database_url, api_key = str(caught.value).splitlines()
    assert database_url.startswith("DATABASE_URL is required. ")
    assert api_key.startswith("API_KEY is required. ")


def test_what_is_not_needed_may_be_missing(tmp_path: Path) -> None:
    config = load(
        {}, environ={"DATABASE_URL": "memory:"}, directory=tmp_path, unneeded=("api_key",)
    )
    assert config.api_key == ""


def test_each_source_is_overridden_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "duetime.toml").write_text(
        'port = 1\nhost = "file"\nlog_level = "debug"\nlookahead_max = "1m"\n'
    )
    (tmp_path / ".env").write_text("PORT=2\nHOST=dotenv\nLOG_LEVEL=error\n")
    environ = NEEDED | {"PORT": "3", "HOST": "environment"}
    config = load({"port": 4, "host": None}, environ=environ, directory=tmp_path)
    assert (config.port, config.host) == (4, "environment")
    assert (config.log_level, config.lookahead_s_max) == ("error", 60)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PORT=8080\n")
    assert loaded(tmp_path, PORT="").port == 8080


def test_a_dotenv_value_is_taken_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HOST=${PORT}$x\n")
    assert loaded(tmp_path).host == "${PORT}$x"


def test_another_file_takes_the_place_of_the_usual_one_and_must_exist(tmp_path: Path) -> None:
    (tmp_path / "duetime.toml").write_text("port = 1")
    (tmp_path / "other.toml").write_text("port = 2")
    other = load({}, environ=NEEDED, directory=tmp_path, file=tmp_path / "other.toml")
    assert other.port == 2
    with pytest.raises(ConfigError, match=r"absent\.toml does not exist"):
        load({}, environ=NEEDED, directory=tmp_path, file=tmp_path / "absent.toml")


def test_every_setting_survives_being_written_to_the_environment(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    config = Config(
        database_url="sqlite:////x.db",
        api_key=KEY,
        log_level="debug",
        history_retention_s=0,
        lookahead_s_max=90,
        callback_allow_networks=("10.0.0.0/8", "fd00::/8"),
        callback_tls_verify=False,
        callback_ca_file=str(tmp_path / "ca.pem"),
    )
    values = asdict(config)
    environ = {each.variable: written(each, values[each.field]) for each in SETTINGS}
    assert load({}, environ=environ, directory=tmp_path) == config


def test_a_file_holds_numbers_booleans_and_lists_as_toml_has_them(tmp_path: Path) -> None:
    (tmp_path / "duetime.toml").write_text(
        'callback_allow_networks = ["10.0.0.0/8"]\ncallback_tls_verify = false\n'
        'in_flight_max = 300\nhistory_retention = "36h"\n'
    )
    config = loaded(tmp_path)
    assert config.callback_allow_networks == ("10.0.0.0/8",)
    assert config.callback_tls_verify is False
    assert config.in_flight_max == 300
    assert config.history_retention_s == 36 * 3600


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("PORT", "65536", "must be between 0 and 65535, got '65536'"),
        ("PORT", "-1", "must be between 0 and 65535, got '-1'"),
        ("PORT", "http", "must be a whole number, got 'http'"),
        ("PORT", "3_000", "must be a whole number, got '3_000'"),
        ("PORT", "30.0", "must be a whole number, got '30.0'"),
        ("LOG_LEVEL", "loud", "must be one of debug, info, warning, error, got 'loud'"),
        ("LOG_FORMAT", "xml", "must be one of auto, text, json, got 'xml'"),
        ("DRAIN_TIMEOUT", "10", "must be a duration such as 500ms, 30s, 5m, 24h or 7d, got '10'"),
        ("DRAIN_TIMEOUT", "1500ms", "must be whole seconds, got '1500ms'"),
        ("DRAIN_TIMEOUT", "2h", "must be between 0s and 1h, got '2h'"),
        ("LOOKAHEAD_MAX", "0s", "must be between 1s and 1d, got '0s'"),
        ("PAYLOAD_BYTES_MAX", "100k", "must be a whole number, got '100k'"),
        ("CALLBACK_TLS_VERIFY", "maybe", "must be true or false, got 'maybe'"),
        ("CALLBACK_CA_FILE", "/absent.pem", "must be the path of a file, got '/absent.pem'"),
        (
            "CALLBACK_ALLOW_NETWORKS",
            "10.0.0.0/8, 10.0.0.1/8",
            "must be a list of networks: 10.0.0.1/8 has host bits set,"
            " got '10.0.0.0/8, 10.0.0.1/8'",
        ),
        ("CALLBACK_ALLOW_NETWORKS", "localhost", "must be a list of networks: 'localhost'"),
    ],
)
def test_a_broken_rule_names_key_rule_value_and_source(
    tmp_path: Path, variable: str, value: str, rule: str
) -> None:
    (line,) = refusal(tmp_path, **{variable: value})
    assert line.startswith(f"{variable} {rule}")
    assert line.endswith("(environment)")


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        ('port = "3000"', None),
        ("port = true", "PORT must be a whole number, got True (duetime.toml)"),
        ("port = 3000.0", "PORT must be a whole number, got 3000.0 (duetime.toml)"),
        ("host = 5", "HOST must be text, got 5 (duetime.toml)"),
        ("drain_timeout = 10", "DRAIN_TIMEOUT must be a duration such as"),
        ("callback_allow_networks = [1]", "CALLBACK_ALLOW_NETWORKS must be a list of networks"),
        ("prot = 1", "'prot' is not a setting (duetime.toml); did you mean 'port'?"),
        ("PORT = 1", "'PORT' is not a setting (duetime.toml); did you mean 'port'?"),
        ("drain_timeout_s = 1", "'drain_timeout_s' is not a setting (duetime.toml); did you mean"),
        ("[server]\nport = 1", "'server' is not a setting (duetime.toml)"),
        ("port = ", "is not valid TOML: "),
    ],
)
def test_a_file_is_refused_by_key_and_rule(tmp_path: Path, toml: str, line: str | None) -> None:
    (tmp_path / "duetime.toml").write_text(toml)
    if line is None:
        assert loaded(tmp_path).port == 3000
    else:
        (refused,) = refusal(tmp_path)
        assert line in refused


def test_files_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "duetime.toml").write_bytes(b"\xff")
    (tmp_path / ".env").write_bytes(b"PORT=\xff")
    toml, dotenv = refusal(tmp_path)
    assert "duetime.toml is not valid TOML" in toml
    assert ".env is not UTF-8 text" in dotenv


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "duetime.toml").mkdir()
    (line,) = refusal(tmp_path)
    assert line.endswith("duetime.toml cannot be read: Is a directory")


def test_all_violations_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "duetime.toml").write_text("colour = 'red'\nhost = 1")
    lines = refusal(tmp_path, PORT="x", API_KEY="short", LOG_LEVEL="x")
    assert [line.split()[0] for line in lines] == [
        "'colour'",
        "API_KEY",
        "HOST",
        "PORT",
        "LOG_LEVEL",
    ]


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    lines = refusal(
        tmp_path, IN_FLIGHT_MAX="100", WINDOW_PAGE_TIMERS="100000", WINDOW_TIMERS_MAX="1000"
    )
    assert lines == [
        "IN_FLIGHT_PER_DESTINATION_MAX must be at most IN_FLIGHT_MAX (100), got 200",
        "WINDOW_PAGE_TIMERS must be at most WINDOW_TIMERS_MAX (1000), got 100000",
    ]


@pytest.mark.parametrize("key", ["hush" * 7, "hush" * 8 + " ", "hush" * 8 + "é"])
def test_a_refused_key_is_not_shown(tmp_path: Path, key: str) -> None:
    (line,) = refusal(tmp_path, API_KEY=key)
    assert line.startswith("API_KEY must be ")
    assert "hush" not in line


def test_credentials_of_the_database_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "duetime.toml").write_text('database_url = ["postgres://u:hush@db/x"]')
    with pytest.raises(ConfigError) as caught:
        load({}, environ={"API_KEY": KEY}, directory=tmp_path)
    assert str(caught.value) == "DATABASE_URL must be text (duetime.toml)"


def test_every_setting_has_its_row_in_the_documentation() -> None:
    subprocess.run(
        [sys.executable, "-m", "scripts.document_settings", "--check"], check=True, cwd=ROOT
    )
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE) == [
        setting.variable for setting in SETTINGS
    ]
