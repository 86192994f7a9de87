"""Real things for tests to talk to."""
