"""Dead letters of a broker through the API: what they were there is shown, secrets apart, whatever bytes they have."""

import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import UUID

from redrive.api.context import BrokerTerms
from redrive.core.broker import QueueState, Redriven
from redrive.core.permissions import Role
from redrive.store.dead_messages import DeadMessages
from redrive.store.events import MAX_PAYLOAD_BYTES
from redrive.store.keys import Caller
from support.dead_messages import DEATHS, dead_message

from .conftest import Api


def book(api: Api) -> DeadMessages:
    return DeadMessages(api.context.engine_db, api.org_id, api.context.clock)


async def kept(api: Api, queue: str, **fields: Any) -> dict[str, Any]:
    """The dead letter of a new message that died in this queue."""
    assert await book(api).keep([dead_message(queue, **fields)]) == [True]
    found = await api.viewer.get(f"/v1/dead-letters?kind=rabbitmq&event_type={quote(queue)}")
    (letter,) = found.json["data"]
    return dict((await api.viewer.get(f"/v1/dead-letters/{letter['id']}")).json)


async def test_a_letter_and_its_log_tell_what_it_was_in_the_broker(api: Api) -> None:
    before = UUID(int=7)
    details = json.dumps({"metadata": {"tenant_id": "north", "api_key": "k"}, "big": {"$decimal": "1.10"}})
    letter = await kept(api, "shown", message_id="m-1", retries=3, details=details, redriven=Redriven(before, 2))
    broker = letter["broker"]
    assert (letter["retry_count"], letter["event_type"], letter["external_system"]) == (3, "shown", "shop-service")
    assert (broker["source"], broker["queue"], broker["exchange"]) == ("shown-dlq", "shown", "shop")
    assert (broker["routing_key"], broker["message_id"], broker["service"]) == ("order.paid", "m-1", "shop-service")
    assert broker["properties"]["headers"] == {"x-tenant": "north", "authorization": "[redacted]", "x-retry-count": 3}
    assert (broker["deaths"], broker["redriven_from"]) == (DEATHS, str(before))
    assert broker["details"] == {"metadata": {"tenant_id": "north", "api_key": "[redacted]"}, "big": "1.10"}
    assert letter["payload_snapshot"] == {"order": 7}
    log = (await api.viewer.get(f"/v1/logs/{letter['id']}")).json
    await api.endpoint()
    ordinary = await api.dead_task()
    assert log["broker"] == broker
    assert (await api.owner.get(f"/v1/dead-letters/{ordinary['id']}")).json["broker"] is None


async def test_what_is_not_json_is_told_as_what_it_is(api: Api) -> None:
    assert (await kept(api, "text", body=b"a <b/>"))["payload_snapshot"] == "a <b/>"
    letter = await kept(api, "binary", body=b"\xff\x00")
    assert letter["payload_snapshot"] == "[2 bytes that are neither JSON nor text]"
    assert (await api.owner.get(f"/v1/events/{letter['event_id']}")).json["payload"] == "base64:/wA="


async def test_a_message_larger_than_any_event_is_told_by_its_size_and_can_be_replayed_edited(api: Api) -> None:
    letter = await kept(api, "large", body=b" " * MAX_PAYLOAD_BYTES + b"{}")
    told = f"[{MAX_PAYLOAD_BYTES + 2} bytes, too many to be shown]"
    event = (await api.owner.get(f"/v1/events/{letter['event_id']}")).json
    failed = (await api.owner.get("/v1/inbox?status=failed&event_type=large")).json["events"]
    assert (letter["payload_snapshot"], event["payload"], failed[0]["payload"]) == (told, told, told)
    path = f"/v1/dead-letters/{letter['id']}"
    assert (await api.owner.post(f"{path}/replay", {"payload": {"order": 8}})).status == 200
    edited = (await api.owner.get(path)).json
    assert edited["edited_payload"] == {"order": 8}
    assert edited["edits"][0]["diff"][0]["before"] == f"{MAX_PAYLOAD_BYTES + 2} bytes"


async def test_what_no_reader_takes_is_told_as_text(api: Api) -> None:
    """What is stored of a broker's headers may be longer, deeper or stranger than JSON should be."""
    letter = await kept(
        api, "strange", properties="[" * 100_000, deaths=None, details='{"n": 1e999, "i": ' + "9" * 5_000 + "}"
    )
    broker = letter["broker"]
    assert broker["properties"]["text"].startswith("[[[")
    assert (broker["deaths"], broker["details"]["n"]) == ([], "1e999")


async def test_queues_are_listed_with_their_open_letters_and_scraped(api: Api) -> None:
    seen = QueueState("listed-dlq", True, None, 3, 1, 2, 1)
    await book(api).note([seen, seen._replace(queue='li"sted', is_source=False, messages=None)])
    await kept(api, 'li"sted')
    answer = (await api.viewer.get("/v1/broker")).json
    found = {queue["queue"]: queue for queue in answer["queues"]}
    assert answer["configured"] is False
    assert (found["listed-dlq"]["messages"], found["listed-dlq"]["open_letters"]) == (3, 0)
    assert (found['li"sted']["messages"], found['li"sted']["open_letters"]) == (None, 1)
    scraped = (await api.nobody.get("/metrics")).body.decode()
    assert 'redrive_broker_messages{queue="listed-dlq"} 3' in scraped
    assert 'redrive_broker_messages{queue="li\\"sted"}' not in scraped
    assert 'redrive_broker_collected_total{queue="li\\"sted"} 2' in scraped


async def test_a_broker_belongs_to_one_org(api: Api) -> None:
    context = replace(api.context, broker=BrokerTerms("north"))
    north, south = (Caller(api.org_id, api.org_id, "a key", Role.VIEWER, org_name=name) for name in ("north", "south"))
    assert (context.has_broker(north), context.has_broker(south)) == (True, False)
    assert not replace(context, broker=None).has_broker(north)
