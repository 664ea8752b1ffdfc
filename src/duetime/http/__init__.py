"""The HTTP surfaces: V1 and REST over one service, as one ASGI application."""

from duetime.http.app import create_app

__all__ = ["create_app"]
