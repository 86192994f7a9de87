"""Forms of messages, on the wire and in dead letters. Pure."""
