"""Workflows of the sample, and a run in every state that a run can be in: part of support.sample.

What the steps call answers by what is asked of it, not by chance: a carrier that takes no parcel above 30 kg, a payment
service that refuses an amount of nothing.
"""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from redrive.destinations.python import Handler
from redrive.engine.worker import Worker
from redrive.store import runs
from redrive.store.audit import Act
from redrive.store.db import Session
from redrive.store.edits import Edit
from redrive.store.orgs import new_id
from redrive.store.replays import Replay, replay_run
from redrive.store.runs import NewRun
from redrive.store.workflows import get_workflow, version_of
from support.engine import ManualClock
from support.installation import Installation
from support.receiver import Answer, Received, Receiver, Step

PAYMENTS, CARRIER = "/payments/charges", "/carrier/parcels"
MAX_KG = 30
WORKFLOW = "fulfil"


def answer_of(request: Received) -> Step | None:
    """What those answer whom steps call; None where somebody else was called."""
    if request.path not in (PAYMENTS, CARRIER):
        return None
    asked = json.loads(request.body)
    if request.path == PAYMENTS:
        if asked["amount"] == "0.00":
            return _json(422, {"error": "amount must be positive", "field": "amount"})
        return _json(201, {"id": f"ch_{asked['order']}", "api_key": "sk_live_1234567890", "status": "captured"})
    if asked["weight_kg"] > MAX_KG:
        return _json(503, {"error": "no van is large enough at the moment"})
    return _json(200, {"tracking": f"JD{asked['order']:012}", "label": {"format": "pdf", "pages": 1}})


def _json(status: int, value: object) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"content-type": "application/json"})


async def tell_customer(task: Any) -> dict[str, str]:
    if "@" not in task.input["email"]:
        raise ValueError(f"{task.input['email']!r} is no address to write to")
    return {"sent_to": task.input["email"]}


HANDLERS: Mapping[str, Handler] = {"tell_customer": tell_customer}


async def define(redrive: Installation, receiver: Receiver) -> None:
    """One of each kind of step, in two versions; and a long one that has never run."""
    charge = {
        "name": "charge",
        "kind": "http",
        "url": receiver.url_of(PAYMENTS),
        "headers": {"authorization": "Bearer sk_live_1234567890", "x-order": "{{ input.order }}"},
        "body": {"order": "{{ input.order }}", "amount": "{{ input.amount }}", "currency": "EUR"},
        "expected_status": [201],
        "external_system": "Stripe",
    }
    ship = {
        "name": "ship",
        "kind": "http",
        "url": receiver.url_of(CARRIER),
        "body": {"order": "{{ input.order }}", "weight_kg": "{{ input.weight_kg }}"},
        "policy": "slow",
        "timeout_s": 15,
        "external_system": "DHL",
    }
    hold = {"name": "hold", "kind": "wait", "wait_s": "{{ input.hold_s ?? 0 }}"}
    announce = {
        "name": "announce",
        "kind": "emit",
        "event_type": "order.shipped",
        "payload": {"order": "{{ input.order }}", "tracking": "{{ steps.ship.output.tracking }}"},
    }
    tell = {
        "name": "tell-customer",
        "kind": "handler",
        "handler": "tell_customer",
        "input": {"email": "{{ input.email }}", "text": "It is on its way: {{ steps.ship.output.tracking }}"},
        "max_retries": 5,
    }
    await redrive.api.workflow(WORKFLOW, charge, ship, announce)
    about = "Charges an order, hands it to the carrier and tells everybody who wants to know."
    await redrive.api.workflow(WORKFLOW, charge, ship, hold, announce, tell, description=about)
    names = ("read", "check", "match-the-orders", "post", "convert", "balance", "archive", "report", "sign", "send")
    steps = [{"name": name, "kind": "handler", "handler": f"books.{name}", "policy": "slow"} for name in names]
    await redrive.api.workflow("close-the-books", *steps, retention_s=86_400 * 90)


async def run_all(redrive: Installation, worker: Worker, clock: ManualClock) -> None:
    """Runs that have ended and runs that have not, in the minutes before the end."""
    keys = (await redrive.api.get("/v1/keys"))["data"]
    shop = next(f"key:{key['id']}" for key in keys if key["name"] == "shop backend")
    people = (await redrive.api.get("/v1/users"))["data"]
    irene = next(f"user:{user['id']}" for user in people if user["role"] == "IT_MANAGER")
    ended = [await _begin(redrive, clock, shop, 4_700 + number) for number in range(3)]
    nothing = await _begin(redrive, clock, shop, 4_712, amount="0.00")
    free = await _begin(redrive, clock, shop, 4_713, amount="0.00")
    nobody = await _begin(redrive, clock, shop, 4_711, email="nobody")
    lost = await _begin(redrive, clock, shop, 4_714, weight_kg=44.5)
    await worker.run_until_idle()
    clock.advance(30)
    async with redrive.stores.engine.tenant(redrive.org_id) as session:
        assert await runs.cancel_run(session, lost, Act(irene, because="the parcel was lost"), clock) is None
        mended = Edit(b'{"order": 4713, "amount": "9.90", "currency": "EUR"}')
        alone = Replay("STEP_ONLY", mended, at_once=True)
        assert await replay_run(session, free, 0, alone, Act(irene, because="it was not free"), clock, roll=0.5) is None
        again = Replay(new_key=True)
        assert await replay_run(session, ended[0], 3, again, Act(irene), clock, roll=0.5) is None
    await worker.run_until_idle()
    clock.advance(30)
    retrying = await _begin(redrive, clock, shop, 4_715, weight_kg=31.5)
    waiting = await _begin(redrive, clock, shop, 4_716, hold_s=7_200)
    await worker.run_until_idle()
    async with redrive.stores.engine.tenant(redrive.org_id) as session:
        found = [await _status(session, run) for run in (*ended, nobody, nothing, free, lost, retrying, waiting)]
    assert found == ["SUCCESS"] * 3 + ["DLQ_PENDING"] * 2 + ["PARTIAL", "FAILED"] + ["RUNNING"] * 2


async def _begin(redrive: Installation, clock: ManualClock, shop: str, order: int, **fields: object) -> UUID:
    given = {"order": order, "amount": "12.50", "weight_kg": 2.4, "email": "zoe@example.com", **fields}
    run = NewRun(new_id(), json.dumps(given).encode(), f"checkout-{order}")
    async with redrive.stores.engine.tenant(redrive.org_id) as session:
        row = await get_workflow(session, WORKFLOW)
        assert row is not None
        assert await runs.begin_run(session, version_of(row), run, Act(shop), clock) == "accepted"
    return run.id


async def _status(session: Session, run_id: UUID) -> str:
    row = await runs.get_run(session, run_id)
    assert row is not None
    status: str = row["status"]
    return status
