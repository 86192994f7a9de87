"""Fixtures for the tests in this folder: a broker, and a virtual host in it for each test."""

from support.engine import clock, empty_url, shared_database

__all__ = ["clock", "empty_url", "shared_database"]
