"""`redrive policy`: the retry policies of an org, and what they mean in time."""

from typing import Annotated

import typer

from redrive.cli import shapes
from redrive.cli.connect import open_desk
from redrive.cli.options import AsJson, Where, command
from redrive.cli.output import Column, emit, note, table
from redrive.cli.runner import Refused, run
from redrive.core.policy import Policy, PreviewRow, preview
from redrive.store.policies import get_policy, list_policies, policy_of

app = typer.Typer(no_args_is_help=True, help="Retry policies: list, preview.")


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
        columns = [Column(title) for title in ("name", "kind", "retries", "max age", "time-out", "schedule")]
        table(columns, [[row["name"], *_summary(policy_of(row))] for row in found], empty="There are no policies.")
        return True

    run(work)


@command(app, "preview")
def preview_(
    where: Where, name: Annotated[str, typer.Argument(help="The policy's name.")], as_json: AsJson = False
) -> None:
    """Show when a policy retries: delay, range by jitter, and time since the first failure."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            row = await get_policy(session, name)
        if row is None:
            raise Refused(f'There is no policy "{name}" in this org. `redrive policy list` shows those there are.')
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
