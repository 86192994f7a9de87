"""What the machine allows: the least code that does the same work, without guards, records or features."""
