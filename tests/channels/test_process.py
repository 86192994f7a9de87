"""The API's process alone, as it is run: people are told, nothing secret is seen anywhere, and it stays small."""

import json
from pathlib import Path

from client.harness import Authority
from support.holding import HoldingReceiver
from support.mail import MailServer, mail_server
from support.processes import ADMIN_KEY, memory_mb, serve, until
from support.remote import Remote

MAX_API_MB = 150


async def test_an_api_without_a_worker_tells_people_by_every_way_and_shows_no_secret(
    database_url: str, receiver: HoldingReceiver, tmp_path: Path
) -> None:
    authority = Authority.create()
    certificate = authority.server_files(tmp_path, "localhost")
    (tmp_path / "ca.pem").write_text(authority.pem)
    with mail_server(certificate=certificate, password="canary-password") as mail:
        smtp_url = f"smtp://ops%40sender.test:canary-password@localhost:{mail.port}?ca={tmp_path / 'ca.pem'}"
        await _tell_all(database_url, receiver, mail, smtp_url)


async def _tell_all(database_url: str, receiver: HoldingReceiver, mail: MailServer, smtp_url: str) -> None:
    env = {"REDRIVE_SMTP_URL": smtp_url}
    async with serve("--workers", "0", "--database-url", database_url, env=env, anew=True) as served:
        api = Remote(served.host, served.port, ADMIN_KEY)
        try:
            url = f"json://canary-user:canary-secret@127.0.0.1:{receiver.port}/canary-path"
            types = {"event_types": ["redrive.alert.*"]}
            for given in (
                {"name": "mail", "kind": "mail", "to": ["ops@example.com"], **types},
                {"name": "chat", "kind": "apprise", "apprise_url": url, **types},
                {"name": "hook", "url": receiver.url_of("/hook"), **types},
            ):
                await api.post("/v1/endpoints", given)
            receiver.script(500, path="/canary-path")
            await api.post("/v1/alerts/test")
            await until(lambda: bool(mail.messages and receiver.of_path("/hook") and receiver.of_path("/canary-path")))
            assert "This is a test of the alerts" in mail.messages[0]["subject"]
            assert mail.messages[0]["from"] == "Redrive <ops@sender.test>"
            seen = [
                await api.get("/v1/endpoints"),
                await api.get("/v1/audit"),
                await api.get("/v1/notices"),
                await api.get("/v1/retry-queue"),
                (await api.http.get("/metrics")).body.decode(),
                (await api.http.get("/healthz")).body.decode(),
            ]
            used_mb = memory_mb(await served.child_pid("api"))
            assert used_mb < MAX_API_MB, f"{used_mb:.0f} MB"
        finally:
            api.close()
    assert "canary" not in json.dumps([seen, served.program.log, served.program.out], default=str)
