"""Duetime: a durable timer service. Call me back at this time, whatever happens in between."""

__version__ = "0.1.0"

__all__ = ["__version__"]
