"""The requirements that outside systems rely on, one test for each id: over HTTP, on a real PostgreSQL."""
