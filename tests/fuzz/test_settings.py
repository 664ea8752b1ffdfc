"""Whatever stands in the settings' files: settings, or their one refusal."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from duetime.config import Config
from duetime.errors import ConfigError
from duetime.settings import SETTINGS, load
from tests.fuzz import fuzzed

VALUES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["", "0", "-1", "7d", "30s", "1e9", "10.0.0.0/8,::1/128", "9" * 40, "٣"]),
)
TOML_LIKE = st.lists(
    st.builds(
        "{} = {}\n".format,
        st.one_of(st.sampled_from([s.key for s in SETTINGS]), st.text(max_size=10)),
        st.one_of(
            st.sampled_from(["0", "1", "-1", "1.5", "true", '""', "[]", '["::1/128", 3]', "{a=1}"]),
            st.sampled_from(["nan", "1979-05-27", "9" * 400]),
            VALUES.map(lambda text: '"' + text.replace('"', "") + '"'),
        ),
    ),
    max_size=5,
).map(lambda lines: "".join(lines).encode("utf-8", "surrogatepass"))
DOTENV_LIKE = st.lists(
    st.builds(
        "{}={}\n".format, st.sampled_from([s.variable for s in SETTINGS]), st.text(max_size=12)
    ),
    max_size=5,
).map(lambda lines: "".join(lines).encode("utf-8", "surrogatepass"))


@fuzzed
@given(
    toml=st.one_of(st.binary(max_size=80), TOML_LIKE),
    dotenv=st.one_of(st.binary(max_size=80), DOTENV_LIKE),
    environ=st.dictionaries(st.sampled_from([s.variable for s in SETTINGS]), VALUES, max_size=5),
    flags=st.dictionaries(
        st.sampled_from(["port", "host", "log_level"]), VALUES | st.integers(), max_size=2
    ),
)
def test_settings_are_whole_or_refused(
    toml: bytes, dotenv: bytes, environ: dict[str, str], flags: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        (path / "duetime.toml").write_bytes(toml)
        (path / ".env").write_bytes(dotenv)
        with suppress(ConfigError):
            assert isinstance(load(flags, environ=environ, directory=path), Config)
