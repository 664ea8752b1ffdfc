"""Hostile input for a real server: `make fuzz`."""
