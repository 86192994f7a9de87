"""`redrive policy`: the retry policies of an org, and what they mean in time."""

from typing import Annotated

import typer

from redrive.api.policy_input import POLICY_NAME, read_policy
from redrive.api.problems import Problem
from redrive.cli import shapes
from redrive.cli.connect import act_of, open_desk
from redrive.cli.given import json_of, value_of
from redrive.cli.options import AsJson, Because, Where, command
from redrive.cli.output import Column, emit, note, table
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.core.policy import Policy, PreviewRow, preview
from redrive.store.db import Record
from redrive.store.policies import (
    MAX_BOUND_TYPES,
    MAX_POLICIES,
    Binding,
    InUse,
    TooManyBound,
    TooManyPolicies,
    binding_of,
    delete_policy,
    get_policy,
    list_policies,
    policy_of,
    put_policy,
)

MAX_TEXT_CHARS = 200
MAX_EVENT_TYPES = 100
MAX_SPEC_BYTES = 64 * 1024

app = typer.Typer(no_args_is_help=True, help="Retry policies: list, preview, set, bind, delete.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The policy's name.")]


@command(app, "list")
def list_(where: Where, as_json: AsJson = False) -> None:
    """List the policies in force."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            found = await list_policies(session)
        if as_json:
            for row in found:
                emit(shapes.policy(row))
            return True
        titles = ("name", "kind", "retries", "max age", "time-out", "schedule", "for")
        table(
            [Column(title, gives_way=title == "for") for title in titles],
            [[row["name"], *_summary(policy_of(row)), _events_of(row)] for row in found],
            empty="There are no policies.",
        )
        return True

    run(work)


@command(app, "preview")
def preview_(where: Where, name: Name, as_json: AsJson = False) -> None:
    """Show when a policy retries: delay, range by jitter, and time since the first failure."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            row = await get_policy(session, name)
        if row is None:
            raise _unknown(name)
        policy = policy_of(row)
        rows = preview(policy)
        if as_json:
            emit({"policy": name, "max_retries": policy.max_retries, "retries": [_shape(r) for r in rows]})
            return True
        columns = [Column(title) for title in ("retry", "delay", "at least", "at most", "after")]
        table(
            columns,
            [[r.retry, *map(_span, (r.delay_s, r.min_s, r.max_s, r.at_s))] for r in rows],
            empty=f'Policy "{name}" never retries by itself: a person does.',
        )
        if rows and (policy.max_retries is None or policy.max_retries > len(rows)):
            note("It goes on: " + _end(policy) + ".")
        return True

    run(work)


@command(app, "bind")
def bind(
    where: Where,
    name: Name,
    event_types: Annotated[
        list[str] | None, typer.Option("--event-type", help="What it is for; * stands for anything. Repeatable.")
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="For whatever no other policy is for.")] = False,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Say which events a policy is for, instead of those it was for before. Nothing said: only those that name it."""

    async def work() -> bool:
        binding = Binding(tuple(dict.fromkeys(event_types or ())), default)
        _check(binding)
        async with open_desk(where) as desk, desk.session() as session:
            found = await get_policy(session, name)
            if found is None:
                raise _unknown(name)
            try:
                row = await put_policy(session, name, policy_of(found), act_of(because), binding)
            except TooManyBound:
                raise Refused(f"An org's policies are for {MAX_BOUND_TYPES} event types at most.") from None
        if as_json:
            emit(shapes.policy(row))
        else:
            note(f'Policy "{name}" is for {_events_of(row) or "the events and endpoints that name it, no others"}.')
        return True

    run(work)


@command(app, "set")
def set_(
    where: Where,
    name: Name,
    spec: Annotated[str, typer.Argument(metavar="JSON|-|@FILE", help="The policy, as PUT /v1/policies takes it.")],
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Make or replace a policy. Which events it is for stays, unless the JSON says so. Accepted tasks keep theirs."""

    async def work() -> bool:
        if not POLICY_NAME.fullmatch(name):
            raise WrongUsage("A policy's name has 1 to 100 letters, digits, dots, hyphens or underscores.")
        given = value_of(json_of(spec, "The policy", MAX_SPEC_BYTES), "The policy", MAX_SPEC_BYTES)
        if not isinstance(given, dict):
            raise WrongUsage("The policy is a JSON object.")
        if given.get("name", name) != name:
            raise WrongUsage("The JSON has a different name. Leave it out.")
        try:
            policy, binding = read_policy(given)
        except Problem as problem:
            told = "; ".join(f"{'.'.join(map(str, error.loc[1:])) or 'policy'} {error.msg}" for error in problem.errors)
            raise WrongUsage(f"The policy cannot be used: {told}.") from None
        async with open_desk(where) as desk, desk.session() as session:
            found = await get_policy(session, name)
            if found is not None:
                before = binding_of(found)
                binding = Binding(
                    binding.event_types if "event_types" in given else before.event_types,
                    binding.is_default if "default" in given else before.is_default,
                )
            try:
                row = await put_policy(session, name, policy, act_of(because), binding)
            except TooManyBound:
                raise Refused(f"An org's policies are for {MAX_BOUND_TYPES} event types at most.") from None
            except TooManyPolicies:
                raise Refused(f"An org has at most {MAX_POLICIES} policies. Delete one that is not used.") from None
        if as_json:
            emit(shapes.policy(row))
        else:
            note(f'Policy "{name}" is {"created" if found is None else "replaced"}. `redrive policy preview` shows it.')
        return True

    run(work)


@command(app, "delete")
def delete(where: Where, name: Name, because: Because = None, as_json: AsJson = False) -> None:
    """Delete a policy that nothing names any more. Tasks that were accepted under it keep it."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            deleted = await delete_policy(session, name, act_of(because))
        if isinstance(deleted, InUse):
            raise Refused(deleted.why)
        if not deleted:
            raise _unknown(name)
        if as_json:
            emit({"name": name, "deleted": True})
        else:
            note(f'Policy "{name}" is deleted.')
        return True

    run(work)


def _unknown(name: str) -> Refused:
    return Refused(f'There is no policy "{name}" in this org. `redrive policy list` shows those there are.')


def _check(binding: Binding) -> None:
    if len(binding.event_types) > MAX_EVENT_TYPES:
        raise WrongUsage(f"A policy has at most {MAX_EVENT_TYPES} event types.")
    for event_type in binding.event_types:
        if not 1 <= len(event_type) <= MAX_TEXT_CHARS or not event_type.isprintable():
            raise WrongUsage(f"Event types have 1 to {MAX_TEXT_CHARS} printable characters.")


def _events_of(row: Record) -> str:
    return " ".join([*row["event_types"], *(["(default)"] if row["is_default"] else [])])


def _shape(row: PreviewRow) -> dict[str, object]:
    return {"retry": row.retry, "delay_s": row.delay_s, "min_s": row.min_s, "max_s": row.max_s, "at_s": row.at_s}


def _summary(policy: Policy) -> list[object]:
    delays = [_span(row.delay_s) for row in preview(policy, limit=5)]
    return [
        policy.kind.value,
        "unbounded" if policy.max_retries is None else policy.max_retries,
        None if policy.max_age_s is None else _span(policy.max_age_s),
        _span(policy.timeout_s),
        ", ".join(delays) or "never by itself",
    ]


def _end(policy: Policy) -> str:
    if policy.max_retries is not None:
        return f"{policy.max_retries} retries in all"
    assert policy.max_age_s is not None
    return f"until {_span(policy.max_age_s)} after the event was received"


def _span(seconds: float) -> str:
    """Seconds as people say them: 5s, 2m 30s, 1h, 7d."""
    if seconds < 60:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
    parts = []
    left = round(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return " ".join(parts)
