"""Every operation, done as the document shows it on a thing that is there, answers as the document says."""

from collections.abc import AsyncIterator

import jsonschema_rs
import pytest
import pytest_asyncio

from redrive.store.embedded import EmbeddedPostgres

from .conftest import Api, database_named, populated, running_server
from .document import OPERATIONS, Operation, schema_for
from .things import EVENT_TYPES, make

# Examples that cannot succeed as they stand, and why.
EXCUSED = {
    "POST /v1/session": "nobody has the password of the example",
    "PATCH /v1/session": "a key has no session",
    "DELETE /v1/session": "a key has no session",
}

TRIED = [operation for operation in OPERATIONS if not operation.streams and str(operation) not in EXCUSED]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[Api]:
    """A server of these tests' own: what they do may concern the whole installation."""
    async with (
        database_named(postgres, template_database, "redrive_api_answers") as url,
        running_server(url) as server,
        populated(server) as running,
    ):
        await running.endpoint(event_types=EVENT_TYPES)
        yield running


@pytest.mark.parametrize("operation", TRIED, ids=str)
async def test_an_operation_does_what_its_example_asks_and_answers_as_described(
    alone: Api, operation: Operation
) -> None:
    ids = await make(alone, operation)
    answer = await alone.owner.request(operation.method, operation.path.format(**ids), operation.body_example)
    assert str(answer.status) in operation.successes, (
        f"{answer.body!r}: mend the example, or excuse it in EXCUSED, or make the thing it needs in things.py"
    )
    described = operation.successes[str(answer.status)].get("content", {})
    if not described:
        assert answer.body == b""
        return
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in described
    if kind == "application/json":
        schema = schema_for(described[kind]["schema"])
        validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
        wrong = [f"{list(error.instance_path)}: {error.message}" for error in validator.iter_errors(answer.json)]
        assert wrong == [], "mend the model in api/schemas, or the shape"
