"""Passwords: what is stored of them, and that nobody's costs as much to check as anybody's."""

from argon2 import extract_parameters
from argon2.low_level import Type

from conftest import Hashing
from redrive.store.passwords import hash_password, is_password

PASSWORD = "correct horse battery"


async def test_a_password_is_known_by_its_hash_alone() -> None:
    stored = await hash_password(PASSWORD)
    assert PASSWORD not in stored
    assert await is_password(stored, PASSWORD)
    assert not await is_password(stored, PASSWORD + " ")
    assert not await is_password("no hash", PASSWORD)
    assert stored != await hash_password(PASSWORD)


async def test_where_there_is_none_no_password_is_right() -> None:
    assert not await is_password(None, "")
    assert not await is_password(None, PASSWORD)


def test_what_is_shipped_is_dear_to_guess_and_for_nobody_as_dear_as_for_anybody(shipped_hashing: Hashing) -> None:
    stored = extract_parameters(shipped_hashing.hasher.hash(PASSWORD))
    assert stored == extract_parameters(shipped_hashing.nobody)
    assert (stored.type, stored.memory_cost >= 65_536, stored.time_cost >= 3) == (Type.ID, True, True)
