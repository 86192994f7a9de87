"""Fixtures of the engine's harness, for the tests in this folder."""

from support.engine import clock, empty_url, engine, live, shared_database

__all__ = ["clock", "empty_url", "engine", "live", "shared_database"]
