"""Other systems on the same job, each at its documented best, pinned, in a venv or node_modules of its own."""
