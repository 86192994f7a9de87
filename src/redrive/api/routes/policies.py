"""Policies: which there are, what schedule each makes, and changes to them."""

import re
from typing import Annotated

import asyncpg
from fastapi import APIRouter, Body, Depends, Request, Response

from redrive.api import shapes
from redrive.api.answers import answer
from redrive.api.auth import SCHEMES, Manager, Reader
from redrive.api.context import ApiContext, Context, act_of
from redrive.api.problems import FieldError, Problem, invalid, not_found
from redrive.api.queries import no_query
from redrive.core.policy import Policy, PolicyError
from redrive.core.presets import PRESETS
from redrive.store import policies
from redrive.store.db import Record
from redrive.store.keys import Caller

MAX_POLICIES = 1_000
SHOWN_BESIDES = frozenset({"preset", "created_at"})  # read-only: taken back unread, so that GET, edit, PUT works

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

router = APIRouter(prefix="/v1/policies", tags=["policies"], dependencies=[*SCHEMES, Depends(no_query)])

_Spec = Annotated[dict[str, object], Body(examples=[PRESETS["integration"].to_spec()])]


@router.get("")
async def list_policies(caller: Reader, context: Context) -> Response:
    """The policies in force, presets included, by name."""
    async with context.tenant(caller) as session:
        rows = await policies.list_policies(session)
    return answer(shapes.whole([shapes.policy(row) for row in rows], MAX_POLICIES))


@router.get("/{name}")
async def get_policy(name: str, caller: Reader, context: Context) -> Response:
    return answer(shapes.policy(await _policy(name, caller, context)))


@router.get("/{name}/preview")
async def preview_policy(name: str, caller: Reader, context: Context) -> Response:
    """Its schedule: for each retry the delay, the range that jitter moves it in, and when it falls due."""
    return answer(shapes.policy_preview(await _policy(name, caller, context)))


async def _policy(name: str, caller: Caller, context: ApiContext) -> Record:
    if not _NAME.fullmatch(name):
        raise not_found("policy")
    async with context.tenant(caller) as session:
        row = await policies.get_policy(session, name)
    if row is None:
        raise not_found("policy")
    return row


@router.put("/{name}")
async def put_policy(name: str, request: Request, given: _Spec, caller: Manager, context: Context) -> Response:
    """Make or replace a policy. Tasks accepted before keep the one they were accepted under."""
    if not _NAME.fullmatch(name):
        message = "must be 1 to 100 letters, digits, dots, hyphens or underscores, beginning with a letter or digit"
        raise invalid(FieldError(("path", "name"), message))
    if given.get("name", name) != name:
        raise invalid(FieldError(("body", "name"), "must be the name in the path, or be left out"))
    try:
        policy = Policy.from_spec({key: v for key, v in given.items() if key != "name" and key not in SHOWN_BESIDES})
    except PolicyError as error:
        raise invalid(*(FieldError(("body", *place), message) for place, message in error.errors)) from None
    try:
        async with context.tenant(caller) as session:
            row = await policies.put_policy(session, name, policy, act_of(request, caller))
    except asyncpg.UniqueViolationError:
        raise Problem(
            409, "Somebody else changed this policy at the same moment. Look at it, then try again."
        ) from None
    return answer(shapes.policy(row))
