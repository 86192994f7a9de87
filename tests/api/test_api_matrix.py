"""Every operation of the document × every role × every scope: refused exactly where the table of permissions says so.

And every operation on somebody else's things: answered as if there were none. New routes are in here by themselves.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from redrive.core.permissions import CHANGERS, ROLES, Action, Role, Scope, may
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.keys import new_key, store_key
from support.http import Answer, HttpClient

from .conftest import Api, database_named, populated, running_server
from .document import OPERATIONS, Operation
from .things import EVENT_TYPES, make, unknown

# What needs no key. A route gets here on purpose only: all others depend on auth.allowed(Action…).
OPEN = {"GET /healthz", "GET /readyz", "GET /metrics", "POST /v1/session", "POST /v1/hooks/{token}"}
# For everybody who is known, whatever their role: it changes nothing of the org's.
FOR_EVERYBODY = {"GET /v1/session", "PATCH /v1/session", "DELETE /v1/session"}
# A key has no session to leave.
NOT_FOR_KEYS = {"PATCH /v1/session", "DELETE /v1/session"}
SCOPES: tuple[Scope | None, ...] = (None, *Scope)

SAME = {"X-Correlation-Id": "the-same"}

# A stream without an id in its path would never end for a caller who may.
TRIED = [operation for operation in OPERATIONS if operation.path_parameters or not operation.streams]
LOCKED = [operation for operation in TRIED if str(operation) not in OPEN]
# PUT makes what it names: there is no unknown one. What is for owners of the installation is so in every org.
NAMING = [
    operation
    for operation in OPERATIONS
    if operation.path_parameters
    and operation.method != "PUT"
    and operation.action is not Action.OWN
    and not operation.is_open  # whoever knows the token of a hook may use it
    and "{rule}" not in operation.path  # every org has the same rules of alerts
]

Callers = dict[tuple[Role, Scope | None], HttpClient]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[Api]:
    """A server of these tests' own: an owner may pause the whole installation."""
    async with (
        database_named(postgres, template_database, "redrive_api_matrix") as url,
        running_server(url) as server,
        populated(server) as running,
    ):
        await running.endpoint(event_types=EVENT_TYPES)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def callers(alone: Api) -> Callers:
    """A key for every role, whole and limited to each scope."""
    made: Callers = {}
    for role in Role:
        for scope in SCOPES:
            key = new_key()
            await store_key(alone.context.engine_db, alone.org_id, key, name=f"{role} {scope}", role=role, scope=scope)
            made[role, scope] = alone.client(key)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def neighbour(alone: Api) -> HttpClient:
    """An administrator of the other org. (Its OWNER would be one of the installation, and see every org.)"""
    made = await alone.stranger.post("/v1/keys", {"name": "neighbour", "role": "ADMIN"})
    return alone.client(made.json["key"])


async def _try(client: HttpClient, operation: Operation, ids: dict[str, str]) -> Answer:
    """As the document says it is done."""
    path = operation.path.format(**ids)
    return await client.request(operation.method, path, operation.body_example, headers=SAME)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_an_operation_says_which_action_it_is_unless_it_is_open(operation: Operation) -> None:
    assert operation.is_open == (str(operation) in OPEN), (
        "make the route depend on a caller of api/auth.py; or, if it needs no key, name it in OPEN"
    )
    assert (operation.action is None) == (str(operation) in OPEN | FOR_EVERYBODY), (
        "make the route depend on a caller who may do an action; or, if every role may, name it in FOR_EVERYBODY"
    )
    assert bool(operation.described.get("security")) != operation.is_open, "give its router dependencies=SCHEMES"


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_who_may_only_look_changes_nothing(operation: Operation) -> None:
    if operation.method in ("GET", "HEAD") or str(operation) in OPEN | FOR_EVERYBODY:
        return
    assert operation.action is not None
    assert ROLES[operation.action] <= CHANGERS
    assert not may(Role.OWNER, operation.action, Scope.READ)


@pytest.mark.parametrize("operation", LOCKED, ids=str)
async def test_nobody_gets_in_without_a_key(alone: Api, operation: Operation) -> None:
    assert (await _try(alone.nobody, operation, unknown(operation))).status == 401


@pytest.mark.parametrize("operation", [each for each in TRIED if str(each) in OPEN], ids=str)
async def test_an_open_operation_asks_for_no_key(alone: Api, operation: Operation) -> None:
    answer = await _try(alone.nobody, operation, unknown(operation))
    assert "X-API-Key" not in answer.body.decode()
    assert answer.status not in (401, 403) or operation.path == "/v1/session"  # the password of the example is wrong


@pytest.mark.parametrize("operation", [each for each in LOCKED if str(each) not in NOT_FOR_KEYS], ids=str)
async def test_a_caller_is_refused_exactly_where_the_table_says_so(callers: Callers, operation: Operation) -> None:
    action = operation.action
    for (role, scope), client in callers.items():
        answer = await _try(client, operation, unknown(operation))
        who = f"{role}, scope {scope}: {answer.status} {answer.body[:200]!r}"
        if scope is not Scope.RELAY if action is None else may(role, action, scope):
            assert answer.status not in (401, 403), who
            assert answer.status < 500, who
        else:
            assert answer.status == 403, who


@pytest.mark.parametrize("operation", NAMING, ids=str)
async def test_another_orgs_thing_answers_exactly_like_an_unknown_one(
    alone: Api, neighbour: HttpClient, operation: Operation
) -> None:
    ids = await make(alone, operation)
    before = await _seen(alone, operation, ids)
    answers = [await _try(neighbour, operation, each) for each in (ids, unknown(operation))]
    assert [answer.status for answer in answers] == [404, 404], answers[0].body
    assert answers[0].body == answers[1].body
    assert answers[0].headers.keys() == answers[1].headers.keys()
    assert await _seen(alone, operation, ids) == before


async def _seen(api: Api, operation: Operation, ids: dict[str, str]) -> list[tuple[str, int, bytes]]:
    """All that its own org can look at under the same ids."""
    looks = [each for each in OPERATIONS if each.method == "GET" and not each.streams]
    fitting = [each for each in looks if each.path_parameters and each.path_parameters == [*ids]]
    near = [each for each in fitting if each.path.startswith(operation.path.partition("{")[0])]
    answers = [(str(each), await _try(api.owner, each, ids)) for each in near]
    return [(name, answer.status, answer.body) for name, answer in answers]


def test_the_matrix_meets_every_action_but_those_without_a_route() -> None:
    met = {operation.action for operation in OPERATIONS} - {None}
    assert met <= set(Action)
    assert {Action.READ, Action.PRODUCE, Action.RETRY, Action.JUDGE, Action.MANAGE} <= met
