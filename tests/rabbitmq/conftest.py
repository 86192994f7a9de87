"""Fixtures for the tests in this folder: a broker, and a virtual host in it for each test."""

from support.rabbitmq import rabbitmq, vhost_url

__all__ = ["rabbitmq", "vhost_url"]
