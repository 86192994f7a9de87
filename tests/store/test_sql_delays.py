"""The delay of a retry is computed in two places, the program and the database: they agree (A-4)."""

from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import msgspec
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.core.policy import MAX_DELAY_S, Policy, PolicyKind, retry_delay
from redrive.core.presets import PRESETS
from support.engine import Connection, Shared

TOLERANCE = timedelta(microseconds=1)
Row = tuple[Policy, int, float]

delays = st.floats(0, MAX_DELAY_S) | st.integers(0, int(MAX_DELAY_S)).map(float) | st.floats(0, 1e-5)
caps = delays | st.floats(0, MAX_DELAY_S)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    jitter = draw(st.floats(0, 1))
    kind: PolicyKind = draw(st.sampled_from(PolicyKind))
    match kind:
        case PolicyKind.MANUAL:
            return Policy(PolicyKind.MANUAL, max_retries=None)
        case PolicyKind.IMMEDIATE:
            return Policy(PolicyKind.IMMEDIATE, delays_s=(draw(delays),), jitter=jitter)
        case PolicyKind.LIST:
            return Policy(
                PolicyKind.LIST, delays_s=tuple(draw(st.lists(delays, min_size=1, max_size=6))), jitter=jitter
            )
        case PolicyKind.EXPONENTIAL:
            factor = draw(st.floats(1, 100) | st.sampled_from([1.0, 2.0, 100.0]))
            return Policy(PolicyKind.EXPONENTIAL, base_s=draw(delays), factor=factor, cap_s=draw(caps), jitter=jitter)


rows: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(policies(), st.integers(0, 40) | st.integers(0, 1_000_000), st.floats(0, 1)), min_size=20, max_size=60
)


@pytest_asyncio.fixture(loop_scope="session")
async def conn(empty_url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(empty_url)
    yield connection
    await connection.close()


async def test_the_sql_function_knows_the_named_policies(conn: Connection) -> None:
    async def delays_of(policy: str) -> list[timedelta | None]:
        sql = "SELECT redrive.retry_delay(n::int, $1::text) AS delay FROM generate_series(-1, 10) n ORDER BY n"
        return [row["delay"] for row in await conn.fetch(sql, policy)]

    def program(preset: str) -> list[timedelta | None]:
        return [retry_delay(PRESETS[preset], max(count, 0), 0.5) for count in range(-1, 11)]

    five, thirty, three_hundred = (timedelta(seconds=s) for s in (5, 30, 300))
    assert await delays_of("exponential") == program("integration") == [five, five, thirty] + [three_hundred] * 9
    assert await delays_of("integration") == program("integration")
    assert await delays_of("immediate") == program("immediate") == [five] * 12
    assert await delays_of("manual") == program("manual") == [None] * 12
    assert await delays_of("no such policy") == [five] * 12


async def test_the_presets_have_the_same_delays_in_the_database(conn: Connection) -> None:
    presets = [(policy, retry, roll) for policy in PRESETS.values() for retry in range(20) for roll in (0.0, 0.3, 1.0)]
    await _agree(conn, presets)


def test_any_policy_has_the_same_delay_in_the_database(shared_database: Shared, conn: Connection) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(rows)
    def agree(rows: list[Row]) -> None:
        shared_database.do(_agree(conn, rows))

    agree()


async def _agree(conn: Connection, rows: list[Row]) -> None:
    """Both SQL functions against the Python one, for a whole list at once."""
    answers = await conn.fetch(
        "SELECT redrive.delay_s(r.n, r.spec, r.roll) AS delay_s,"
        "       redrive.retry_delay(r.n, r.spec, r.roll) AS delay"
        "  FROM unnest($1::int[], $2::jsonb[], $3::float8[]) AS r(n, spec, roll)",
        [retry for _, retry, _ in rows],
        [msgspec.json.encode(policy.to_spec()).decode() for policy, _, _ in rows],
        [roll for _, _, roll in rows],
    )
    for (policy, retry, roll), answer in zip(rows, answers, strict=True):
        expected = retry_delay(policy, retry, roll)
        if expected is None:
            assert answer["delay_s"] is answer["delay"] is None
        else:
            assert abs(timedelta(seconds=answer["delay_s"]) - expected) <= TOLERANCE, (policy, retry, roll)
            assert abs(answer["delay"] - expected) <= TOLERANCE, (policy, retry, roll)
