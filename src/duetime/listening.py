"""Addresses to listen on: taken before anything else is done, and refused with a reason."""

import socket

from duetime.errors import DuetimeError


class CannotListen(DuetimeError):
    """The address to listen on is taken, or is not ours."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        super().__init__(f"cannot listen on {host} port {port}: {reason}")


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Take the address without listening on it yet: until then connections are refused.

    A `shared` one may be taken again by other processes of this user, and whoever listens
    on it gets a part of the connections. `CannotListen`.
    """
    bound = None
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, proto)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise CannotListen(host, port, error.strerror or str(error)) from error
    return bound


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
