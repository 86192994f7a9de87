"""Passwords: argon2id, in a thread, few at a time. The only module that knows argon2.

Called by the login and by whoever sets a password. Neither passwords nor hashes are in any message.
"""

import asyncio

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

MIN_PASSWORD_CHARS = 12
MAX_PASSWORD_CHARS = 1_024  # hashing reads all of it
MAX_HASHING = 2  # at once: each takes 64 MiB and a core's time

_hasher = PasswordHasher()
_turns = asyncio.Semaphore(MAX_HASHING)
# Of no password: checking against it costs what checking against any other does.
_NOBODY = "$argon2id$v=19$m=65536,t=3,p=4$R0pMZ2ZzdHlZd0hMQ2pBRw$7jvw1zvY9dYk1nGaYpM3pwQ1lEEq0l6p6Wn3T3cDdbA"


async def hash_password(password: str) -> str:
    async with _turns:
        return await asyncio.to_thread(_hasher.hash, password)


async def is_password(stored: str | None, password: str) -> bool:
    """Whether this is the password. Takes as long where there is none as where it is wrong."""
    async with _turns:
        right = await asyncio.to_thread(_verify, stored or _NOBODY, password)
    return right and stored is not None


def _verify(stored: str, password: str) -> bool:
    try:
        return _hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
