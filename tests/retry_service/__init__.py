"""The retry service against a real PostgreSQL."""
