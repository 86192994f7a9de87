"""Redrive as its users meet it: real processes, real HTTP, a real database."""
