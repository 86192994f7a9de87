"""The engine, on a real PostgreSQL and real sockets."""
