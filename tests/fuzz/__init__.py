"""Whatever bytes come from outside: an answer or a refusal, never an accident.

The quick suite tries a few of each, always the same ones. `make fuzz` sets FUZZ_EXAMPLES and
tries many, from the seed that it names.
"""

import os

from hypothesis import HealthCheck, settings

_EXAMPLES = os.environ.get("FUZZ_EXAMPLES")

fuzzed = settings(
    max_examples=int(_EXAMPLES or 60),
    deadline=None,
    derandomize=_EXAMPLES is None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
