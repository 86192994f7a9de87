"""What Redrive stands on and talks to besides PostgreSQL: the data folder and its disk, RabbitMQ, the API's address."""

import asyncio
import http.client
import os
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from redrive.core.classify import parse_http_date
from redrive.core.findings import Finding, Seen, problem, warning
from redrive.settings import Settings

SEAL_FILE = "secret.key"
PASSWORD_FILES = ("redrive.password", "superuser.password")
GRAVE_FREE_BYTES = 1024**3
FREE_BYTES, FREE_SHARE = 10 * 1024**3, 0.1  # below both somebody should know
ASK_TIMEOUT_S = 5.0
BROKER_TIMEOUT_S = 5.0
DATE_HEADER_S = 1.0  # it has whole seconds


def look_at_folder(settings: Settings) -> Seen:
    folder = settings.data_dir
    if not folder.exists():
        if settings.database_url is None:
            return Seen(
                f"There is no data folder {folder}.",
                [
                    problem(
                        f"There is no Redrive data at {folder}.",
                        "Nothing was ever started there, or the settings name another folder than `redrive serve` has.",
                        "Start one with `redrive serve`, or say where it is: --data-dir, --database-url.",
                    )
                ],
            )
        return Seen(f"There is no data folder {folder}, and none is needed: the database is elsewhere.")
    found = [*_writable("data folder", folder), *_readable_secrets(folder), *_disk(folder)]
    if settings.archive_dir is not None and settings.archive_dir.exists():
        found += [*_writable("archive", settings.archive_dir), *_disk(settings.archive_dir)]
    elif settings.archive_dir is not None and not _can_be_made(settings.archive_dir):
        found.append(
            problem(
                f"The archive folder {settings.archive_dir} cannot be made.",
                "What the policies no longer keep is not removed before it is archived.",
                f"mkdir -p {settings.archive_dir}, for the user that runs Redrive.",
            )
        )
    free = shutil.disk_usage(folder).free
    return Seen(f"{folder} has {free / 1024**3:.0f} GiB left on its disk.", found)


def _writable(what: str, folder: Path) -> list[Finding]:
    if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return []
    owner = folder.stat().st_uid
    return [
        problem(
            f"The {what} {folder} cannot be written by this user (it belongs to user {owner}).",
            "Redrive cannot start on it, or this is not the user that runs it.",
            "Run `redrive doctor` as the user that runs Redrive, or give the folder to it: chown -R.",
        )
    ]


def _readable_secrets(folder: Path) -> list[Finding]:
    found = []
    for name in (SEAL_FILE, *PASSWORD_FILES):
        try:
            mode = stat.S_IMODE((folder / name).stat().st_mode)
        except OSError:  # it is not there, or nobody but its owner may look
            continue
        if mode & 0o077:
            found.append(
                problem(
                    f"{folder / name} may be read by others than its owner (mode {mode:03o}).",
                    "Whoever has it opens the secrets of endpoints, or the database.",
                    f"chmod 600 {folder / name}",
                )
            )
    return found


def _disk(folder: Path) -> list[Finding]:
    usage = shutil.disk_usage(folder)
    is_little = usage.free < FREE_BYTES and usage.free < FREE_SHARE * usage.total
    if not is_little and usage.free >= GRAVE_FREE_BYTES:
        return []
    tell = problem if usage.free < GRAVE_FREE_BYTES else warning
    return [
        tell(
            f"The disk of {folder} has {usage.free / 1024**3:.1f} GiB left.",
            "When it is full, nothing is accepted any more (503) until there is room.",
            "Make room, or keep less: docs/retention.md says what is kept how long.",
        )
    ]


def _can_be_made(folder: Path) -> bool:
    above = next(parent for parent in folder.parents if parent.exists())
    return os.access(above, os.W_OK | os.X_OK)


async def look_at_broker(settings: Settings) -> Seen:
    try:
        from redrive.broker.link import BrokerDown, close, connect  # its library is an extra
    except ModuleNotFoundError:
        return Seen("The library for RabbitMQ is not installed.")
    try:
        async with asyncio.timeout(BROKER_TIMEOUT_S):
            connection = await connect(settings.broker_urls, name="redrive-doctor")
    except (BrokerDown, TimeoutError) as error:
        what = str(error) or "RabbitMQ did not answer."
        return Seen(
            what,
            [
                problem(
                    what,
                    "Nothing is published to it, and its dead-letter queues are not collected. What is for it is"
                    " retried.",
                    "See that it runs, and that the address, the user and the password of REDRIVE_RABBITMQ_URL are"
                    " right.",
                )
            ],
        )
    await close(connection)
    return Seen("RabbitMQ answers.")


def api_address(settings: Settings) -> str:
    if settings.public_url is not None:
        return settings.public_url
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def nobody_to_ask(settings: Settings) -> Seen:
    """Whoever may answer at that address serves another installation."""
    return Seen(
        f"No Redrive runs here: {api_address(settings)} was not asked.",
        [
            problem(
                f"No Redrive runs on {settings.data_dir}: nothing is accepted or delivered.",
                "It was stopped or killed. What was accepted is kept, and goes on when it runs again.",
                "Start it: `redrive serve`; or see why it ended, in its log or its service manager's.",
            )
        ],
    )


async def look_at_api(settings: Settings, skew_s: float) -> Seen:
    """At its public address, or where the settings have it listen. Where nobody answers there, it may run elsewhere."""
    address = api_address(settings)
    try:
        status, date = await asyncio.to_thread(_ask, address)
    except (OSError, http.client.HTTPException) as error:
        if settings.public_url is None:
            return Seen(f"Nobody answers at {address}: no API runs there, or it has another address.")
        what = f"{address}/readyz does not answer: {str(error) or type(error).__name__}."
        return Seen(
            what,
            [warning(what, "Nobody can hand in events or see pages there.", "See that the API and its proxy run.")],
        )
    found = []
    if status != http.client.OK:
        found.append(
            problem(
                f"{address}/readyz answers {status}.",
                "The API runs and cannot accept events: 503 to all who hand some in.",
                f"curl -i {address}/readyz says why; the log of the API says more.",
            )
        )
    off_s = abs((datetime.now(UTC) - date).total_seconds()) - DATE_HEADER_S if date else 0.0
    if off_s >= skew_s:
        found.append(
            warning(
                f"The clock of the machine at {address} is {off_s:.0f} s off this one's.",
                "Sessions and signatures carry its time.",
                "Keep both right: `timedatectl set-ntp true`, or chrony.",
            )
        )
    return Seen(f"{address}/readyz answers {status}.", found)


def _ask(address: str) -> tuple[int, datetime | None]:
    """The status of /readyz, and what time it is there. No redirect is followed, no proxy of the environment used."""
    parts = urlsplit(address)
    made = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = made(parts.hostname or "", parts.port, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", f"{parts.path}/readyz")
        answer = connection.getresponse()
        date = answer.getheader("date")
        return answer.status, parse_http_date(date) if date else None
    finally:
        connection.close()
