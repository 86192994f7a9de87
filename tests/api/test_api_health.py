"""Alive, ready, described; and a bug is a 500 that tells nothing."""

import asyncpg
import pytest
import structlog

from .conftest import Api


async def test_a_running_api_is_alive_and_ready_without_a_key(shared_api: Api) -> None:
    assert (await shared_api.nobody.get("/healthz")).json == {"status": "ok"}
    assert (await shared_api.nobody.get("/readyz")).json == {"status": "ready"}


async def test_an_api_whose_database_takes_no_writes_is_alive_but_not_ready(own_api: Api) -> None:
    (row,) = await own_api.sql("SELECT current_database() AS name")
    await own_api.sql(f"ALTER DATABASE {row['name']} SET default_transaction_read_only = on")
    await own_api.sql(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    assert (await own_api.nobody.get("/healthz")).status == 200
    ready = await own_api.nobody.get("/readyz")
    assert ready.status == 503
    assert "writes" in ready.json["detail"]
    refused = await own_api.owner.post("/v1/events", {"event_type": "a", "payload": 1})
    assert refused.status == 503
    assert "retry-after" in refused.headers


@pytest.mark.parametrize("table", ["event", "task", "counter", "pulse"])
async def test_an_api_that_could_not_commit_an_event_is_not_ready(own_api: Api, table: str) -> None:
    """Its database answers, but something holds a table: whoever balances load must not send events here."""
    connection = await asyncpg.connect(own_api.url)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE redrive.{table} IN EXCLUSIVE MODE")
            ready = await own_api.nobody.get("/readyz")
            assert ready.status == 503
            assert "something holds a lock" in ready.json["detail"]
            assert (await own_api.nobody.get("/healthz")).status == 200
        assert (await own_api.nobody.get("/readyz")).json == {"status": "ready"}
    finally:
        await connection.close()


async def test_a_bug_is_a_500_without_internals_and_a_line_in_the_log(own_api: Api) -> None:
    await own_api.sql("ALTER TABLE redrive.event RENAME COLUMN body TO elsewhere")
    canary = {"event_type": "a", "payload": "canary"}
    with structlog.testing.capture_logs() as lines:
        for answer in (
            await own_api.owner.post("/v1/events", canary, X_Correlation_Id="trace-1"),
            await own_api.owner.get("/v1/logs/01890000-0000-7000-8000-000000000000", X_Correlation_Id="trace-2"),
        ):
            assert answer.status == 500
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["x-correlation-id"] == answer.json["correlation_id"]
            assert "column" not in answer.body.decode()
    errors = [line for line in lines if line["event"] == "unhandled_error"]
    assert [line["correlation_id"] for line in errors] == ["trace-1", "trace-2"]
    assert "canary" not in str(lines)
    assert str(own_api.owner.key) not in str(lines)


async def test_the_description_covers_the_hot_routes_and_the_others(shared_api: Api) -> None:
    schema = (await shared_api.nobody.get("/openapi.json")).json
    assert schema["info"]["version"] == "0.0.1"
    assert {"get", "post"} <= set(schema["paths"]["/v1/events"])
    assert "post" in schema["paths"]["/v1/events/batch"]
    assert "put" in schema["paths"]["/v1/policies/{name}"]
    for operations in schema["paths"].values():
        for operation in operations.values():
            assert operation["responses"]["default"]["content"].keys() == {"application/problem+json"}
    names = {parameter["name"] for parameter in schema["paths"]["/v1/dead-letters"]["get"]["parameters"]}
    assert {"state", "reason", "fingerprint", "since", "q", "limit", "cursor"} <= names
