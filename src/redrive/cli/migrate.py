"""`redrive migrate`: bring a database's schema up to date. `redrive serve` does it by itself."""

import typer

from redrive.cli.connect import SLOW, reach, settings_of, with_a_note
from redrive.cli.options import AsJson, Place, command
from redrive.cli.output import emit, note
from redrive.cli.runner import run
from redrive.store.db import connect
from redrive.store.migrate import migrate, schema_version


def add_to(app: typer.Typer) -> None:
    command(app, "migrate")(migrate_)


def migrate_(place: Place, as_json: AsJson = False) -> None:
    """Apply the migrations that a database lacks. Any number of processes may do so at once."""

    async def work() -> bool:
        settings = settings_of(place)
        async with reach(settings, any_schema=True) as url:
            connection = await connect(settings.direct_url(url) or url, name="redrive-migrate")
            try:
                applied = await with_a_note(migrate(connection), SLOW)
                version = await schema_version(connection)
            finally:
                await connection.close()
        if as_json:
            emit({"applied": [migration.title for migration in applied], "schema": version})
            return True
        for migration in applied:
            note(f"Applied {migration.title}.")
        note(f"The database is at schema {version}" + ("." if applied else ": there was nothing to do."))
        return True

    run(work)
