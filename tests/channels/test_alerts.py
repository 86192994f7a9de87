"""Every alert rule by real traffic, over its threshold and back: people hear of each once, by mail and by webhook."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

import asyncpg
import pytest
import pytest_asyncio
from standardwebhooks import Webhook

from redrive.core.alerts import RULES
from redrive.core.breaker import BreakerRules
from redrive.core.jobs import ROLLER
from redrive.engine.jobs import Jobs
from redrive.engine.roller import run_roller
from redrive.settings import Settings
from redrive.store.alert_rounds import AlertRounds
from redrive.store.jobs import JobRows
from redrive.store.rollups import Roller
from redrive.store.workers import list_workers
from support.alerts import EVERY_S, now_clock
from support.engine import ManualClock, Shared, until
from support.holding import HoldingReceiver
from support.installation import Installation, installation
from support.mail import MailServer
from support.oracle import assert_sound
from support.processes import until as until_true
from support.processes import worker

from .conftest import PUBLIC_URL
from .test_mail import mailbox
from .test_notices import tell

ALERTS = ["redrive.alert.*"]
Step = Callable[[], Awaitable[object]]


def _moment(timestamp: str) -> datetime:
    return datetime.fromtimestamp(float(timestamp), UTC)


@pytest.fixture
def clock() -> ManualClock:
    """The database says since when a transaction is open, by the real time."""
    return now_clock()


@dataclass(slots=True)
class World:
    """An installation, somebody who is told, and all that can go wrong."""

    redrive: Installation
    mail: MailServer
    receiver: HoldingReceiver
    clock: ManualClock
    ops: dict[str, Any] = field(default_factory=dict)
    kept: list[asyncpg.Connection] = field(default_factory=list)

    async def look(self) -> None:
        """A round of the evaluator, and people are told; no worker has a part in it."""
        self.clock.advance(EVERY_S)
        await AlertRounds(self.redrive.stores.engine, self.clock, every_s=EVERY_S).look()
        await tell(self.redrive)

    async def looks(self, seconds: float) -> None:
        for _ in range(round(seconds / EVERY_S)):
            await self.look()

    def told(self) -> list[dict[str, Any]]:
        """By webhook: each is signed by the endpoint's secret."""
        verifier = Webhook(self.ops["secret"])
        vars(verifier)["_Webhook__verify_timestamp"] = _moment  # the test's clock runs ahead
        return [verifier.verify(each.body, dict(each.headers)) for each in self.receiver.of_path("/ops")]

    async def endpoint(self) -> dict[str, Any]:
        return await self.redrive.api.endpoint(self.receiver.url_of("/billing"))

    async def deliver(self, endpoint: dict[str, Any], count: int, *, dying: int = 0, after_s: float = 0) -> None:
        self.receiver.script(*[404] * dying, path="/billing")
        await self.redrive.api.batch(endpoint["id"], count)
        self.clock.advance(after_s)
        await self.redrive.work()

    async def resolve_all(self) -> None:
        letters = await self.redrive.api.get("/v1/dead-letters", limit="100")
        for letter in letters["data"]:
            await self.redrive.api.post(f"/v1/dead-letters/{letter['id']}/resolve", {"because": "mended"})

    async def trouble(self, rule: str) -> tuple[Step, Step]:
        """What makes a rule fire, by its defaults, and what ends that."""
        redrive, clock, engine = self.redrive, self.clock, self.redrive.stores.engine
        billing = await self.endpoint()
        path = f"/v1/endpoints/{billing['id']}"
        rules = redrive.settings.breaker_rules()
        jobs = Jobs(JobRows(engine, clock), now=lambda: clock.now().timestamp())

        async def fail_for_long() -> None:
            self.receiver.script(*[503] * 30, path="/billing")
            await redrive.api.batch(billing["id"], 30)
            await redrive.work()

        async def be_late() -> None:
            await redrive.api.event(billing["id"])
            clock.advance(3_601)

        async def gone() -> None:
            self.receiver.script(410, path="/billing")
            await redrive.api.event(billing["id"])
            await redrive.work()

        async def recover() -> None:
            """A try comes through, and so does what follows it."""
            for pause_s in (0, rules.ramp_s, 0):
                clock.advance(pause_s)
                await redrive.api.event(billing["id"])
                await redrive.work()

        async def be_at_work() -> None:
            """A worker, which does not take leave: as if it were killed."""

            async def has_beaten() -> bool:
                return any(worker.seen_at == clock.now() for worker in await list_workers(engine, clock))

            async with redrive.working():
                await until(has_beaten)

        async def fall_silent() -> None:
            await be_at_work()
            await self.looks(60)

        async def roll() -> None:
            """The job runs, and no more, in a process that goes on reporting."""
            job = jobs.job(ROLLER)
            rolling = asyncio.create_task(run_roller(Roller(engine, clock).roll, batch=1, every_s=0.01, job=job))
            await until_true(lambda: job.succeeded_at == clock.now().timestamp())
            rolling.cancel()
            await asyncio.wait([rolling])
            await jobs.report()

        async def stop_rolling() -> None:
            await roll()
            await self.looks(60)
            await jobs.report()

        async def begin_work() -> None:
            self.kept.append(await asyncpg.connect(redrive.url, server_settings={"application_name": "a long report"}))
            await self.kept[0].execute("BEGIN; SELECT 1")
            clock.advance(1_802)

        async def end_work() -> None:
            await self.kept.pop().close()

        async def be_quick() -> None:
            clock.advance(16 * 60)
            await self.deliver(billing, 20)

        steps: dict[str, tuple[Step, Step]] = {
            "failure_rate": (lambda: self.deliver(billing, 20, dying=2), lambda: self.deliver(billing, 100)),
            "dead_letters_open": (lambda: self.deliver(billing, 51, dying=51), self.resolve_all),
            "dead_letter_arrived": (lambda: self.deliver(billing, 1, dying=1), self.resolve_all),
            "oldest_due": (be_late, redrive.work),
            "slow_delivery": (lambda: self.deliver(billing, 20, after_s=200), be_quick),
            "endpoint_open": (fail_for_long, recover),
            "endpoint_disabled": (gone, lambda: redrive.api.post(f"{path}/enable")),
            "no_worker": (fall_silent, be_at_work),
            "job_stale": (stop_rolling, roll),
            "long_transaction": (begin_work, end_work),
        }
        return steps[rule]


@pytest_asyncio.fixture(loop_scope="session")
async def world(
    redrive: Installation, mail: MailServer, receiver: HoldingReceiver, clock: ManualClock
) -> AsyncIterator[World]:
    made = World(redrive, mail, receiver, clock)
    made.ops = await redrive.api.endpoint(receiver.url_of("/ops"), event_types=ALERTS)
    await mailbox(redrive, event_types=ALERTS)
    await made.look()
    yield made
    await asyncio.gather(*(connection.close() for connection in made.kept))


@pytest.mark.parametrize("rule", RULES)
async def test_a_rule_that_fires_is_one_mail_and_one_webhook_and_so_is_its_end(
    world: World, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "breaker_rules", lambda _: BreakerRules(min_span_s=0.0))  # tries of one moment count
    for other in RULES:
        answer = await world.redrive.api.http.request("PUT", f"/v1/alerts/rules/{other}", {"enabled": other == rule})
        assert answer.status == 200, answer.body
    begin, end = await world.trouble(rule)
    await begin()
    for _ in range(3):
        await world.look()
    (fired,) = world.told()
    (letter,) = world.mail.messages
    (incident,) = (await world.redrive.api.get("/v1/alerts"))["data"]
    assert (fired["kind"], fired["facts"]["rule"], fired["text"]) == ("alert.fired", rule, incident["text"])
    mark = {"error": "ERROR: ", "warning": "Warning: "}[RULES[rule].severity]
    assert letter["subject"].strip().startswith(f"[Redrive default] {mark}")
    text = letter.get_content()
    assert " ".join(fired["text"].split()) in " ".join(text.split())
    assert f"Look at it: {PUBLIC_URL}/alerts" in text
    assert "What was seen:" in text

    await end()
    for _ in range(3):
        await world.look()
    assert [notice["kind"] for notice in world.told()] == ["alert.fired", "alert.over"]
    _, over = world.told()
    _, goodbye = world.mail.messages
    assert goodbye["subject"].strip().startswith("[Redrive default] Over: ")
    for notice, message, sent in zip((fired, over), world.mail.messages, world.receiver.of_path("/ops"), strict=True):
        assert f"Notice: {notice['id']}" in message.get_content()
        assert sent.headers["webhook-id"] == str(uuid5(UUID(notice["id"]), world.ops["id"]))
    ids = [message["x-redrive-event-id"] for message in world.mail.messages]
    assert len(set(ids)) == 2


async def test_whoever_tells_may_be_killed_in_between_and_people_hear_of_it_under_the_same_id(
    empty_url: str, shared_database: Shared, mail: MailServer, receiver: HoldingReceiver
) -> None:
    env = {"REDRIVE_SMTP_URL": mail.url, "REDRIVE_MAIL_FROM": "redrive@sender.test"}
    mail.hangs = True
    receiver.script(404)
    stores = shared_database.ways.stores
    async with installation(empty_url, stores=stores, smtp_url=mail.url) as redrive:
        people = await mailbox(redrive, event_types=["redrive.dead_letter"], timeout_s=1)
        broken = await redrive.api.endpoint(receiver.url)
        async with worker(empty_url, env=env) as first:
            await redrive.api.event(broken["id"])
            await until_true(lambda: bool(mail.begun), why=lambda: first.log[-5:])
            await first.kill()
        mail.hangs = False
        mail.let_go.set()
        async with worker(empty_url, env=env) as second:
            await until_true(lambda: bool(mail.messages), why=lambda: second.log[-5:])
            await second.terminated()
        (message,) = mail.messages
        assert mail.begun == [message["message-id"]] * 2
        (delivery,) = await redrive.api.deliveries(people["id"])
        assert (delivery["status"], delivery["attempts"]) == ("delivered", 2)
    await assert_sound(empty_url)
