"""Redrive with a real RabbitMQ, which these tests start and stop themselves."""
