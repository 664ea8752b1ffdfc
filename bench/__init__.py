"""The bench: `python -m bench` drives a real `duetime serve` and says what it does.

See docs/benchmarks.md for what is measured and how to read it.
"""
