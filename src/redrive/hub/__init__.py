"""The hub: takes webhooks from an edge over a connection that it opens, and forwards them to a local service.

A room of its own: it needs neither a database nor the engine, only the messages (core.relay) and the delivering client.
"""
