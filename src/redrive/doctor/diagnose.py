"""All examinations, one after the other. Whatever becomes of one, the others are made, as far as there is something to
examine.

Called by the command line, which finds the database; tests call it with clocks and limits of their own.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from redrive.core.brief import brief
from redrive.core.findings import Diagnosis, Examined, Seen, examined, not_made, problem, warning
from redrive.doctor.configuration import look_at_settings
from redrive.doctor.mail import MAIL, look_at_mail
from redrive.doctor.surroundings import SEAL_FILE, look_at_api, look_at_broker, look_at_folder, nobody_to_ask
from redrive.settings import Settings
from redrive.store.clock import DatabaseClock
from redrive.store.db import shown
from redrive.store.embedded import prompt
from redrive.store.examinations.looking import Examination, Limits, Looking, examine
from redrive.store.examinations.queue import QUEUE
from redrive.store.examinations.schema import CATALOGUED, MIGRATIONS
from redrive.store.examinations.server import Clock, server_examinations, this_machines_clock
from redrive.store.examinations.upkeep import LOCKS, UPKEEP
from redrive.store.postgres_folder import LOG
from redrive.store.seal import Sealer
from redrive.store.workers import MAX_WORKERS_SHOWN

SETTINGS = "settings", "The settings can be read, and do not contradict each other."
FOLDER = "data folder", "The data folder is Redrive's own, and its disk has room."
BROKER = "rabbitmq", "RabbitMQ can be reached."
API = "api", "The API answers, and accepts."
CONNECTION = "connection"


async def diagnose(
    settings: Settings,
    url: str | None,
    *,
    limits: Limits | None = None,
    clock: Clock = this_machines_clock,
    nobody_runs: bool = False,
) -> Diagnosis:
    """`url`: the database, or None where none was found (the caller says why, by an examination of its own).

    `nobody_runs`: the embedded server was started for this, and no process of Redrive can have reached it.
    """
    limits = limits or Limits()
    made = [
        await _made(*SETTINGS, lambda: _at_once(partial(look_at_settings, environment=os.environ), settings)),
        await _made(*FOLDER, lambda: _at_once(look_at_folder, settings)),
    ]
    if url is not None:
        made += await _database(settings, Looking(url, limits, nobody_runs), clock)
    if settings.broker_urls:
        made.append(await _made(*BROKER, lambda: look_at_broker(settings)))
    if settings.smtp_url is not None:
        made.append(await _made(*MAIL, lambda: look_at_mail(settings)))
    if nobody_runs:
        made.append(await _made(*API, lambda: _at_once(nobody_to_ask, settings)))
    else:
        made.append(await _made(*API, lambda: look_at_api(settings, limits.skew_s)))
    return Diagnosis(datetime.now(UTC), tuple(made))


def unreadable(why: str) -> Diagnosis:
    """Where the settings cannot be read, nobody knows what to examine."""
    found = [problem(line, "No process of Redrive starts with it.", "Correct it.") for line in why.splitlines()]
    seen = Seen("The settings cannot be read.", found)
    return Diagnosis(datetime.now(UTC), (examined(*SETTINGS, seen, 0.0),))


_FIX = "See that it runs, and that the address, the user and the password are right; then run this again."


def unreachable(why: str, fix: str = _FIX) -> Examined:
    seen = Seen(why, [problem(why, "Nothing works without the database, and nothing of it can be examined.", fix)])
    return examined(CONNECTION, "The database can be reached.", seen, 0.0)


def _without_answer(settings: Settings, url: str, saw: str) -> Examined:
    if settings.database_url is not None:
        return unreachable(f"The database {_shown(url)} cannot be reached: {saw}")
    return unreachable(
        f"The PostgreSQL of the data folder {settings.data_dir} does not answer: {saw}",
        f"Its log, {settings.data_dir / LOG}, may say why. If it does not help, end the `redrive serve` that runs it, "
        "and start it again: what was accepted is kept. Then run this again.",
    )


def without_database(diagnosis: Diagnosis, why: str) -> Diagnosis:
    """The same with the one finding that there is no database to examine."""
    return Diagnosis(diagnosis.at, (*diagnosis.examinations[:2], unreachable(why), *diagnosis.examinations[2:]))


async def _at_once(look: Callable[[Settings], Seen], settings: Settings) -> Seen:
    return look(settings)


async def _made(name: str, title: str, look: Callable[[], Awaitable[Seen]]) -> Examined:
    began = time.monotonic()
    try:
        seen = await look()
    except Exception as error:  # noqa: BLE001 - whatever it is, the others are made
        return not_made(name, title, f"{brief(error)}.", time.monotonic() - began)
    return examined(name, title, seen, time.monotonic() - began)


async def _database(settings: Settings, looking: Looking, clock: Clock) -> list[Examined]:
    try:
        direct_url = settings.database_direct_url if settings.database_url is not None else None
        server = server_examinations(clock, pooler=settings.pooler != "none", direct_url=direct_url)
        made = await examine(looking, server[:1])
        if not made[0].made:
            made = [_without_answer(settings, looking.url, made[0].saw)]
            return made + _left_out(
                [*server[1:], LOCKS, MIGRATIONS, *CATALOGUED, *UPKEEP, *QUEUE], "The database does not answer."
            )
        if settings.database_url is None and not looking.nobody_runs:  # else it ends with this command
            line = await asyncio.to_thread(prompt, settings.data_dir)
            made = [replace(made[0], saw=f"{made[0].saw} For SQL: {line}")] if line else made
        made += await examine(looking, [*server[1:], LOCKS, MIGRATIONS])
        if not made[-1].is_fine:
            is_other = "The schema is not the one that this Redrive knows."
            why = is_other if made[-1].made else "What was applied to the database could not be seen."
            left = _left_out([*CATALOGUED, *QUEUE], why)
            return made + await examine(looking, UPKEEP) + left
        made += await examine(looking, [*CATALOGUED, *UPKEEP, *QUEUE])
        return made + await examine(looking, [_keys(settings)])
    finally:
        await looking.close()


def _shown(url: str) -> str:
    try:
        return shown(url)
    except ValueError:
        return "of the settings"


def _left_out(examinations: Sequence[Examination], why: str) -> list[Examined]:
    return [not_made(one.name, one.title, why, is_problem=False) for one in examinations]


def _keys(settings: Settings) -> Examination:
    async def look(looking: Looking) -> Seen:
        """What settings and database only tell together."""
        row = await looking.row("doctor_orgs", settings.rabbitmq_org, as_engine=True)
        workers = await looking.rows("list_workers", DatabaseClock().now(), MAX_WORKERS_SHOWN, as_engine=True)
        hosts = {worker["host"] for worker in workers}
        file = settings.data_dir / SEAL_FILE
        found = []
        if settings.secret_key is not None:
            sealer: Sealer | None = Sealer.from_passphrase(settings.secret_key.get_secret_value())
        else:
            sealer = Sealer.from_file(file) if file.exists() else None
        if sealer is not None and row["seal_check"] is not None and not sealer.proves(row["seal_check"]):
            found.append(
                problem(
                    "The secrets in the database were sealed with another key than this machine has.",
                    "Processes that need it refuse to start here.",
                    "Set REDRIVE_SECRET_KEY to the one the database was first started with, or copy secret.key from"
                    " there.",
                )
            )
        if settings.database_url is not None and settings.secret_key is None and len(hosts) > 1:
            found.append(
                warning(
                    f"Workers run on {len(hosts)} machines, and REDRIVE_SECRET_KEY is not set.",
                    "Each machine needs the same secret.key; one that is set up without a copy of it refuses to start.",
                    "Set REDRIVE_SECRET_KEY everywhere when the installation is next set up anew, and keep copies"
                    " of secret.key until then.",
                )
            )
        if settings.broker_urls and not row["is_there"]:
            found.append(
                problem(
                    f"RabbitMQ belongs to the org {settings.rabbitmq_org!r}, which does not exist.",
                    "Dead messages are not collected, and endpoints of its kind cannot be made.",
                    f"redrive orgs create {settings.rabbitmq_org}, or set REDRIVE_RABBITMQ_ORG.",
                )
            )
        knows = "is here" if sealer is not None else "is not on this machine"
        return Seen(f"The key that secrets are sealed with {knows}.", found)

    return Examination("keys", "This machine has the key that secrets are sealed with.", look)
