"""`redrive endpoints`, `keys` and `policy`."""

import asyncio
from uuid import UUID

import pytest

from redrive.store import keys

from .command import redrive
from .world import World, make_org

OPEN = {"REDRIVE_ALLOW_NETWORKS": "127.0.0.0/8"}


async def test_an_added_endpoint_shows_its_secret_once_and_takes_its_event_types(world: World) -> None:
    words = ("--name", "stock", "--event-type", "stock.*", "--policy", "relay")
    added = await redrive("endpoints", "add", "https://stock.example.com/hook?key=hunter2", *words, url=world.url)
    assert added.code == 0, added.err
    secret = added.out.strip()
    assert secret.startswith("whsec_")
    listed = await redrive("endpoints", "list", "--json", url=world.url)
    [_, stock] = listed.objects
    assert (stock["name"], stock["event_types"], stock["policy"]) == ("stock", ["stock.*"], "relay")
    assert secret not in listed.out
    assert "hunter2" not in listed.out
    await redrive("send", "stock.low", url=world.url)
    assert (await world.claim_one()).endpoint_id == UUID(stock["id"])


@pytest.mark.parametrize(
    ("url", "words", "code", "said"),
    [
        ("http://127.0.0.1/hook", (), 1, "REDRIVE_ALLOW_NETWORKS"),
        ("http://169.254.169.254/", (), 1, "metadata"),
        ("ftp://example.com/", (), 2, "The URL cannot be used"),
        ("https://example.com/", ("--policy", "none"), 1, "There is no policy"),
        ("https://example.com/", ("--name", "billing"), 1, "already"),
        ("https://example.com/", ("--event-type", "a\nb"), 2, "printable"),
    ],
)
async def test_an_endpoint_that_cannot_work_is_not_added(
    world: World, url: str, words: tuple[str, ...], code: int, said: str
) -> None:
    ended = await redrive("endpoints", "add", url, "--name", "new", *words, url=world.url)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err


async def test_private_networks_can_be_opened(world: World) -> None:
    added = await redrive("endpoints", "add", "http://127.0.0.1:9/", "--name", "new", "--json", url=world.url, env=OPEN)
    assert added.code == 0
    assert added.object["secret"].startswith("whsec_")


async def test_disabling_holds_tasks_and_enabling_lets_them_go_on(world: World) -> None:
    await world.accept()
    disabled = await redrive("endpoints", "disable", "billing", "--because", "maintenance", url=world.url)
    assert disabled.code == 0, disabled.err
    assert await world.claim() == []
    assert (await redrive("endpoints", "enable", str(world.endpoint_id), url=world.url)).code == 0
    assert len(await world.claim()) == 1


async def test_an_endpoint_is_deleted_only_when_it_is_meant(world: World) -> None:
    assert (await redrive("endpoints", "delete", "billing", url=world.url)).code == 1
    assert (await redrive("endpoints", "delete", "billing", "--yes", url=world.url)).code == 0
    gone = await redrive("endpoints", "list", url=world.url)
    assert (gone.code, gone.out) == (0, "")


async def test_a_wrong_sealing_key_is_refused(world: World) -> None:
    assert (await redrive("endpoints", "disable", "billing", url=world.url)).code == 0
    wrong = {"REDRIVE_SECRET_KEY": "another key than before"}
    ended = await redrive("endpoints", "enable", "billing", url=world.url, env=wrong)
    assert ended.code == 1
    assert "REDRIVE_SECRET_KEY" in ended.err


async def test_a_key_is_shown_once_works_and_can_be_revoked(world: World) -> None:
    made = await redrive("keys", "create", "--name", "ci", "--role", "STAFF", "--json", url=world.url)
    key = made.object["key"]
    caller = await keys.authenticate(world.engine, key)
    assert caller is not None
    assert (caller.role, caller.name, caller.org_id) == ("STAFF", "ci", world.org_id)
    listed = await redrive("keys", "list", url=world.url)
    assert made.object["id"] in listed.out
    assert key not in listed.out + listed.err
    assert (await redrive("keys", "revoke", made.object["id"], url=world.url)).code == 0
    assert await keys.authenticate(world.engine, key) is None
    again = await redrive("keys", "revoke", made.object["id"], url=world.url)
    assert again.code == 1


async def test_people_get_the_key_alone_on_stdout(world: World) -> None:
    made = await redrive("keys", "create", "--name", "ci", url=world.url)
    assert await keys.authenticate(world.engine, made.out.strip()) is not None
    assert "not shown again" in made.err


async def test_keys_belong_to_the_org_that_is_named(world: World) -> None:
    other = await make_org(world.engine, "other")
    made = await redrive("keys", "create", "--name", "ci", "--org", "other", "--json", url=world.url)
    caller = await keys.authenticate(world.engine, made.object["key"])
    assert caller is not None
    assert caller.org_id == other
    assert (await redrive("keys", "revoke", made.object["id"], url=world.url)).code == 1


async def test_an_unknown_role_is_wrong_usage(world: World) -> None:
    ended = await redrive("keys", "create", "--name", "ci", "--role", "KING", url=world.url)
    assert (ended.code, ended.out) == (2, "")


async def test_policies_are_listed_and_previewed(world: World) -> None:
    listed, integration, manual, relay, unknown = await asyncio.gather(
        redrive("policy", "list", url=world.url),
        redrive("policy", "preview", "integration", "--json", url=world.url),
        redrive("policy", "preview", "manual", url=world.url),
        redrive("policy", "preview", "relay", url=world.url),
        redrive("policy", "preview", "nothing", url=world.url),
    )
    assert len(listed.out.splitlines()) == 8
    assert [row["delay_s"] for row in integration.object["retries"]] == [5, 30, 300]
    assert [row["at_s"] for row in integration.object["retries"]] == [5, 35, 335]
    assert (manual.code, manual.out) == (0, "")
    assert "a person does" in manual.err
    assert "until 7d after" in relay.err
    assert unknown.code == 1


async def test_a_policy_is_bound_to_event_types_and_made_the_default(world: World) -> None:
    words = ("policy", "bind", "relay", "--event-type", "invoice.*", "--event-type", "order.paid", "--default")
    bound = await redrive(*words, "--because", "slow partners", "--json", url=world.url)
    assert (bound.object["event_types"], bound.object["default"]) == (["invoice.*", "order.paid"], True)
    assert bound.object["kind"] == "exponential"
    listed = await redrive("policy", "list", url=world.url)
    assert "invoice.* order.paid (default)" in listed.out
    loose = await redrive("policy", "bind", "relay", url=world.url)
    assert (loose.code, "no others" in loose.err) == (0, True)
    unknown = await redrive("policy", "bind", "nothing", url=world.url)
    assert unknown.code == 1
    wrong = await redrive("policy", "bind", "relay", "--event-type", "", url=world.url)
    assert (wrong.code, wrong.out) == (2, "")


async def test_a_policy_is_deleted_unless_it_is_needed(world: World) -> None:
    deleted = await redrive("policy", "delete", "workflow", "--because", "unused", "--json", url=world.url)
    assert deleted.object == {"name": "workflow", "deleted": True}
    again, needed = await asyncio.gather(
        redrive("policy", "delete", "workflow", url=world.url),
        redrive("policy", "delete", "integration", url=world.url),
    )
    assert (again.code, needed.code) == (1, 1)
    assert "last resort" in needed.err


async def test_an_exchange_is_added_where_rabbitmq_is_the_org_s(world: World) -> None:
    broker = {"REDRIVE_RABBITMQ_URL": "amqp://user:hunter2@rabbit.example.com"}
    others = {**broker, "REDRIVE_RABBITMQ_ORG": "another"}
    words = ("endpoints", "add", "--name", "orders", "--kind", "rabbitmq")
    exchange = ("--exchange", "orders")
    added, none, not_ours, no_exchange, no_key, both = await asyncio.gather(
        redrive(*words, *exchange, "--routing-key", "eu", "--json", url=world.url, env=broker),
        redrive(*words, *exchange, url=world.url),
        redrive(*words, *exchange, url=world.url, env=others),
        redrive(*words, url=world.url, env=broker),
        redrive(*words, "--exchange", "", url=world.url, env=broker),
        redrive(*words, *exchange, "https://example.com/", url=world.url, env=broker),
    )
    assert (added.object["kind"], added.object["exchange"], added.object["routing_key"]) == ("rabbitmq", "orders", "eu")
    assert [(each.code, each.out) for each in (none, not_ours)] == [(1, "")] * 2
    assert "REDRIVE_RABBITMQ_URL" in none.err
    assert "belongs to the org" in not_ours.err
    assert [(each.code, each.out) for each in (no_exchange, no_key, both)] == [(2, "")] * 3
    assert "needs --exchange" in no_exchange.err
    assert "names the queue" in no_key.err
    assert "has no URL" in both.err
    assert "orders → eu" in (await redrive("endpoints", "list", url=world.url)).out
