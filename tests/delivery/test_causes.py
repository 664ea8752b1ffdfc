"""Errors name the cause, never a type or a trace."""

import errno
import ssl

import pytest

from duetime.delivery.causes import describe
from duetime.delivery.guard import NameNotResolved


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "connection refused by h:1"),
        (ConnectionResetError(errno.ECONNRESET, "x"), "connection reset by h:1"),
        (BrokenPipeError(errno.EPIPE, "x"), "connection reset by h:1"),
        (TimeoutError(), "connection to h:1 timed out"),
        (OSError(errno.EHOSTUNREACH, "x"), "connection to h:1 failed: no route to host"),
        (OSError(errno.ENETUNREACH, "x"), "connection to h:1 failed: network is unreachable"),
        (OSError(errno.EMFILE, "x"), "too many open files: raise the limit of this process"),
        (ssl.SSLError(1, "[SSL: WRONG] x"), "TLS with h:1 failed: sslerror"),
        (ssl.SSLCertVerificationError("x"), "certificate verify failed: not valid"),
        (NameNotResolved("h"), "name not resolved: h"),
        (OSError("odd"), "connection to h:1 failed: OSError"),
        (RuntimeError("odd"), "connection to h:1 failed: RuntimeError"),
    ],
)
def test_an_error_is_described_by_its_cause(error: Exception, text: str) -> None:
    assert describe(error, "h:1") == text
