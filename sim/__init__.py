"""A simulated world for the real engine: one seed decides everything. See docs/reliability.md."""
