"""`redrive workflows`: the definitions of an org. What `show --json` prints, `apply` takes back."""

from typing import Annotated

import typer

from redrive.api import run_shapes
from redrive.cli.connect import Desk, act_of, open_desk
from redrive.cli.given import read_source, value_of
from redrive.cli.options import AsJson, Because, Where, command
from redrive.cli.output import Column, emit, facts, note, say, table
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.cli.shapes import Shape
from redrive.core.address import AddressRules
from redrive.core.workflow import MAX_DEFINITION_BYTES, StepKind, Workflow, WorkflowError
from redrive.core.workflow_view import restored
from redrive.store.clock import DatabaseClock
from redrive.store.db import Session
from redrive.store.paging import MAX_PAGE_ROWS
from redrive.store.seal import Sealer
from redrive.store.workflows import (
    TooManyWorkflows,
    delete_workflow,
    get_workflow,
    list_workflows,
    put_workflow,
    version_of,
)

MAX_FILE_BYTES = 2 * MAX_DEFINITION_BYTES  # with its blanks
MAX_VERSION = 2**31 - 1
STEP_COLUMNS = (
    Column("step"),
    Column("name"),
    Column("kind"),
    Column("does", gives_way=True),
    Column("policy", gives_way=True),
    Column("retries"),
)

app = typer.Typer(no_args_is_help=True, help="Workflows: list, show, apply, delete.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The workflow's name.")]


@command(app, "list")
def list_(where: Where, as_json: AsJson = False) -> None:
    """List the workflows in force, by name."""

    async def work() -> bool:
        found: list[Shape] = []
        after: tuple[object, ...] | None = None
        async with open_desk(where) as desk, desk.session() as session:
            while True:
                page = await list_workflows(session, limit=MAX_PAGE_ROWS, after=after)
                found += [run_shapes.workflow(row) for row in page.rows]
                if page.next_key is None:
                    break
                after = page.next_key
        if as_json:
            for workflow in found:
                emit(workflow)
            return True
        titles = ("name", "version", "steps", "created", "description")
        table(
            [Column(title, gives_way=title == "description") for title in titles],
            [[w["name"], w["version"], len(_steps(w)), w["created_at"], w["description"]] for w in found],
            empty="There are no workflows. `redrive workflows apply` makes one.",
        )
        return True

    run(work)


@command(app, "show")
def show(
    where: Where,
    name: Name,
    version: Annotated[
        int | None, typer.Option("--version", min=1, max=MAX_VERSION, help="This one, not the one in force.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a workflow and its steps, without what looks secret."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            row = await get_workflow(session, name, version)
        if row is None:
            raise unknown(name, version)
        shape = run_shapes.workflow(row)
        if as_json:
            emit(shape)
            return True
        facts({key: value for key, value in shape.items() if key != "steps"})
        say("")
        steps = [[at, *_step_cells(step)] for at, step in enumerate(_steps(shape))]
        table(STEP_COLUMNS, steps, empty="It has no steps.")
        return True

    run(work)


@command(app, "apply")
def apply(
    where: Where,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The definition: a file with JSON, or - for stdin.")],
    name: Annotated[str | None, typer.Option("--name", help="Its name, whatever the file says.")] = None,
    because: Because = None,
    as_json: AsJson = False,
) -> None:
    """Make a workflow, or a new version of it. The same definition again changes nothing; runs keep their version."""

    async def work() -> bool:
        given = value_of(read_source(file, MAX_FILE_BYTES), "The definition", MAX_FILE_BYTES)
        if not isinstance(given, dict):
            raise WrongUsage("The definition must be a JSON object with steps.")
        called = name if name is not None else given.get("name")
        if not isinstance(called, str):
            raise WrongUsage("The workflow has no name. Give it one with --name, or in the file.")
        async with open_desk(where) as desk, desk.session() as session:
            workflow, sealer = await _read(desk, session, called, given)
            try:
                workflow.check_reach(AddressRules(desk.settings.allow_networks))
                row, is_new = await put_workflow(session, workflow, act_of(because), DatabaseClock(), sealer)
            except WorkflowError as problem:
                raise Refused(_told(called, problem)) from None
            except TooManyWorkflows as problem:
                raise Refused(f"{problem}.") from None
        if as_json:
            emit(run_shapes.workflow(row))
        else:
            change = "is now at" if is_new else "is as it was, at"
            note(f'Workflow "{called}" {change} version {row["version"]}.')
        return True

    run(work)


@command(app, "delete")
def delete(where: Where, name: Name, because: Because = None, as_json: AsJson = False) -> None:
    """Take a workflow out of force: no run begins with it any more, those that there are go on."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            if not await delete_workflow(session, name, act_of(because)):
                raise unknown(name)
        if as_json:
            emit({"name": name, "deleted": True})
        else:
            note(f'Workflow "{name}" is deleted. Its runs go on.')
        return True

    run(work)


async def _read(desk: Desk, session: Session, name: str, given: dict[str, object]) -> tuple[Workflow, Sealer | None]:
    """The workflow that is meant, and the key of its headers where it has some: else the command needs none."""
    before = await get_workflow(session, name)
    sealer = await desk.sealer() if before is not None and before["headers_sealed"] is not None else None
    spec: object = {key: value for key, value in given.items() if key not in run_shapes.SHOWN_BESIDES | {"name"}}
    if before is not None:
        spec = restored(spec, version_of(before, sealer).workflow.to_spec())
    try:
        workflow = Workflow.from_spec(name, spec)
    except WorkflowError as problem:
        raise WrongUsage(_told(name, problem)) from None
    if sealer is None and workflow.literal_headers:
        sealer = await desk.sealer()
    return workflow, sealer


def _told(name: str, problem: WorkflowError) -> str:
    """Everything that is wrong, each with its place."""
    lines = [f"  {'.'.join(map(str, place)) or 'definition'}: {message}" for place, message in problem.errors]
    return "\n".join([f'The definition of "{name}" cannot be used:', *lines])


def unknown(name: str, version: int | None = None) -> Refused:
    which = f'workflow "{name}"' if version is None else f'version {version} of a workflow "{name}"'
    return Refused(f"There is no {which} in this org. `redrive workflows list` shows those there are.")


def _steps(shape: Shape) -> list[dict[str, object]]:
    steps = shape["steps"]
    assert isinstance(steps, list)
    return steps


def _step_cells(step: dict[str, object]) -> list[object]:
    policy = step["policy"]
    return [
        step["name"],
        step["kind"],
        _deed(step),
        policy if isinstance(policy, str) else "its own",
        step.get("max_retries", "as its policy"),
    ]


def _deed(step: dict[str, object]) -> object:
    """What a step does, in a few words."""
    match step["kind"]:
        case StepKind.HTTP:
            return f"{step['method']} {step['url'] if 'url' in step else step['endpoint']}"
        case StepKind.HANDLER:
            return step["handler"]
        case StepKind.EMIT:
            return step["event_type"]
    return f"until {step['until']}" if "until" in step else f"{step['wait_s']} s"
