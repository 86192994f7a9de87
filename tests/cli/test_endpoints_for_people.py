"""`redrive endpoints add --kind mail` and `--kind apprise`: whom they reach, and that a URL stays out of sight."""

from pathlib import Path

import pytest

from .command import redrive
from .world import World

MAIL = {"REDRIVE_SMTP_URL": "smtp://127.0.0.1:9?starttls=none", "REDRIVE_MAIL_FROM": "redrive@example.com"}
CHAT = {"REDRIVE_APPRISE_URL": "json://chat.example.com/canary"}


async def test_people_are_added_by_their_addresses_or_by_the_url_of_a_service_that_is_not_shown(world: World) -> None:
    to = ("--kind", "mail", "--to", "ops@example.com", "--to", "b@example.com", "--event-type", "redrive.alert.*")
    mail = await redrive("endpoints", "add", "--name", "ops", *to, url=world.url, env=MAIL)
    assert mail.code == 0, mail.err
    assert not mail.out.startswith("whsec_")
    by_url = ("--kind", "apprise", "--apprise-url", "-", "--json")
    chat = await redrive("endpoints", "add", "--name", "chat", *by_url, url=world.url, env=CHAT)
    assert chat.code == 0, chat.err
    assert chat.object["apprise_url"] == "json://[redacted]"
    listed = await redrive("endpoints", "list", url=world.url)
    assert "ops@example.com, b@example.com" in listed.out
    assert "canary" not in chat.out + chat.err + listed.out


@pytest.mark.parametrize(
    ("words", "env", "code", "said"),
    [
        (("--kind", "mail", "--to", "a@example.com"), {}, 1, "REDRIVE_SMTP_URL"),
        (("--kind", "mail"), MAIL, 2, "1 to 20 addresses"),
        (("--kind", "mail", "--to", "nobody"), MAIL, 2, "is not an address"),
        (("https://a.example/", "--kind", "mail", "--to", "a@example.com"), MAIL, 2, "has no URL"),
        (("https://a.example/", "--to", "a@example.com"), MAIL, 2, "--to is for --kind mail"),
        (("--kind", "apprise"), {}, 2, "--apprise-url is needed"),
        (("--kind", "apprise", "--apprise-url", "dbus://"), {}, 2, "cannot be used"),
        (("--kind", "apprise", "--apprise-url", "json://10.0.0.1/canary"), {}, 1, "REDRIVE_ALLOW_NETWORKS"),
    ],
)
async def test_who_cannot_be_reached_is_not_added(
    world: World, words: tuple[str, ...], env: dict[str, str], code: int, said: str
) -> None:
    ended = await redrive("endpoints", "add", "--name", "people", *words, url=world.url, env=env)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert "canary" not in ended.err


async def test_where_nobody_said_who_mail_is_from_nothing_is_started(tmp_path: Path) -> None:
    env = {"REDRIVE_SMTP_URL": MAIL["REDRIVE_SMTP_URL"], "REDRIVE_DATA_DIR": str(tmp_path / "data")}
    ended = await redrive("serve", "--port", "0", env=env)
    assert ended.code == 2
    assert "REDRIVE_MAIL_FROM" in ended.err
    assert not (tmp_path / "data").exists()
