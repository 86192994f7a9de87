"""The ids that the database makes: UUIDs of version 7, in the order of time, and never the same twice."""

import time
from uuid import RFC_4122

import asyncpg

COUNT = 5_000


async def test_ids_from_the_database_are_version_7_ordered_and_distinct(empty_url: str) -> None:
    connection = await asyncpg.connect(empty_url)
    try:
        before_ms = time.time_ns() // 1_000_000
        made = [
            row["id"]
            for row in await connection.fetch(f"SELECT redrive.uuid7() AS id FROM generate_series(1, {COUNT})")
        ]
        after_ms = time.time_ns() // 1_000_000
        first = await connection.fetchval("SELECT redrive.uuid7()")
        second = await connection.fetchval("SELECT redrive.uuid7() FROM pg_sleep(0.00002)")
    finally:
        await connection.close()

    assert {(one.version, one.variant) for one in made} == {(7, RFC_4122)}
    assert len({one.int & (2**62 - 1) for one in made}) == COUNT, "the random bits alone tell them apart"
    stamps_ms = [one.int >> 80 for one in made]
    assert stamps_ms == sorted(stamps_ms)
    assert before_ms <= stamps_ms[0] <= stamps_ms[-1] <= after_ms
    assert first < second, "20 µs apart is within one millisecond, most of the time"
    # Every random bit is used: each is set in some ids and not in others.
    everything = 2**62 - 1
    some, all_of_them = 0, everything
    for one in made:
        some |= one.int & everything
        all_of_them &= one.int
    assert (some, all_of_them) == (everything, 0)
