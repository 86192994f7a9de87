"""Many dead letters at once, made inside the database: events, tasks, attempts and letters as the engine leaves them.

    endpoint_id = await seed(redrive, 3_300, url=receiver.url)

Written as the engine's role with all triggers on, so counters are right, and every letter can be redriven: its endpoint
is there, its policy too. Three errors, of three event types, spread over the hours before now. Each letter has had one
try, which its receiver refused for good. Used by tests, by the sample and by bench.pages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg

from redrive.core.fingerprint import fingerprint
from redrive.core.outcome import Category
from support.remote import Remote

BATCH_ROWS = 20_000  # of a transaction: what triggers keep in mind of it stays small
SPREAD = timedelta(hours=20)
POLICY = "integration"


@dataclass(frozen=True, slots=True)
class Error:
    event_type: str
    message: str
    status: int
    answer: str
    external_system: str | None


ERRORS: Sequence[Error] = (
    Error("invoice.paid", "HTTP 404 Not Found", 404, '{"error": "no such account"}', "SAP"),
    Error("order.shipped", "HTTP 422 Unprocessable Entity", 422, '{"error": "quantity is missing"}', "Manhattan WMS"),
    Error("customer.updated", "HTTP 403 Forbidden", 403, "<h1>Forbidden</h1>", None),
)

# $1 org, $2 endpoint, $3 its URL, $4 policy, $5 now, $6 spread, $7 first, $8 last, $9 of how many; then the errors.
# One statement: what one part of it has written, another need not read.
_SEED = """
WITH policy AS MATERIALIZED (
  SELECT id FROM redrive.policy WHERE org_id = $1 AND name = $4 AND retired_at IS NULL),
config AS MATERIALIZED (
  SELECT redrive.config_of($1::uuid, $2::uuid) AS snapshot),
made AS MATERIALIZED (
  SELECT n, redrive.uuid7() AS event_id, redrive.uuid7() AS task_id, policy.id AS policy_id, r.*,
         $5::timestamptz - $6::interval * (1 - n / $9::float8) AS at
    FROM generate_series($7::int, $8::int) n, policy,
         unnest($10::text[], $11::text[], $12::int[], $13::text[], $14::text[], $15::text[]) WITH ORDINALITY
           AS r(event_type, message, status, answer, external_system, fingerprint, place)
   WHERE r.place = 1 + n % cardinality($10::text[])),
events AS (
  INSERT INTO redrive.event (org_id, id, event_type, tasks, endpoint_id, external_system, correlation_id, occurred_at,
                             received_at, body)
  SELECT $1, event_id, event_type, 1, $2, external_system, 'seeded-' || n, at, at,
         convert_to('{"number": ' || n || ', "id": 9007199254740993001}', 'UTF8') FROM made),
tasks AS (
  INSERT INTO redrive.task (org_id, id, event_id, endpoint_id, policy_id, kind, queue, state, event_type,
                            external_system, reason, due_at, received_at, begun_at, updated_at, first_failed_at,
                            last_failed_at, fence, attempts)
  SELECT $1, task_id, event_id, $2, policy_id, 'http', 'http', 'dead', event_type, external_system, 'permanent',
         'infinity', at, at, at, at, at, 1, 1 FROM made),
tries AS (
  INSERT INTO redrive.attempt (org_id, task_id, fence, generation, number, result, worker_id, started_at, ended_at,
                               status_code, category, error_message, url, request_headers, response_headers,
                               response_body)
  SELECT $1, task_id, 1, 0, 1, 'failed', gen_random_uuid(), at - interval '40 ms', at, status, 'client_error', message,
         $3, '{"content-type": "application/json"}', '{"server": "nginx"}', convert_to(answer, 'UTF8') FROM made)
INSERT INTO redrive.dead_letter (org_id, task_id, state, kind, event_id, endpoint_id, event_type, external_system,
                                 reason, category, fingerprint, error_message, config, first_failed_at, failed_at,
                                 generation, created_at, updated_at)
SELECT $1, task_id, 'open', 'http', event_id, $2, event_type, external_system, 'permanent', 'client_error', fingerprint,
       message, config.snapshot, at, at, 0, at, at FROM made, config
"""


async def seed(
    database_url: str, api: Remote, org_id: UUID, count: int, *, url: str, now: datetime | None = None
) -> UUID:
    """So many open dead letters of one new endpoint at `url`; the endpoint's id. The newest died at `now`."""
    endpoint_id = UUID((await api.endpoint(url, name=f"seeded {uuid4().hex[:6]}"))["id"])
    now = now or datetime.now(UTC)
    connection = await asyncpg.connect(database_url, server_settings={"role": "redrive_engine"})
    try:
        for first in range(1, count + 1, BATCH_ROWS):
            last = min(first + BATCH_ROWS - 1, count)
            place = (org_id, endpoint_id, url, POLICY, now, SPREAD, first, last, count)
            await connection.execute(_SEED, *place, *_columns(endpoint_id))
    finally:
        await connection.close()
    return endpoint_id


def _columns(endpoint_id: UUID) -> tuple[list[object], ...]:
    rows = [
        (
            error.event_type,
            error.message,
            error.status,
            error.answer,
            error.external_system,
            fingerprint("http", str(endpoint_id), Category.CLIENT_ERROR, error.message),
        )
        for error in ERRORS
    ]
    return tuple(list(column) for column in zip(*rows, strict=True))
