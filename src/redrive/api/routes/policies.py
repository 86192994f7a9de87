"""Policies: which there are, which events they are for, what schedule each makes, and changes to them."""

from typing import Annotated

import asyncpg
from fastapi import APIRouter, Body, Depends, Path, Request, Response
from pydantic import WithJsonSchema

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Manager, Reader
from redrive.api.context import ApiContext, Context, act_of
from redrive.api.policy_input import POLICY_NAME, read_policy
from redrive.api.problems import FieldError, Problem, invalid, not_found
from redrive.api.queries import no_query
from redrive.api.schemas.base import Page, shows
from redrive.api.schemas.policies import SPEC_SCHEMA, PolicyPreview, PolicyShape
from redrive.api.schemas.policy_preview import DraftPreview
from redrive.store import policies
from redrive.store.db import Record
from redrive.store.keys import Caller
from redrive.store.policies import (
    MAX_BOUND_TYPES,
    MAX_POLICIES,
    InUse,
    TooManyBound,
    TooManyPolicies,
    policy_of,
)

router = APIRouter(prefix="/v1/policies", tags=["policies"], dependencies=[*SCHEMES, Depends(no_query)])

_Given = Annotated[dict[str, object], WithJsonSchema(SPEC_SCHEMA), Body()]
# Described, not enforced here: a name that cannot be is a 404 when asked for, and a 422 when given.
_Name = Annotated[str, Path(json_schema_extra={"pattern": f"^{POLICY_NAME.pattern}$"}, examples=["integration"])]


@router.get("", responses=shows(Page[PolicyShape]))
async def list_policies(caller: Reader, context: Context) -> Response:
    """The policies in force, presets included, by name."""
    async with context.tenant(caller) as session:
        rows = await policies.list_policies(session)
    return answer(shapes.whole([shapes.policy(row) for row in rows], MAX_POLICIES))


@router.post("/preview", responses=shows(DraftPreview))
async def preview_draft(given: _Given, caller: Manager) -> Response:
    """The schedule of a policy that is not stored: for whoever is about to write one."""
    policy, _ = read_policy(given)
    name = given.get("name", "")
    if not isinstance(name, str):
        raise invalid(FieldError(("body", "name"), "must be text, or be left out"))
    return answer(shapes.policy_preview(name if POLICY_NAME.fullmatch(name) else None, policy))


@router.get("/{name}", responses=shows(PolicyShape))
async def get_policy(name: _Name, caller: Reader, context: Context) -> Response:
    """The policy in force under this name."""
    return answer(shapes.policy(await _policy(name, caller, context)))


@router.get("/{name}/preview", responses=shows(PolicyPreview))
async def preview_policy(name: _Name, caller: Reader, context: Context) -> Response:
    """Its schedule: for each retry the delay, the range that jitter moves it in, and when it falls due."""
    row = await _policy(name, caller, context)
    return answer(shapes.policy_preview(row["name"], policy_of(row)))


async def _policy(name: str, caller: Caller, context: ApiContext) -> Record:
    if not POLICY_NAME.fullmatch(name):
        raise not_found("policy")
    async with context.tenant(caller) as session:
        row = await policies.get_policy(session, name)
    if row is None:
        raise not_found("policy")
    return row


@router.put("/{name}", responses=shows(PolicyShape))
async def put_policy(name: _Name, request: Request, given: _Given, caller: Manager, context: Context) -> Response:
    """Make or replace a policy, all of it. Tasks accepted before keep the one they were accepted under."""
    if not POLICY_NAME.fullmatch(name):
        message = "must be 1 to 100 letters, digits, dots, hyphens or underscores, beginning with a letter or digit"
        raise invalid(FieldError(("path", "name"), message))
    if given.get("name", name) != name:
        raise invalid(FieldError(("body", "name"), "must be the name in the path, or be left out"))
    policy, binding = read_policy(given)
    try:
        async with context.tenant(caller) as session:
            row = await policies.put_policy(session, name, policy, act_of(request, caller), binding)
    except TooManyBound:
        message = f"the policies of an org are for {MAX_BOUND_TYPES} event types at most, all together"
        raise invalid(FieldError(("body", "event_types"), message)) from None
    except TooManyPolicies:
        message = f"An org has at most {MAX_POLICIES} policies. Delete one that nothing names any more"
        raise invalid(FieldError(("body",), message)) from None
    except asyncpg.UniqueViolationError:
        raise Problem(
            409, "Somebody else changed this policy, or the default, at the same moment. Look at it, then try again."
        ) from None
    return answer(shapes.policy(row))


@router.delete("/{name}", status_code=204)
async def delete_policy(name: _Name, request: Request, caller: Manager, context: Context) -> Response:
    """Take a policy away that nothing names any more. Tasks accepted under it keep it."""
    if not POLICY_NAME.fullmatch(name):
        raise not_found("policy")
    async with context.tenant(caller) as session:
        deleted = await policies.delete_policy(session, name, act_of(request, caller))
    if isinstance(deleted, InUse):
        raise Problem(409, deleted.why)
    if not deleted:
        raise not_found("policy")
    return Response(status_code=204)
