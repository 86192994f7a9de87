"""The rules of Redrive as pure functions over plain values: no clock, no randomness, no I/O.

Everything else imports from here; nothing here imports anything of ours but its neighbours.
"""
