"""`redrive runs`: the runs of workflows, and what a person does with them."""

import random
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from redrive.api import run_shapes
from redrive.cli.bulk import explained
from redrive.cli.connect import Desk, act_of, open_desk
from redrive.cli.given import json_of
from redrive.cli.lookup import require_one_of
from redrive.cli.options import AsJson, Because, Id, Limit, Where, command, parse_when
from redrive.cli.output import Column, cell, document, emit, facts, note, note_rest, say, table
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.cli.shapes import Shape
from redrive.cli.workflows import unknown
from redrive.core.ids import id_of_key
from redrive.core.run_states import RunStatus
from redrive.core.workflow import MAX_STEPS
from redrive.store import runs as store
from redrive.store.clock import DatabaseClock
from redrive.store.db import Session, past_deadlocks
from redrive.store.edits import NO_EDIT, Edit, EditError
from redrive.store.events import MAX_PAYLOAD_BYTES, new_correlation_id
from redrive.store.orgs import new_id
from redrive.store.replays import Replay, replay_run
from redrive.store.retry_queue import Refusal
from redrive.store.runs import NewRun, RunFilter, RunRefusal
from redrive.store.workflows import get_workflow, version_of

MAX_KEY_CHARS = 255
MAX_CORRELATION_CHARS = 128
NO_INPUT = b"null"
CLOCK = DatabaseClock()
COLUMNS = (
    Column("id"),
    Column("workflow", gives_way=True),
    Column("version"),
    Column("status"),
    Column("steps"),
    Column("created"),
    Column("finished"),
)
STEP_COLUMNS = (
    Column("step"),
    Column("name"),
    Column("kind"),
    Column("status"),
    Column("tries"),
    Column("next try"),
    Column("dead letter"),
    Column("error", gives_way=True),
)

app = typer.Typer(no_args_is_help=True, help="Runs of workflows: list, show, start, cancel, replay.")

Input = Annotated[
    str | None,
    typer.Option("--input", metavar="JSON", help="JSON; @ and the name of a file that holds it; or - for stdin."),
]


@command(app, "list")
def list_(
    where: Where,
    workflow: Annotated[str | None, typer.Option("--workflow", help="Of this workflow.")] = None,
    status: Annotated[
        str | None, typer.Option("--status", help="PENDING, RUNNING, SUCCESS, FAILED, PARTIAL or DLQ_PENDING.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", parser=parse_when, metavar="TIME", help="Begun then or later.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", parser=parse_when, metavar="TIME", help="Begun before then.")
    ] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""

    async def work() -> bool:
        wanted = status.upper() if status is not None else None
        require_one_of("status", wanted, RunStatus)
        chosen = RunFilter(workflow, wanted, since, until)
        async with open_desk(where) as desk, desk.session() as session:
            page = await store.list_runs(session, chosen, limit=limit, after=None)
        found = [run_shapes.run(row) for row in page.rows]
        if as_json:
            for one in found:
                emit(one)
            return True
        table(COLUMNS, [_cells(one) for one in found], empty="There are no such runs.")
        note_rest(page, len(found))
        return True

    run(work)


@command(app, "show")
def show(where: Where, run_id: Id, as_json: AsJson = False) -> None:
    """Show a run: how far it has come, every step, inputs and outputs without secrets."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            shape = await _detail(session, run_id)
        _print(shape, as_json)
        return True

    run(work)


@command(app, "start")
def start(
    where: Where,
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="The workflow's name.")],
    given: Input = None,
    key: Annotated[str | None, typer.Option("--key", help="An idempotency key: the same twice is one run.")] = None,
    correlation_id: Annotated[str | None, typer.Option("--correlation-id", help="Goes into logs.")] = None,
    as_json: AsJson = False,
) -> None:
    """Begin a run of a workflow and print its id. Without an input it is null."""

    async def work() -> bool:
        body = NO_INPUT if given is None else json_of(given, "The input", MAX_PAYLOAD_BYTES)
        _check_text("A key", key, MAX_KEY_CHARS)
        _check_text("A correlation id", correlation_id, MAX_CORRELATION_CHARS)
        async with open_desk(where) as desk:
            run_id = new_id() if key is None else id_of_key(desk.org_id, "run", key)
            async with desk.beyond() as session:
                row = await get_workflow(session, workflow)
                if row is None:
                    raise unknown(workflow)
                begun = NewRun(run_id, body, correlation_id or new_correlation_id())
                verdict = await store.begin_run(session, version_of(row), begun, act_of(), CLOCK)
                if verdict == "conflict":
                    raise Refused(f'The key "{key}" was used for another workflow or input. Choose another one.')
                stored = await store.get_run(session, run_id)
        assert stored is not None, "it was there, or was written in this transaction"
        is_known = verdict == "duplicate"
        if as_json:
            emit({"run_id": run_id, "status": stored["status"], "deduplicated": is_known})
            return True
        say(str(run_id))
        if is_known:
            note(f"It was begun before, and is {stored['status']}.")
        return True

    run(work)


@command(app, "cancel")
def cancel(where: Where, run_id: Id, because: Because = None, as_json: AsJson = False) -> None:
    """Try nothing more of a run. A try that is under way ends first; then the run has failed."""

    async def work() -> bool:
        act = act_of(because)

        async def carry_out() -> Shape:
            async with desk.session() as session:
                refusal = await store.cancel_run(session, run_id, act, CLOCK)
                if refusal is not None:
                    raise _refused(run_id, refusal)
                return await _detail(session, run_id)

        async with open_desk(where) as desk:
            shape = await past_deadlocks(carry_out)
        if as_json:
            emit(shape)
        elif shape["status"] == RunStatus.RUNNING:
            note(f"Run {run_id} is cancelled: it ends with the try that is under way.")
        else:
            note(f"Run {run_id} is cancelled.")
        return True

    run(work)


@command(app, "replay")
def replay(
    where: Where,
    run_id: Id,
    from_step: Annotated[
        int, typer.Option("--from-step", min=0, max=MAX_STEPS - 1, help="The step to begin with, counted from 0.")
    ],
    only: Annotated[bool, typer.Option("--only", help="That step alone, not those behind it.")] = False,
    given: Input = None,
    policy: Annotated[str | None, typer.Option("--policy", help="Try the steps under this policy.")] = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Effects carry another idempotency key, so that they happen again.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the policy's first delay, instead of beginning at once.")
    ] = False,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Run a step again and all behind it, whether they had succeeded, died, or never begun.

    --input is another input for the step that it begins with.
    """

    async def work() -> bool:
        edit = NO_EDIT
        if given is not None:
            edit = Edit(json_of(given, "The input", MAX_PAYLOAD_BYTES))
        asked = Replay("STEP_ONLY" if only else "FROM_STEP", edit, policy, new_key, not wait)
        async with open_desk(where) as desk:
            try:
                shape = await past_deadlocks(lambda: _replay(desk, run_id, from_step, asked, because))
            except EditError as problem:
                raise Refused(f"Run {run_id} cannot be replayed so: {problem}.") from None
        if as_json:
            emit(shape)
        else:
            note(f"Run {run_id} goes on with step {from_step}{', that one alone' if only else ''}.")
        return True

    run(work)


async def _replay(desk: Desk, run_id: UUID, from_step: int, asked: Replay, because: str | None) -> Shape:
    async with desk.session() as session:
        roll = random.random()  # noqa: S311  # jitter, not a secret
        refusal = await replay_run(session, run_id, from_step, asked, act_of(because), CLOCK, roll=roll)
        if refusal is not None:
            raise _refused(run_id, refusal)
        return await _detail(session, run_id)


async def _detail(session: Session, run_id: UUID) -> Shape:
    row = await store.get_run(session, run_id)
    if row is None:
        raise _refused(run_id, RunRefusal.UNKNOWN)
    steps = await store.get_steps(session, run_id)
    return run_shapes.run_detail(row, steps, await store.policies_ahead(session, row))


def _refused(run_id: UUID, refusal: RunRefusal | Refusal) -> Refused:
    match refusal:
        case RunRefusal.UNKNOWN:
            return Refused(f"There is no run {run_id} in this org. `redrive runs list` shows those there are.")
        case RunRefusal.ENDED:
            return Refused(f"Run {run_id} has ended: there is nothing left to cancel.")
        case RunRefusal.UNDER_WAY:
            return Refused(f"Run {run_id} is under way. Wait for its end, or cancel it, then replay.")
    return Refused(explained(run_id, refusal))


def _check_text(what: str, text: str | None, most: int) -> None:
    if text is not None and not (1 <= len(text) <= most and text.isascii() and text.isprintable()):
        raise WrongUsage(f"{what} has 1 to {most} printable ASCII characters.")


def _print(shape: Shape, as_json: bool) -> None:
    if as_json:
        emit(shape)
        return
    facts({name: value for name, value in shape.items() if name not in ("cancelled", "input", "steps")})
    if isinstance(cancelled := shape["cancelled"], dict):
        say("cancelled  " + "  ".join(f"{name} {cell(value)}" for name, value in cancelled.items() if value))
    say("")
    steps = shape["steps"]
    assert isinstance(steps, list)
    table(STEP_COLUMNS, [_step_cells(step) for step in steps], empty="It has no steps.")
    for title, value in (("input", shape["input"]), *((f"output of {s['name']}", s["output"]) for s in steps)):
        if value is not None:
            say(f"\n{title}")
            document(value)


def _cells(one: Shape) -> list[object]:
    done = f"{one['steps_done']} / {one['steps_total']}"
    return [
        *(one["run_id"], one["workflow"], one["version"], one["status"], done),
        *(one["created_at"], one["finished_at"]),
    ]


def _step_cells(step: Shape) -> list[object]:
    most = step["max_retries"]
    retries = "∞" if most is None else most
    return [
        *(step["index"], step["name"], step["kind"], step["status"]),
        f"{step['attempt_count']} (retries {retries})",
        *(step["due_at"], step["dead_letter_id"], step["error_message"]),
    ]
