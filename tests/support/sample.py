"""A week in the life of an installation, lived through by the real engine: for looking at pages, never for claims.

    await live_through(redrive, receiver, until=now)

It is an online shop. Its events are accepted and delivered to a real receiver under a clock that runs from seven days
ago until now: some endpoints are well, some answer late or not at all. What is left behind: dead letters in a handful
of groups, one of which halted a lane, retries that wait, webhooks for a hub that is not there, an inbox, an operation
half done, runs of a workflow in every state, messages that died in a broker, people, and what they did about it.

`texts`: what customers and receivers wrote. CLEAN is what a shop looks like; HOSTILE has markup and bytes that must be
shown as text, for the tests of all pages.
Same seed, same story. Used by support.serve_sample, by the screenshots and by the tests of all pages.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from redrive.app import open_worker
from redrive.core.alerts import RULES, read_terms
from redrive.core.breaker import BreakerState
from redrive.core.ports import HealthReport
from redrive.destinations.python import Handler
from redrive.engine.worker import Worker
from redrive.store.alert_rounds import AlertRounds
from redrive.store.alerts import put_rule
from redrive.store.audit import Act
from redrive.store.endpoint_history import Ledger
from redrive.store.endpoint_states import BreakerStates
from redrive.store.events import NewEvent, accept
from redrive.store.operation_steps import OperationSteps
from redrive.store.orgs import new_id
from support import sample_broker, sample_runs
from support.engine import ManualClock
from support.installation import Installation
from support.receiver import HANG, Answer, Received, Receiver, Step

LIVED = timedelta(days=7)
ROUNDS = 56  # one every three hours
EVENTS_A_ROUND = 24
STORM = (18, 19)
LAST_STORM = (5, 4, 3)  # rounds before the end
SEED = 20_311
PASSWORD = "correct horse battery"
BIG = 9_007_199_254_740_993_001  # no double holds it
RETRIES_OVER = (6, 31, 301)  # after these seconds all retries of the preset have been made
SLOW = {"kind": "list", "delays_s": [900, 3600, 14_400, 43_200], "jitter": 0.1, "max_retries": 4}

PEOPLE = (
    ("mira@acme.example", "Mira Berg", "OWNER"),
    ("adam@acme.example", "Adam Okafor", "ADMIN"),
    ("irene@acme.example", "Irene Costa", "IT_MANAGER"),
    ("sam@acme.example", "Sam Novak", "STAFF"),
    ("vera@acme.example", "Vera Lind", "VIEWER"),
)


@dataclass(frozen=True, slots=True)
class Texts:
    """What people and receivers wrote, which pages show as it is."""

    customer: str
    note: str
    refused: Answer  # what the CRM answers when it refuses a customer
    refused_type: str  # what it refuses most in a storm
    supplier: str
    partner: str
    error: str  # appended to the error of a consumer of the broker


_MARKUP = '<img src=x onerror=alert(1)>"><script>alert("2")</script>'


def _json(status: int, value: object, **headers: str) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"content-type": "application/json", **headers})


CLEAN = Texts(
    customer="Mira Lindqvist",
    note="Please ring twice",
    refused=_json(422, {"error": "field customer_id is required"}),
    refused_type="customer.merged",
    supplier="Northwind Textiles",
    partner="Marketplace payouts",
    error="connection refused",
)
HOSTILE = Texts(
    customer="Zoë Ñandú",
    note=_MARKUP,
    refused=Answer(422, f"<html><body>{_MARKUP}</body></html>".encode(), {"content-type": "text/html"}),
    refused_type="order.<script>alert(3)</script>",
    supplier=_MARKUP,
    partner=f"partner {_MARKUP[:28]}",
    error=_MARKUP,
)


@dataclass(slots=True)
class Weather:
    """In a storm most of what can fail does."""

    bad: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """An endpoint of the sample, and what its receiver answers when chance rolls."""

    name: str
    path: str
    event_types: Sequence[str]
    external_system: str | None
    answer: Callable[[float], Step]
    fields: Mapping[str, object] = field(default_factory=dict)


def _mostly(good: float, bad: Step) -> Callable[[float], Step]:
    return lambda roll: Answer(200, b'{"ok": true}') if roll < good else bad


def _places(texts: Texts) -> Sequence[Place]:
    return (
        Place("Billing", "/billing", ("invoice.*",), "SAP", _mostly(0.93, _json(503, {"error": "try again later"}))),
        Place(
            "Warehouse",
            "/warehouse",
            ("stock.*", "order.shipped"),
            "Manhattan WMS",
            _mostly(0.4, _json(500, {"error": "deadlock detected", "table": "stock_levels", "ref": BIG})),
        ),
        Place(
            "Customer records",
            "/crm",
            ("customer.*", texts.refused_type),
            "Salesforce",
            _mostly(0.88, texts.refused),
        ),
        Place("Shipping labels", "/labels", ("order.*",), "DHL", _mostly(0.9, HANG), {"timeout_s": 0.15}),
        Place(
            "Ledger",
            "/ledger",
            ("invoice.paid", "payout.*"),
            "Xero",
            _mostly(0.7, _json(429, {"error": "slow down"}, **{"retry-after": "1200"})),
            {"policy": "slow"},
        ),
        Place(
            "Analytics", "/analytics", ("invoice.*", "order.*", "stock.*"), None, _mostly(1.0, 200), {"rate_per_s": 500}
        ),
        Place(
            "General journal",
            "/journal",
            ("journal.*",),
            "Datev",
            _mostly(0.7, _json(422, {"error": "period 2031-04 is closed"})),
            {"ordered": True, "on_block": "halt"},
        ),
        Place(texts.partner, "/partner", ("payout.*",), "Bank & Söhne GmbH", _mostly(0.4, 404)),
    )


TYPES = (
    "invoice.paid",
    "invoice.created",
    "order.shipped",
    "order.created",
    "stock.changed",
    "customer.updated",
    "payout.sent",
    "journal.posted",
)
WEIGHTS = (18, 12, 12, 10, 14, 12, 2, 4)


async def live_through(
    redrive: Installation,
    receiver: Receiver,
    *,
    until: datetime | None = None,
    rounds: int = ROUNDS,
    texts: Texts = CLEAN,
) -> None:
    """A week that ends at `until`: the installation's own time unless given. In fewer rounds it is over sooner."""
    chance = random.Random(SEED)
    end = until or redrive.clock.now() or datetime.now(UTC)
    clock = ManualClock(end - LIVED)
    weather = Weather()
    places = _places(texts)
    receiver.usual = _answers(places, chance, weather)
    await _furnish(redrive, receiver, places)
    async with open_worker(
        redrive.settings, redrive.stores.engine, clock=clock, dice=chance.random, handlers=HANDLERS
    ) as worker:
        for number in range(rounds):
            weather.bad = number in STORM or rounds - number in LAST_STORM
            if weather.bad:
                await _accept(redrive, clock, chance, texts, 6, types=(texts.refused_type,))
            await _live_a_while(redrive, worker, clock, chance, texts, number)
            clock.advance((end - LIVED + (number + 1) * LIVED / rounds - clock.now()).total_seconds())
        await _end_in_the_middle(redrive, worker, clock, chance, texts)
    await _remember(redrive, places, end, chance)
    await sample_broker.collect(redrive, end, error=texts.error)
    await _act(redrive)
    await _watch(redrive, end)


async def _watch(redrive: Installation, end: datetime) -> None:
    """Alerts of the last hours: one that is over since somebody thought better of its threshold, and what fires."""
    rule = RULES["dead_letters_open"]
    engine, act = redrive.stores.engine, Act("somebody")
    for hours, threshold in ((3, 0), (1, 500), (0, 500)):
        clock = ManualClock(end - timedelta(hours=hours))
        async with redrive.stores.app.tenant(redrive.org_id) as session:
            await put_rule(session, rule, read_terms(rule, {"threshold": threshold}), act, clock)
        await AlertRounds(engine, clock, every_s=0).look()


# -- those who take part -------------------------------------------------------------------------------------------


async def _import_document(task: Any) -> None:
    """A handler that a user registered: it fails now and then, with a stack to show."""
    document = task.payload
    if document["lines"] > 7:
        raise ValueError(f"line {document['lines']} of {document['supplier']}: segment DTM has no qualifier")


HANDLERS: Mapping[str, Handler] = {"edi.import": _import_document, **sample_runs.HANDLERS}


def _answers(places: Sequence[Place], chance: random.Random, weather: Weather) -> Callable[[Received], Step]:
    by_path = {place.path: place.answer for place in places}

    def answer(request: Received) -> Step:
        if (answered := sample_runs.answer_of(request)) is not None:
            return answered
        roll = chance.random()
        return by_path[request.path](roll**0.2 if weather.bad else roll)  # near one: what fails at all fails mostly

    return answer


async def _furnish(redrive: Installation, receiver: Receiver, places: Sequence[Place]) -> None:
    await redrive.api.patch(f"/v1/orgs/{redrive.org_id}", {"name": "Acme Shop"})
    await redrive.api.policy("slow", **SLOW)
    for place in places:
        await redrive.api.endpoint(
            receiver.url_of(place.path),
            name=place.name,
            event_types=list(place.event_types),
            external_system=place.external_system,
            **place.fields,
        )
    await redrive.api.endpoint(
        "http://127.0.0.1:9/closed", name="Legacy ERP", event_types=["payout.sent"], external_system="AS/400"
    )
    await sample_runs.define(redrive, receiver)
    await redrive.api.relay(name="Stripe webhooks", external_system="Stripe")
    if redrive.settings.mail_server is not None:
        people = {
            "kind": "mail",
            "to": ["on-call@acme.example", "ops@acme.example"],
            "event_types": ["redrive.alert.*"],
        }
        await redrive.api.post("/v1/endpoints", {"name": "On-call team", **people})
    for email, name, role in PEOPLE:
        await redrive.api.post("/v1/users", {"email": email, "name": name, "role": role, "password": PASSWORD})
    await redrive.api.post("/v1/keys", {"name": "shop backend", "role": "IT_MANAGER", "scope": "produce"})
    await redrive.api.post("/v1/orgs", {"name": "Acme staging"})


# -- the week ------------------------------------------------------------------------------------------------------


async def _live_a_while(
    redrive: Installation, worker: Worker, clock: ManualClock, chance: random.Random, texts: Texts, number: int
) -> None:
    busy = 2 if number % 8 in (3, 4) else 1  # the middle of the day
    await _accept(redrive, clock, chance, texts, EVENTS_A_ROUND * busy)
    await worker.run_until_idle()
    for seconds in RETRIES_OVER:
        clock.advance(seconds)
        await worker.run_until_idle()


async def _end_in_the_middle(
    redrive: Installation, worker: Worker, clock: ManualClock, chance: random.Random, texts: Texts
) -> None:
    """The last minutes: failures whose retries still lie ahead, and events that nobody has touched."""
    clock.advance(-600)
    await sample_runs.run_all(redrive, worker, clock)
    for seconds in (0, 180, 300, 55):
        clock.advance(seconds)
        await _accept(redrive, clock, chance, texts, EVENTS_A_ROUND)
        await worker.run_until_idle()
    await _accept(redrive, clock, chance, texts, 6, types=("note.added",))


async def _remember(redrive: Installation, places: Sequence[Place], end: datetime, chance: random.Random) -> None:
    """The last day of each endpoint as its workers tell it; and one has failed so much that its breaker is open."""
    ids = {row["name"]: UUID(row["id"]) for row in (await redrive.api.get("/v1/endpoints"))["data"]}
    clock = ManualClock(end - timedelta(days=1))
    ledger = Ledger(redrive.stores.engine, clock)
    while clock.advance(1_800) < end:
        reports = []
        for place in places:
            if place.fields.get("ordered"):
                continue  # it was halted days ago
            tries = chance.randrange(20, 60)
            good = sum(place.answer(chance.random()) == place.answer(0.0) for _ in range(tries))
            counts = (good, tries - good, 90 * tries, 700)
            reports.append(HealthReport(redrive.org_id, ids[place.name], *counts, 3.0, None, None, 0))
        await ledger.add(reports)
    await BreakerStates(redrive.stores.engine, ManualClock(end)).open_breaker(
        redrive.org_id,
        ids["Warehouse"],
        taken_for=BreakerState.CLOSED,
        reason="21 of the last 24 tries failed, the last one with: HTTP 500 Internal Server Error",
    )


async def _accept(
    redrive: Installation,
    clock: ManualClock,
    chance: random.Random,
    texts: Texts,
    count: int,
    types: Sequence[str] = (),
) -> None:
    made = [an_event(redrive.org_id, chance, types, texts) for _ in range(count)]
    receipts = await accept(redrive.stores.engine, made, clock)
    assert {receipt.verdict for receipt in receipts} == {"accepted"}


def an_event(org_id: UUID, chance: random.Random, types: Sequence[str] = (), texts: Texts = CLEAN) -> NewEvent:
    """One that the sample's endpoints take; of these types, if any are named."""
    if not types and chance.random() < 0.06:
        document = {
            "document": f"ORDERS-{chance.randrange(10_000)}",
            "supplier": texts.supplier,
            "lines": chance.randrange(10),
        }
        return NewEvent(org_id, new_id(), "edi.import", json.dumps(document).encode(), handler="edi.import")
    event_type = chance.choice(types) if types else chance.choices(TYPES, WEIGHTS)[0]
    payload = {
        "id": BIG + chance.randrange(10_000),
        "amount": {"currency": "EUR", "value": f"{chance.randrange(1, 90_000) / 100:.2f}"},
        "customer": {"name": texts.customer, "note": texts.note, "api_key": "sk_live_1234567890"},
        "items": [{"sku": f"A-{chance.randrange(100, 999)}", "count": chance.randrange(1, 9)} for _ in range(3)],
    }
    return NewEvent(
        org_id, new_id(), event_type, json.dumps(payload, ensure_ascii=False).encode(), correlation_id=new_id().hex
    )


# -- what people did about it --------------------------------------------------------------------------------------


async def _act(redrive: Installation) -> None:
    api = redrive.api
    letters = (await api.get("/v1/dead-letters", kind="http", limit="4"))["data"]
    for letter, action in zip(letters, ("resolve", "ignore", "retry", "resolve"), strict=False):
        await api.post(f"/v1/dead-letters/{letter['id']}/{action}", {"because": "Checked with the partner"})
    edited = {"payload": {"id": 7, "amount": {"currency": "EUR", "value": "1.00"}}}
    (refused,) = (await api.get("/v1/dead-letters", kind="http", category="client_error", limit="1"))["data"]
    await api.post(f"/v1/dead-letters/{refused['id']}/replay", {**edited, "because": "The amount was wrong"})
    endpoints = {row["name"]: row["id"] for row in (await api.get("/v1/endpoints"))["data"]}
    await api.post(f"/v1/endpoints/{endpoints['Legacy ERP']}/disable", {"because": "Replaced by the new ERP"})
    await api.post(
        f"/v1/endpoints/{endpoints['Shipping labels']}/pause", {"because": "Carrier maintenance until 18:00"}
    )
    await _operate(redrive)
    relay = await api.get(f"/v1/endpoints/{endpoints['Stripe webhooks']}")
    for number in range(3):  # nobody is connected to take them
        await api.webhook(relay, json.dumps({"charge": number}).encode())


async def _operate(redrive: Installation) -> None:
    """One operation that is done, and one so slow that it is under way for as long as anybody looks."""
    done = {"action": "ignore", "filter": {"event_type": "payout.sent"}, "because": "Paid out by hand"}
    await redrive.api.post("/v1/dead-letters/bulk", done)
    slow = {
        "action": "resolve",
        "filter": {"category": "server_error"},
        "rate_per_s": 0.2,
        "because": "Stock was counted",
    }
    await redrive.api.post("/v1/dead-letters/bulk", slow)
    steps = OperationSteps(redrive.stores.engine, redrive.clock)
    for _ in range(12):
        await steps.step()
