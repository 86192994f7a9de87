"""`redrive doctor`, `tail` and `top` on an installation as people start it, and on what may be wrong around one."""

import asyncio
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import termios
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from client.harness import Authority
from conftest import create_database, database_of
from redrive.cli.runner import Refused
from redrive.cli.top import _chosen
from redrive.cli.top_view import lines, shape
from redrive.core.findings import Diagnosis, Severity
from redrive.doctor import surroundings
from redrive.doctor.configuration import NO_SETTINGS, look_at_settings
from redrive.doctor.diagnose import diagnose, unreadable
from redrive.doctor.mail import look_at_mail
from redrive.doctor.surroundings import api_address, look_at_api, look_at_folder
from redrive.settings import Settings, load_settings
from redrive.store.clock import DatabaseClock
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.examinations.looking import Limits, Looking
from redrive.store.examinations.server import look_at_direct
from redrive.store.orgs import next_org
from redrive.store.overview import overview
from support.http import HttpClient
from support.mail import mail_server
from support.pgbouncer import pgbouncer
from support.processes import ADMIN_KEY, SECRET_KEY, Program, Served, program, serve, until
from support.receiver import Answer, open_receiver

from .command import COMMAND, clean_env, redrive
from .world import World, make_org

DATABASE = "examined"
LISTENERS = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'redrive-listen'"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(postgres: EmbeddedPostgres, template_database: str) -> AsyncIterator[Served]:
    """With the log all but silent: what is watched does not depend on it."""
    await create_database(postgres, DATABASE, template_database)
    url = database_of(postgres.url, DATABASE)
    async with serve("--workers", "1", env={"REDRIVE_LOG_LEVEL": "critical", "REDRIVE_DATABASE_URL": url}) as running:
        sql = await asyncpg.connect(url)
        async with asyncio.timeout(20):
            while await sql.fetchval(LISTENERS) < 2:
                await asyncio.sleep(0.05)
        await sql.close()
        yield running


@pytest.fixture
def place(served: Served, postgres: EmbeddedPostgres) -> dict[str, str]:
    """The environment in which commands find it."""
    return {"REDRIVE_DATABASE_URL": database_of(postgres.url, DATABASE), "REDRIVE_SECRET_KEY": SECRET_KEY}


async def test_what_happens_is_seen_as_it_happens_whatever_the_log_says(served: Served, place: dict[str, str]) -> None:
    """Accepted, failed, delivered, dead by processes; redriven by a person at another command."""
    api = HttpClient(served.host, served.port, ADMIN_KEY)
    async with open_receiver() as receiver, program("tail", "--json", env=place) as tail:
        receiver.script(404)
        added = await api.post(
            "/v1/endpoints", {"name": "till", "url": receiver.url, "event_types": ["tail.*"], "policy": "immediate"}
        )
        assert added.status == 201
        one_only = program("tail", "--status", "failed", "--event-type", "tail.d*", "--endpoint", "till", env=place)
        async with one_only as filtered:
            for running in (tail, filtered):
                await until(partial(heard, running, "Watching 2 processes"), within_s=20)
            secret = {"event_type": "tail.dies", "payload": {"canary": "never-shown"}, "correlation_id": "c-1"}
            died = (await api.post("/v1/events", secret)).json["event_id"]
            await until(lambda: "dead" in seen_of(tail, died))
            lived = (await api.post("/v1/events", {**secret, "event_type": "tail.lives"})).json["event_id"]
            # By two processes: of one that is kept from its turn the line comes later.
            await until(lambda: sorted(seen_of(tail, lived)) == ["accepted", "delivered"])
            retried = await redrive("dead", "retry", "--all", "--event-type", "tail.*", "--now", env=place)
            assert retried.code == 0, retried.err
            await until(lambda: sorted(seen_of(tail, died)) == ["accepted", "dead", "delivered", "redriven"])
            [dead] = [json.loads(line) for line in tail.out if f'"{died}"' in line and '"dead"' in line]
            assert (dead["endpoint"], dead["org"], dead["correlation_id"]) == ("till", "default", "c-1")
            await until(lambda: len(filtered.out) == 1)
            assert re.fullmatch(
                rf"\d\d:\d\d:\d\d dead +default tail.dies {died} → till  permanent: HTTP 404.*", filtered.out[0]
            )
            assert "never-shown" not in "".join(tail.out + filtered.out)
            filtered.send(signal.SIGINT)
            async with asyncio.timeout(10):
                assert await filtered.process.wait() == 130
            assert not heard(filtered, "Traceback")
    api.close()


def heard(running: Program, words: str) -> bool:
    return any(words in line.get("text", "") for line in running.log)


def seen_of(running: Program, event_id: str) -> list[str]:
    return [line["what"] for line in map(json.loads, running.out) if line.get("event_id") == event_id]


async def test_on_a_terminal_top_fits_it_and_takes_keys(served: Served, place: dict[str, str]) -> None:
    """A real terminal, which becomes small on the way."""
    terminal, other_end = pty.openpty()
    resize(terminal, rows=30, columns=100)
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "top",
        "--every",
        "0.5",
        stdin=other_end,
        stdout=other_end,
        stderr=asyncio.subprocess.PIPE,
        env=clean_env(TERM="xterm-256color", **place) | {"COLUMNS": "", "LINES": ""},
        cwd="/",
    )
    screen = Screen(terminal)
    try:
        await until(lambda: "redrive top  all orgs" in screen.text and "1 of 1" not in screen.text, within_s=20)
        await until(lambda: "seen" in screen.text and "q quit" in screen.text)
        os.write(terminal, b"o")
        await until(lambda: "redrive top  default" in screen.text)
        os.write(terminal, b"p")
        await until(lambda: "PAUSED" in screen.text)
        resize(terminal, rows=6, columns=30)
        await until(lambda: "15 minutes" in screen.frame and max(map(len, screen.frame.split("\n"))) <= 30)
        os.write(terminal, b"q")
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        screen.close()
        os.close(terminal)
        os.close(other_end)


class Screen:
    """What a program has written to a terminal, without what only moves the cursor or colours."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._written = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(terminal, self._read)

    def _read(self) -> None:
        self._written += os.read(self._terminal, 65_536)

    @property
    def text(self) -> str:
        return _plain(self._written)

    @property
    def frame(self) -> str:
        """What was drawn last: since the cursor went home."""
        return _plain(self._written.rpartition(b"\x1b[H")[2]).replace("\r", "")

    def close(self) -> None:
        self._loop.remove_reader(self._terminal)


def _plain(written: bytes) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode(errors="replace"))


def resize(terminal: int, *, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def test_top_counts_what_there_is_of_all_orgs_or_of_one(world: World) -> None:
    await make_org(world.engine, "another")
    await world.succeeded()
    await world.dead()
    await world.retrying()
    await world.leased()
    ended = await redrive("top", "--once", "--json", url=world.url)
    told = ended.object
    assert told["depth"] == {"waiting": 1, "retrying": 1, "in_flight": 1, "held": 0}
    assert told["dead_letters"] == {"open": 1, "replaying": 0}
    assert sum(minute["delivered"] for minute in told["minutes"]) == 1
    assert told["success_rate"] == 0.5
    [group] = told["groups"]
    assert (group["n"], group["event_type"]) == (1, "order.paid")
    another = await _chosen(world.engine, "another")
    other = shape(await overview(world.engine, another, DatabaseClock()))
    assert (other["depth"]["waiting"], other["groups"], other["success_rate"]) == (0, [], None)
    plain = (await redrive("top", url=world.url)).out  # no terminal: once, and plain
    assert "depth              1 waiting  1 retrying  1 in flight  0 held" in plain
    assert "\x1b" not in plain
    with pytest.raises(Refused, match="nobody"):
        await _chosen(world.engine, "nobody")


async def test_top_fits_whatever_terminal_there_is(world: World) -> None:
    await world.dead()
    chosen = await next_org(world.engine, None)
    assert chosen is not None
    for org in (None, chosen):
        seen = await overview(world.engine, org, DatabaseClock())
        for width in (1, 10, 30, 69, 80, 200):
            for height in (1, 2, 5, 8, 12, 24, 60):
                drawn = lines(seen, width=width, height=height)
                assert 0 < len(drawn) <= height
                assert max(line.cell_len for line in drawn) <= width


async def test_through_a_pooler_tail_says_that_it_cannot_and_what_to_set(
    world: World, database_url: str, data_dir: Path, postgres: EmbeddedPostgres
) -> None:
    with pgbouncer(database_url, data_dir) as pooled:
        given = {"REDRIVE_DATABASE_POOLER": "transaction"}
        ended = await redrive("tail", url=pooled, env=given)
        assert ended.code == 1
        assert "REDRIVE_DATABASE_DIRECT_URL" in ended.err
        told = load_settings(database_url=pooled, database_pooler="transaction", database_direct_url=database_url)
        examined = await diagnose(told, pooled)
        assert [one.name for one in examined.examinations if not one.made] == []
        assert not any("pooler" in what or "DIRECT" in what for what in _said(examined))
        untold = await diagnose(load_settings(database_url=pooled), pooled)
        assert any(what.startswith("A pooler lends server connections") for what in _said(untold))
        for direct, says in (
            (pooled, "leads through a pooler"),
            ("postgresql://nobody@127.0.0.1:9/nothing", "leads to no database: ConnectionRefusedError"),
            (postgres.url, "lead to different databases"),
        ):
            looking = Looking(pooled, Limits())
            assert says in (await look_at_direct(looking, direct)).findings[0].what
            await looking.close()


def _said(diagnosis: Diagnosis) -> list[str]:
    return [finding.what for examined in diagnosis.examinations for finding in examined.findings]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"allow_networks": "0.0.0.0/0"}, "nearly everything"),
        ({"allow_networks": "169.254.0.0/16"}, "169.254.169.254"),
        ({"allow_networks": "127.0.0.0/8", "host": "0.0.0.0", "public_url": "http://a.example"}, "this machine itself"),
        ({"host": "0.0.0.0"}, "REDRIVE_PUBLIC_URL is not set"),
        ({"public_url": "https://a.example"}, "REDRIVE_TRUST_PROXY is not set"),
        (
            {"database_url": "postgresql://a/b", "database_pooler": "transaction"},
            "REDRIVE_DATABASE_DIRECT_URL is not set",
        ),
        ({"database_direct_url": "postgresql://a/b"}, "but not REDRIVE_DATABASE_URL"),
        ({"rabbitmq_collect": "a-dlq"}, "but REDRIVE_RABBITMQ_URL is not set"),
        ({"log_level": "error"}, "The log level is error"),
        ({"admin_key": "short"}, "REDRIVE_ADMIN_KEY has fewer"),
    ],
)
def test_settings_that_contradict_each_other_or_are_risky_are_told(given: dict[str, Any], says: str) -> None:
    [finding] = look_at_settings(load_settings(**given)).findings
    assert says in finding.what


def test_a_name_in_the_environment_that_nobody_reads_is_told_without_what_it_says() -> None:
    environment = {
        "REDRIVE_CONCURENCY": "a-secret",
        "REDRIVE_SOMETHING_ELSE": "a-secret",
        "redrive_concurrency": "7",  # case does not matter
        "REDRIVE_CONFIG": "/etc/redrive.toml",
        "REDRIVE_RETENTION_EVERY": "",
        "REDRIVE_SERVICE_HOST": "10.0.0.1",
        "REDRIVE_PORT_8080_TCP_ADDR": "10.0.0.1",
        "PATH": "/bin",
    }
    found = look_at_settings(load_settings(), environment).findings
    assert [(finding.severity, finding.what) for finding in found] == [
        (Severity.WARNING, "REDRIVE_CONCURENCY is no setting; is REDRIVE_CONCURRENCY meant?"),
        (Severity.WARNING, "REDRIVE_SOMETHING_ELSE is no setting."),
    ]
    assert "a-secret" not in repr(found)


def test_whatever_else_is_read_from_the_environment_is_known_to_be_no_setting() -> None:
    files = Path(str(resources.files("redrive"))).rglob("*.py")
    source = "".join(file.read_text() for file in files if file.name != "configuration.py")
    named = set(re.findall(r'"(REDRIVE_[A-Z_]+[A-Z])"', source))
    assert named - {f"REDRIVE_{name.upper()}" for name in Settings.model_fields} == NO_SETTINGS


async def test_the_doctor_looks_at_the_environment_it_has() -> None:
    ended = await redrive("doctor", "--json", url="postgresql://me@127.0.0.1:9/books", env={"REDRIVE_PROT": "1"})
    assert "REDRIVE_PROT is no setting; is REDRIVE_PORT meant?" in ended.out


def test_settings_as_they_come_are_fine() -> None:
    assert look_at_settings(load_settings()).findings == []
    assert look_at_settings(load_settings(allow_networks="10.1.0.0/16,127.0.0.0/8")).findings == []


def test_a_data_folder_that_others_can_read_or_that_is_not_there_is_told(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path)
    assert look_at_folder(settings).findings == []
    (tmp_path / "secret.key").write_text("0" * 64)
    (tmp_path / "secret.key").chmod(0o644)
    [finding] = look_at_folder(settings).findings
    assert finding.fix == f"chmod 600 {tmp_path / 'secret.key'}"
    [gone] = look_at_folder(load_settings(data_dir=tmp_path / "nothing")).findings
    assert gone.severity is Severity.PROBLEM
    assert not look_at_folder(load_settings(data_dir=tmp_path / "nothing", database_url="postgresql://a/b")).findings


def test_a_disk_with_little_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is what this disk has; how little of it is too little is set."""
    free = shutil.disk_usage(tmp_path).free
    settings = load_settings(data_dir=tmp_path, archive_dir=tmp_path)
    monkeypatch.setattr(surroundings, "FREE_BYTES", free * 2)
    monkeypatch.setattr(surroundings, "FREE_SHARE", 1.1)
    monkeypatch.setattr(surroundings, "GRAVE_FREE_BYTES", 0)
    assert [found.severity for found in look_at_folder(settings).findings] == [Severity.WARNING] * 2
    monkeypatch.setattr(surroundings, "GRAVE_FREE_BYTES", free * 2)
    assert [found.severity for found in look_at_folder(settings).findings] == [Severity.PROBLEM] * 2


async def test_an_api_that_can_accept_nothing_or_has_another_time_is_told() -> None:
    at = "%a, %d %b %Y %H:%M:%S GMT"
    async with open_receiver() as receiver:
        settings = load_settings(public_url=receiver.url.rpartition("/")[0])
        for status, date, told in (
            (200, f"{datetime.now(UTC):{at}}", []),
            (503, f"{datetime.now(UTC):{at}}", ["answers 503."]),
            (200, f"{datetime.now(UTC) - timedelta(hours=1):{at}}", ["s off this one's."]),
            (200, "yesterday", []),
            (503, "Tue, 01 Jan 2030 00:00:00 -0000", ["answers 503.", "s off this one's."]),
        ):
            receiver.script(Answer(status, headers={"date": date}))
            found = (await look_at_api(settings, skew_s=5.0)).findings
            assert all(finding.what.endswith(words) for finding, words in zip(found, told, strict=True))


async def test_around_a_database_that_is_away_the_rest_is_examined(tmp_path: Path) -> None:
    settings = load_settings(
        data_dir=tmp_path,
        database_url="postgresql://nobody:a-password@127.0.0.1:9/nothing",
        rabbitmq_url="amqp://u:a-password@127.0.0.1:9/",
        smtp_url="smtp://u%40sender.test:a-password@127.0.0.1:9/",
        public_url="http://127.0.0.1:9",
    )
    diagnosis = await diagnose(settings, settings.database_url)
    told = {one.name: one for one in diagnosis.examinations}
    assert [name for name, one in told.items() if one.findings] == ["connection", "rabbitmq", "mail", "api"]
    assert not told["due"].made
    assert diagnosis.needs_somebody
    assert "The database nothing at 127.0.0.1:9 cannot be reached: ConnectionRefusedError" in told["connection"].saw
    assert "a-password" not in repr(diagnosis)


async def test_a_mail_server_is_asked_whether_it_takes_mail_of_ours_and_gets_none(tmp_path: Path) -> None:
    authority = Authority.create()
    (tmp_path / "ca.pem").write_text(authority.pem)
    ca = f"ca={tmp_path / 'ca.pem'}"
    with mail_server(certificate=authority.server_files(tmp_path, "localhost"), password="a-password") as mail:
        place = f"localhost:{mail.port}"
        seen = [
            await look_at_mail(load_settings(smtp_url=f"smtp://{given}", mail_from="redrive@sender.test"))
            for given in (
                f"ops:a-password@{place}?{ca}",
                f"ops:not-a-password@{place}?{ca}",
                f"ops:a-password@{place}",
                f"{place}?starttls=none",
                "127.0.0.1:9",
            )
        ]
    assert mail.messages == []
    assert seen[0].saw.endswith("answers over TLS, lets us sign in and takes mail from redrive@sender.test.")
    assert [len(each.findings) for each in seen] == [0, 1, 1, 1, 1]
    assert "does not let us in" in seen[1].saw
    assert "ca= of REDRIVE_SMTP_URL" in seen[2].findings[0].fix
    assert seen[3].findings[0].severity is Severity.PROBLEM
    assert "cannot be reached" in seen[4].saw
    assert "a-password" not in repr(seen)
    nobody = await look_at_mail(load_settings(smtp_url=f"smtp://{place}?starttls=none"))
    assert nobody.findings[0].fix == "Set REDRIVE_MAIL_FROM."


@pytest.mark.parametrize("url", ["postgresql://nobody:a#hunter@127.0.0.1:9/x", "postgresql://nobody@h:a-hunter/x"])
async def test_of_a_url_that_cannot_be_read_nothing_is_repeated(url: str, tmp_path: Path) -> None:
    """A password may be what made it so."""
    diagnosis = await diagnose(load_settings(data_dir=tmp_path, database_url=url), url)
    assert diagnosis.needs_somebody
    assert "hunter" not in repr(diagnosis)


async def test_where_no_redrive_runs_that_is_the_problem_whoever_was_heard_of_a_moment_ago(data_dir: Path) -> None:
    """All of it was killed: the database cannot know. What follows from it is not told beside it."""
    folder = data_dir / "data"
    server = await EmbeddedPostgres.start(folder)
    migrated = await redrive("migrate", "--data-dir", str(folder))
    assert migrated.code == 0, migrated.err
    sql = await asyncpg.connect(server.url)
    try:
        await sql.execute("""
            SET ROLE redrive_engine;
            INSERT INTO redrive.worker VALUES (gen_random_uuid(), now(), now(), 'a', 1, '1', '{http}', 5);
            INSERT INTO redrive.job (name, every_s, since, seen_at)
            VALUES ('stale', 10, now() - interval '1 hour', now() - interval '1 hour')""")
        beside = await diagnose(load_settings(data_dir=folder), server.url)
    finally:
        await sql.close()
        await server.stop()
    assert "The background job 'stale' has not run well for 60 min; it should every 10 s." in _said(beside)
    ended = await redrive("doctor", "--json", "--data-dir", str(folder))
    assert ended.code == 1
    told = {one["name"]: one for one in ended.object["examinations"]}
    assert [name for name, one in told.items() if one["findings"]] == ["api"]
    [finding] = told["api"]["findings"]
    assert finding["severity"] == "problem"
    assert finding["what"] == f"No Redrive runs on {folder}: nothing is accepted or delivered."
    assert "`redrive serve`" in finding["fix"]
    assert told["workers"]["saw"] == "At work: 0 workers, for no Redrive runs here."
    assert "psql" not in told["connection"]["saw"]


async def test_the_prompt_that_it_names_opens_the_embedded_database_with_whatever_rights_its_sql_needs(
    data_dir: Path,
) -> None:
    folder = data_dir / "it's data"
    server = await EmbeddedPostgres.start(folder)
    try:
        diagnosis = await diagnose(load_settings(data_dir=folder), server.url)
        [connection] = [one for one in diagnosis.examinations if one.name == "connection"]
        line = connection.saw.partition(" For SQL: ")[2]
        assert await _answer(
            f"{line} -XAtc 'SELECT current_database(), usesuper FROM pg_user WHERE usename = user'"
        ) == ("redrive|t")
        assert str(urlsplit(server.superuser_url).password) not in repr(diagnosis)
    finally:
        await server.stop()


async def _answer(line: str) -> str:
    """Of a command, as a person pastes it into a shell."""
    process = await asyncio.create_subprocess_shell(
        line, stdout=asyncio.subprocess.PIPE, env={"PATH": os.environ["PATH"]}
    )
    out, _ = await process.communicate()
    return out.decode().strip()


@pytest.mark.parametrize("env", [{"REDRIVE_PORT": "x"}, {"REDRIVE_DATA_DIR": "/nonexistent"}])
async def test_where_nothing_can_be_found_out_that_is_the_finding(env: dict[str, str]) -> None:
    ended = await redrive("doctor", env=env)
    assert ended.code == 1
    assert "PROBLEM" in ended.out
    assert "Traceback" not in ended.err


async def test_another_key_than_the_database_knows_is_told(served: Served, place: dict[str, str]) -> None:
    url = place["REDRIVE_DATABASE_URL"]
    diagnosis = await diagnose(load_settings(database_url=url, secret_key="another key than that"), url)
    assert "The secrets in the database were sealed with another key than this machine has." in _said(diagnosis)


async def test_before_it_is_migrated_a_database_is_said_to_hold_no_redrive(empty_database_url: str) -> None:
    ended = await redrive("doctor", "--json", url=empty_database_url)
    assert ended.code == 1
    [migrations] = [one for one in ended.object["examinations"] if one["name"] == "migrations"]
    assert [finding["fix"] for finding in migrations["findings"]] == ["redrive migrate"]
    assert {one["name"] for one in ended.object["examinations"] if not one["made"]} >= {"objects", "isolation", "due"}


def test_the_address_of_the_api_is_one_also_where_it_is_of_ipv6() -> None:
    assert [api_address(load_settings(host=host, port=1)) for host in ("0.0.0.0", "::", "::1")] == [
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "http://[::1]:1",
    ]


def test_each_setting_that_cannot_be_read_is_a_finding() -> None:
    assert _said(unreadable("one\ntwo")) == ["one", "two"]
