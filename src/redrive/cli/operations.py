"""`redrive operations`: bulk actions of an org, how far they have come, and a person's word to them."""

from typing import Annotated
from uuid import UUID

import typer

from redrive.api.operation_shapes import Shape, operation
from redrive.cli.connect import act_of, open_desk
from redrive.cli.lookup import require_one_of
from redrive.cli.options import AsJson, Because, Id, Limit, Where, command
from redrive.cli.output import Column, emit, facts, note, say, table
from redrive.cli.runner import Refused, run
from redrive.core.operations import Command, OperationState
from redrive.store.clock import DatabaseClock
from redrive.store.operations import CannotBeTold, get_operation, list_operations, tell

app = typer.Typer(no_args_is_help=True, help="Bulk actions: list, show, pause, resume, cancel.")

State = Annotated[
    str | None, typer.Option("--state", help="preparing, running, paused, cancelled or completed.", show_default=False)
]
COLUMNS = (
    Column("id"),
    Column("action"),
    Column("subject"),
    Column("state"),
    Column("done"),
    Column("failed"),
    Column("created"),
    Column("because", gives_way=True),
)


@command(app, "list")
def list_(where: Where, state: State = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List bulk actions, newest first."""

    async def work() -> bool:
        require_one_of("state", state, (each.value for each in OperationState))
        async with open_desk(where) as desk, desk.session() as session:
            page = await list_operations(session, state=state, limit=limit, after=None)
        found = [operation(row) for row in page.rows]
        if as_json:
            for shape in found:
                emit(shape)
            return True
        table(COLUMNS, [_cells(shape) for shape in found], empty="No bulk action was begun yet.")
        if page.next_key is not None:
            note(f"{len(found)} of {page.total} are shown. --limit shows more, --state fewer.")
        return True

    run(work)


@command(app, "show")
def show(where: Where, operation_id: Id, as_json: AsJson = False) -> None:
    """Show a bulk action: what it does to what, and how far it has come."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            row = await get_operation(session, operation_id)
        if row is None:
            raise _unknown(operation_id)
        shape = operation(row)
        if as_json:
            emit(shape)
        else:
            facts({name: value for name, value in shape.items() if name != "operation_id"})
        return True

    run(work)


@command(app, "pause")
def pause(where: Where, operation_id: Id, because: Because = None, as_json: AsJson = False) -> None:
    """Act on nothing more until it is resumed. What is under way ends, and is counted."""
    _tell(where, operation_id, Command.PAUSE, because, as_json)


@command(app, "resume")
def resume(where: Where, operation_id: Id, because: Because = None, as_json: AsJson = False) -> None:
    """Go on where it was paused, or where it paused itself."""
    _tell(where, operation_id, Command.RESUME, because, as_json)


@command(app, "cancel")
def cancel(where: Where, operation_id: Id, because: Because = None, as_json: AsJson = False) -> None:
    """Act on nothing more, ever. What was done stays done."""
    _tell(where, operation_id, Command.CANCEL, because, as_json)


def _tell(where: Where, operation_id: UUID, word: Command, because: str | None, as_json: bool) -> None:
    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            changed = await tell(session, operation_id, word, act_of(because), DatabaseClock())
        if changed is None:
            raise _unknown(operation_id)
        if isinstance(changed, CannotBeTold):
            raise Refused(f"The operation is {changed.state}: there is nothing to {word}.")
        shape = operation(changed)
        if as_json:
            emit(shape)
        else:
            say(f"{shape['id']} is {shape['state']}: {shape['progress']}.")
        return True

    run(work)


def _unknown(operation_id: UUID) -> Refused:
    return Refused(
        f"There is no operation {operation_id} in this org. `redrive operations list` shows those there are."
    )


def _cells(shape: Shape) -> list[object]:
    return [
        shape["id"],
        shape["action"],
        str(shape["subject"]).replace("_", " "),
        shape["state"],
        f"{shape['done']} / {shape['total']}",
        shape["failed"],
        shape["created_at"],
        shape["because"],
    ]
