"""Carriers: what makes one attempt of a callback."""
