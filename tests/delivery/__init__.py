import pytest

pytest.register_assert_rewrite("tests.delivery.asking", "tests.delivery.peers")
