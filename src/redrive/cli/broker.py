"""`redrive broker`: the queues of a broker that dead letters come from, as collectors see them."""

import typer

from redrive.api import broker_shapes
from redrive.cli.connect import open_desk
from redrive.cli.options import AsJson, Where, command
from redrive.cli.output import Column, emit, table
from redrive.cli.runner import run
from redrive.cli.shapes import Shape
from redrive.store.dead_messages import list_queues

COLUMNS = (
    Column("queue", gives_way=True),
    Column("collected from"),
    Column("waiting"),
    Column("consumers"),
    Column("collected"),
    Column("known before"),
    Column("open letters"),
    Column("seen"),
    Column("problem", gives_way=True),
)


def add_to(app: typer.Typer) -> None:
    command(app, "broker")(broker)


def broker(where: Where, as_json: AsJson = False) -> None:
    """List the queues of RabbitMQ that dead letters are collected from, and those that messages died in."""

    async def work() -> bool:
        async with open_desk(where) as desk, desk.session() as session:
            queues = [broker_shapes.queue(row) for row in await list_queues(session)]
        if as_json:
            for queue in queues:
                emit(queue)
            return True
        table(COLUMNS, [_cells(queue) for queue in queues], empty="No collector has seen a queue yet.")
        return True

    run(work)


def _cells(queue: Shape) -> list[object]:
    return [
        queue["queue"],
        "yes" if queue["is_source"] else "no",
        queue["messages"],
        queue["consumers"],
        queue["collected"],
        queue["duplicates"],
        f"{queue['open_letters']}{'' if queue['is_whole'] else '+'}",
        queue["seen_at"],
        queue["problem"],
    ]
