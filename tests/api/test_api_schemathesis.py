"""Schemathesis reads the document and tries what follows from it, right and wrong: nothing breaks a promise in it."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import BaseSchema, Case, SerializationContext
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from redrive.store.embedded import EmbeddedPostgres

from .conftest import database_named, populated, running_server
from .document import DOCUMENT, OPERATIONS
from .things import EVENT_TYPES, make

# Beside those that the document itself leads to: each of its examples, and each limit of its schemas. The same in every
# run: `--hypothesis-profile=thorough` has twenty times as many.
MAX_EXAMPLES = settings().max_examples // 25

# Takes the policies that put_policy takes: their limits, hundreds of cases, are tried there.
TRIED_ELSEWHERE = ("preview_draft",)
# Streams do not end by themselves.
NAMES = [operation.described["operationId"] for operation in OPERATIONS if not operation.streams]


@schemathesis.serializer("application/x-ndjson")
def _lines(context: SerializationContext, value: object) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """A running API, an owner's key, and real things for the parameters of each operation's path."""

    url: str
    key: str
    things: dict[str, dict[str, str]]
    session: requests.Session


@pytest.fixture(scope="module")
def schema() -> BaseSchema:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    # Not among those that it knows for a refusal: too many events in a batch.
    schema.config.checks.negative_data_rejection.expected_statuses += ["413"]
    load_all_checks()
    return schema


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def database(postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[str]:
    async with database_named(postgres, template_database, "redrive_api_schemathesis") as url:
        yield url


@pytest.fixture(scope="module")
def target(database: str) -> Iterator[Target]:
    """Schemathesis waits for its answers, so the API lives in a thread with a loop of its own."""
    started: list[Target | BaseException] = []
    is_up, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    session = requests.Session()
    session.trust_env = False  # it would look for a proxy with every request

    async def serve() -> None:
        async with running_server(database) as server, populated(server) as api:
            await api.endpoint(event_types=EVENT_TYPES)
            things = {str(operation): await make(api, operation) for operation in OPERATIONS}
            started.append(Target(f"http://{api.host}:{api.port}", str(api.owner.key), things, session))
            is_up.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:
            started.append(error)
            is_up.set()
            raise

    thread = threading.Thread(target=run)
    thread.start()
    assert is_up.wait(60)
    assert isinstance(started[0], Target), started[0]
    yield started[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()
    session.close()


@settings(
    max_examples=MAX_EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[*HealthCheck],
)
def _keeps_what_the_document_promises(case: Case[Any], target: Target) -> None:
    real = target.things[case.operation.label]
    if real and case.meta is not None and case.meta.generation.mode.is_positive:
        case.path_parameters = {**case.path_parameters, **real}
    if isinstance(case.query, dict):
        case.query.pop("wait", None)  # nobody works here: it would wait in vain
    case.call_and_validate(
        base_url=target.url,
        session=target.session,
        headers={"X-API-Key": target.key},
        # Who gets in without a key: test_api_matrix asks that of every operation, once instead of with every case.
        excluded_checks=[positive_data_acceptance, ignored_auth],
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_keeps_what_the_document_promises(name: str, schema: BaseSchema, target: Target) -> None:
    """Schemathesis's own way would work out all cases of all operations wherever tests are collected, for seconds."""
    schema.config.phases.coverage.enabled = name not in TRIED_ELSEWHERE
    (result,) = schema.include(operation_id=name).get_all_operations()
    assert isinstance(result, Ok), result.err()
    source = make_constants_value_source(schema)
    build_operation_test(
        config=schema.config,
        operation=result.ok(),
        test_func=_keeps_what_the_document_promises,
        given_kwargs={},
        feedback=FeedbackSources(constants_value_source=source),
    )(target=target)


def test_all_that_schemathesis_can_check_is_checked() -> None:
    assert {
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "response_headers_conformance",
        "negative_data_rejection",
        "missing_required_header",
        "unsupported_method",
        "allow_header_conformance",
        "ignored_auth",
    } <= set(CHECKS.get_all_names())
