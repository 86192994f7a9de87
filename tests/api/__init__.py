"""The HTTP API over real sockets and a real PostgreSQL."""
