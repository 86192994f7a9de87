"""Write down what the migrations make, for `redrive doctor` to compare databases with. Run by `make catalogue`, after a
migration was added: tests/store/test_examinations.py says when it is due.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path

import asyncpg

import redrive.store.examinations
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.examinations.looking import Limits, Looking
from redrive.store.examinations.schema import CATALOGUE, as_text, catalogue_of
from redrive.store.migrate import migrate


async def read_off(folder: Path) -> str:
    postgres = await EmbeddedPostgres.start(folder, settings={"fsync": "off"})
    try:
        connection = await asyncpg.connect(postgres.url)
        await migrate(connection)
        await connection.close()
        looking = Looking(postgres.url, Limits())
        made = catalogue_of(await looking.rows("doctor_catalogue"))
        await looking.close()
    finally:
        await postgres.stop()
    return as_text(made)


folder = Path(tempfile.mkdtemp(prefix="rd-", dir="/tmp"))
folder.chmod(0o755)  # PostgreSQL's own account must pass through
try:
    text = asyncio.run(read_off(folder))
finally:
    shutil.rmtree(folder)
(Path(redrive.store.examinations.__path__[0]) / CATALOGUE).write_text(text, encoding="utf-8")
