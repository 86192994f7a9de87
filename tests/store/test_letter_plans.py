"""Lists of dead letters read one index in its order, whatever is asked for, and no more of it than a page may cost.

More letters of one org than are counted, and as many of another in which rare and frequent values change places: what
statistics say of a value is wrong for both. The rare ones are the oldest, where a list by age finds them last.
"""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from conftest import _as_superuser, create_database, database_of
from redrive.core.broker import QueueState
from redrive.store import dead_letters, groups
from redrive.store.db import query
from redrive.store.dead_letters import DeadLetterFilter, list_dead_letters
from redrive.store.dead_messages import DeadMessages
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.paging import LOOK_FACTOR, MAX_COUNTED
from support.engine import Engine, open_engine

NAME = "letter_plans"
LETTERS = MAX_COUNTED + 2_000
LIMIT = 50
RARE = 20
ENDPOINT, RARE_ENDPOINT = UUID(int=1), UUID(int=2)
SINCE, UNTIL = datetime(2031, 1, 1, tzinfo=UTC), datetime(2031, 1, 2, tzinfo=UTC)
_numbers = count()

# $1 org, $2 letters; then the tasks' policy, or whether rare and frequent change places.
_NUMBERS = "(SELECT n, timestamptz '2031-01-01' + n * interval '1 s' AS at FROM generate_series(1, $2::int) n) g"
_ID = "md5($1::uuid::text || n)::uuid"
FILL = (
    f"""INSERT INTO redrive.event (org_id, id, event_type, tasks, occurred_at, received_at, body)
        SELECT $1::uuid, {_ID}, 'usual', 1, at, at, '1' FROM {_NUMBERS}""",
    f"""INSERT INTO redrive.task (org_id, id, event_id, policy_id, kind, queue, state, event_type, reason, due_at,
                                  received_at, begun_at, updated_at)
        SELECT $1::uuid, {_ID}, {_ID}, $3::uuid, 'http', 'http', 'dead', 'usual', 'exhausted', 'infinity', at, at, at
          FROM {_NUMBERS}""",
    f"""INSERT INTO redrive.dead_letter (org_id, task_id, state, kind, event_id, endpoint_id, event_type,
                                         external_system, reason, category, fingerprint, error_message, failed_at,
                                         generation, created_at, updated_at, correlation_id)
        SELECT $1::uuid, {_ID}, 'open', CASE WHEN rare THEN 'handler' ELSE 'http' END, {_ID},
               lpad(CASE WHEN rare THEN '2' ELSE '1' END, 32, '0')::uuid, word, word,
               CASE WHEN rare THEN 'skipped' ELSE 'exhausted' END, word, word,
               CASE WHEN rare THEN 'a needle' ELSE 'hay' END, at, 0, at, at, word
          FROM {_NUMBERS}, LATERAL (SELECT (n <= {RARE}) <> $3::bool AS rare) r,
               LATERAL (SELECT CASE WHEN rare THEN 'rare' ELSE 'usual' END AS word) w""",
)
# Many causes beside: of none of them is any letter left in this state.
COUNTED = """INSERT INTO redrive.letter_count (org_id, state, fingerprint, shard, n)
             SELECT org_id, state, fingerprint, -1, count(*) FROM redrive.dead_letter GROUP BY 1, 2, 3
             UNION ALL
             SELECT org_id, 'resolved', 'r' || n, n % 64 - 1, n FROM redrive.org, generate_series(1, 5000) n"""

FILTERS: list[tuple[str, object, object]] = [
    ("kind", "http", "handler"),
    ("event_type", "usual", "rare"),
    ("external_system", "usual", "rare"),
    ("endpoint_id", ENDPOINT, RARE_ENDPOINT),
    ("reason", "exhausted", "skipped"),
    ("category", "usual", "rare"),
    ("fingerprint", "usual", "rare"),
    ("correlation_id", "usual", "rare"),
    ("event_id", RARE_ENDPOINT, ENDPOINT),  # none and none: ids are unique
]
INDEXES = {
    None: "dead_letter_by_age",
    "kind": "dead_letter_by_kind",
    "event_type": "dead_letter_by_type",
    "external_system": "dead_letter_by_system",
    "endpoint_id": "dead_letter_by_endpoint",
    "reason": "dead_letter_by_reason",
    "category": "dead_letter_by_category",
    "fingerprint": "dead_letter_by_cause",
    "correlation_id": "dead_letter_by_correlation",
    "event_id": "dead_letter_by_event",
}
ONE_FILTER: list[dict[str, Any]] = [{name: value} for name, *values in FILTERS for value in values]


@dataclass(frozen=True, slots=True)
class Place:
    engine: Engine
    org_id: UUID
    middle: tuple[object, object]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def filled(postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[str]:
    """A database with the letters that nobody is connected to, to copy from: filling takes much longer."""
    await create_database(postgres, NAME, template_database)
    async with open_engine(database_of(postgres.url, NAME)) as engine:
        filling = await asyncpg.connect(database_of(postgres.superuser_url, NAME))
        await filling.execute("SET session_replication_role = replica")
        await filling.execute("ALTER TABLE redrive.dead_letter SET (autovacuum_enabled = off)")
        for org_id, swapped in ((engine.org_id, False), (await engine.org("other"), True)):
            policy_id = await filling.fetchval("SELECT id FROM redrive.policy WHERE org_id = $1 LIMIT 1", org_id)
            await filling.execute(FILL[0], org_id, LETTERS)
            await filling.execute(FILL[1], org_id, LETTERS, policy_id)
            await filling.execute(FILL[2], org_id, LETTERS, swapped)
        await filling.execute(COUNTED)
        await filling.close()
    yield NAME
    await _as_superuser(postgres, f"DROP DATABASE {NAME} WITH (FORCE)")


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["analysed", "never analysed"])
async def place(request: pytest.FixtureRequest, postgres: EmbeddedPostgres, filled: str) -> AsyncIterator[Place]:
    name = f"{NAME}_{next(_numbers)}"
    await create_database(postgres, name, filled)
    if request.param == "analysed":
        await _as_superuser(postgres, "VACUUM (ANALYZE)", database=name)
    async with open_engine(database_of(postgres.url, name)) as engine:
        row = await engine.sql.fetchrow(
            "SELECT created_at, task_id FROM redrive.dead_letter WHERE org_id = $1 ORDER BY created_at OFFSET $2"
            " LIMIT 1",
            engine.org_id,
            LETTERS // 2,
        )
        assert row is not None
        yield Place(engine, engine.org_id, (row["created_at"], row["task_id"]))
    await _as_superuser(postgres, f"DROP DATABASE {name} WITH (FORCE)")


async def _explained(place: Place, name: str, *arguments: object) -> list[dict[str, Any]]:
    """Every node of the plan as it ran, that reads dead letters or their counts, or sorts."""
    statement = f"letters_{next(_numbers)}"
    given = ", ".join("NULL" if value is None else f"'{value}'" for value in arguments)
    async with place.engine.app.tenant(place.org_id) as session:
        await session._connection.execute(f"PREPARE {statement} AS {query(name)}")
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {statement}({given})"
        (explained,) = json.loads(await session._connection.fetchval(explain))
    return [
        node
        for node in _nodes(explained["Plan"])
        if node.get("Relation Name") in {"dead_letter", "letter_count"} or "Sort" in node["Node Type"]
    ]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _reads_only(nodes: list[dict[str, Any]], index: str, *, rows: int) -> None:
    """That index and the letters on the page themselves; nothing thrown away, nothing sorted but what was read."""
    used = {node.get("Index Name", node["Node Type"]) for node in nodes if "Sort" not in node["Node Type"]}
    assert used - {"Tid Scan"} == {index}
    for node in nodes:
        assert node["Actual Rows"] * node["Actual Loops"] <= rows, node
        assert node.get("Rows Removed by Filter", 0) == 0, node
        assert node.get("Rows Removed by Index Recheck", 0) == 0, node


@pytest.mark.parametrize("chosen", [{}, *ONE_FILTER], ids=str)
@pytest.mark.parametrize("part", ["first", "middle"])
async def test_a_page_by_one_filter_reads_no_more_than_it_shows(
    place: Place, chosen: dict[str, Any], part: str
) -> None:
    asked = DeadLetterFilter(**chosen)
    after = place.middle if part == "middle" else (None, None)
    nodes = await _explained(
        place,
        "list_dead_letters",
        place.org_id,
        *asked.columns,
        *after,
        LIMIT + 1,
        asked.lead,
        LIMIT + 1,
        *asked.first_failed,
    )
    _reads_only(nodes, INDEXES[asked.lead], rows=LIMIT + 1)


@pytest.mark.parametrize("chosen", [{}, *ONE_FILTER], ids=str)
async def test_a_count_by_one_filter_ends_at_its_limit(place: Place, chosen: dict[str, Any]) -> None:
    asked = DeadLetterFilter(**chosen)
    limit = MAX_COUNTED + 1
    nodes = await _explained(
        place, "count_dead_letters", place.org_id, *asked.columns, asked.lead, limit, *asked.first_failed
    )
    _reads_only(nodes, INDEXES[asked.lead], rows=limit)


@pytest.mark.parametrize(
    "chosen",
    [
        {"since": "2031-01-01 02:00:00+00"},
        {"until": "2031-01-01 00:00:10+00"},
        {"kind": "handler", "since": "2031-01-01 02:00:00+00"},
        {"kind": "http", "until": "2031-01-01 00:00:10+00"},
    ],
    ids=str,
)
async def test_times_are_answered_by_the_index(place: Place, chosen: dict[str, Any]) -> None:
    asked = DeadLetterFilter(**chosen)
    none = (None, None)
    nodes = await _explained(
        place,
        "list_dead_letters",
        place.org_id,
        *asked.columns,
        *none,
        LIMIT + 1,
        asked.lead,
        LIMIT + 1,
        *asked.first_failed,
    )
    _reads_only(nodes, INDEXES[asked.lead], rows=LIMIT + 1)


@pytest.mark.parametrize(
    "chosen",
    [
        {"q": "needle"},
        {"q": "hay"},
        {"kind": "http", "reason": "skipped"},
        {"event_type": "usual", "q": "needle"},
        {"event_type": "rar*"},
        {"event_type": "usu*"},
        {"event_type": "*", "category": "usual"},
    ],
    ids=str,
)
async def test_what_no_index_knows_is_asked_of_so_many_letters_and_no_more(
    place: Place, chosen: dict[str, Any]
) -> None:
    asked = DeadLetterFilter(**chosen)
    assert asked.filters_besides_lead
    look = LIMIT * LOOK_FACTOR
    nodes = await _explained(
        place,
        "list_dead_letters",
        place.org_id,
        *asked.columns,
        None,
        None,
        LIMIT + 1,
        asked.lead,
        look,
        *asked.first_failed,
    )
    _reads_only(nodes, INDEXES[asked.lead], rows=look)


async def test_the_open_letters_of_a_queue_are_counted_by_their_type_to_a_limit(place: Place) -> None:
    states = [QueueState(name, False, None, 0, 0, 0, 0) for name in ("usual", "rare")]
    await DeadMessages(place.engine.db, place.org_id, place.engine.clock).note(states)
    nodes = await _explained(place, "list_queues", place.org_id, 1_001)
    letters = [node for node in nodes if node.get("Relation Name") == "dead_letter"]
    _reads_only(letters, "dead_letter_by_type", rows=1_001 + RARE)


async def test_groups_are_found_without_reading_every_letter(place: Place) -> None:
    none = (None,) * 8
    limits = (groups.MAX_GROUPS_LOOKED, 100, 1_000)
    nodes = await _explained(place, "list_groups", place.org_id, "open", *none, LIMIT, *limits, None)
    used = {node.get("Index Name", node["Node Type"]) for node in nodes if "Sort" not in node["Node Type"]}
    assert used == {"dead_letter_by_cause", "dead_letter_pkey"}
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in nodes) < 1_500


@pytest.mark.parametrize("chosen", [(None, None, None), ("http", ENDPOINT, "usual")], ids=str)
async def test_whole_groups_are_found_by_their_counts_and_look_up_letters_to_show(
    place: Place, chosen: tuple[object, ...]
) -> None:
    limits = (groups.MAX_GROUPS_LOOKED, groups.MAX_COUNTS_LOOKED)
    nodes = await _explained(place, "list_whole_groups", place.org_id, "open", *chosen, LIMIT, *limits)
    letters = [node for node in nodes if node.get("Relation Name") == "dead_letter"]
    assert {node["Index Name"] for node in letters} == {"dead_letter_by_cause", "dead_letter_pkey"}
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in letters) <= 8


async def test_the_biggest_of_many_groups_are_found_by_an_index_and_no_more_are_looked_at(place: Place) -> None:
    nodes = await _explained(place, "list_whole_groups", place.org_id, "resolved", *(None,) * 3, LIMIT, 100, 300)
    read = [node for node in nodes if node.get("Relation Name") == "letter_count"]
    assert [node["Index Name"] for node in read] == ["letter_count_by_size", "letter_count_pkey"]
    assert [node["Actual Rows"] * node["Actual Loops"] for node in read] == [300, 100]
    assert not any(node.get("Rows Removed by Filter") for node in read)


@pytest.mark.parametrize("prefix", ["", "usu", "z"])
async def test_choices_are_found_by_stepping_through_an_index(place: Place, prefix: str) -> None:
    nodes = await _explained(place, "choose_letter_types", place.org_id, "open", prefix, 100, 500)
    _reads_only(nodes, "dead_letter_by_type", rows=3)


@pytest.mark.parametrize("chosen", [{}, *ONE_FILTER, {"q": "needle"}, {"event_type": "usu*"}], ids=str)
async def test_a_chart_of_arrivals_looks_at_so_many_letters_and_no_more(place: Place, chosen: dict[str, Any]) -> None:
    asked = DeadLetterFilter(**chosen, since=SINCE, until=UNTIL)
    nodes = await _explained(
        place, "letter_arrivals", place.org_id, *asked.columns, asked.lead, 1_000, SINCE, 3_600.0, *asked.first_failed
    )
    _reads_only(nodes, INDEXES[asked.lead], rows=1_000)


async def test_trends_of_groups_count_so_many_letters_and_no_more(place: Place) -> None:
    causes = "{usual,rare,none}"
    limits = (100, 500)
    nodes = await _explained(place, "group_trends", place.org_id, "open", causes, SINCE, UNTIL, 3_600.0, *limits)
    _reads_only(nodes, "dead_letter_by_cause", rows=500 + RARE)
    read = [node["Actual Rows"] * node["Actual Loops"] for node in nodes if "Relation Name" in node]
    assert sum(read) <= 100 + RARE + 500 + RARE


async def test_a_pattern_of_types_is_counted_among_so_many_letters(place: Place) -> None:
    asked = DeadLetterFilter(event_type="usu*")
    limit = MAX_COUNTED + 1
    nodes = await _explained(
        place, "count_dead_letters", place.org_id, *asked.columns, asked.lead, limit, *asked.first_failed
    )
    _reads_only(nodes, "dead_letter_by_age", rows=limit)


@pytest.mark.parametrize("event_type", ["usu%", "usual", "rar%"])
async def test_groups_of_some_types_are_found_by_their_cause(place: Place, event_type: str) -> None:
    limits = (groups.MAX_GROUPS_LOOKED, 100, 1_000)
    nodes = await _explained(
        place, "list_groups", place.org_id, "open", None, event_type, *(None,) * 6, LIMIT, *limits, None
    )
    used = {node.get("Index Name", node["Node Type"]) for node in nodes if "Sort" not in node["Node Type"]}
    assert used == {"dead_letter_by_cause", "dead_letter_pkey"}
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in nodes) < 1_500


async def test_a_rare_text_is_found_by_going_on_page_by_page(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages may be empty: each looks at so many letters, and the next goes on where it stopped."""
    monkeypatch.setattr(dead_letters, "MAX_LOOKED", LETTERS // 4)
    found, sizes, after = 0, [], None
    while True:
        async with place.engine.app.tenant(place.org_id) as session:
            page = await list_dead_letters(session, DeadLetterFilter(q="needle"), limit=LIMIT, after=after)
        sizes.append(len(page.rows))
        found += len(page.rows)
        after = page.next_key
        if after is None:
            break
    assert page.total is None  # more letters than are looked at to count
    assert sizes[:3] == [0, 0, 0]
    assert (found, len(sizes) <= 5) == (RARE, True)
