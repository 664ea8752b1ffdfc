"""What went wrong on the way, in words that name the cause."""

import errno
import os
import ssl

from duetime.errors import DuetimeError


def describe(error: Exception, peer: str) -> str:
    """Why the connection to `peer` ("127.0.0.1:80") was not made, or broke."""
    if isinstance(error, DuetimeError):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {getattr(error, 'verify_message', 'not valid')}"
    if isinstance(error, ssl.SSLError):
        return f"TLS with {peer} failed: {_reason(error)}"
    if isinstance(error, ConnectionRefusedError):
        return f"connection refused by {peer}"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return f"connection reset by {peer}"
    if isinstance(error, TimeoutError):
        return f"connection to {peer} timed out"
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.EMFILE, errno.ENFILE):
        return "too many open files: raise the limit of this process"
    if code is not None and code in errno.errorcode:
        return f"connection to {peer} failed: {os.strerror(code).lower()}"
    return f"connection to {peer} failed: {type(error).__name__}"


def _reason(error: ssl.SSLError) -> str:
    # Errors that OpenSSL did not make have no reason.
    reason: str = getattr(error, "reason", None) or type(error).__name__
    return reason.lower().replace("_", " ")
