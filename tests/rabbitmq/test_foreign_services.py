"""Row E beside services that never heard of Redrive: pika asserts the same queues and reads dead letters."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import Eventually
from redrive import GiveUp, Message
from support.broker import DEAD, QUICK, SOURCE, consuming
from support.broker_load import consumer as command
from support.foreign_service import QUORUM, assert_queue, publish, take
from support.installation import Installation
from support.obedient import QUEUE
from support.processes import program

from .test_collect import collecting, letters


class UnsupportedMimeTypeError(Exception):
    """A service's own."""


class ClientError(Exception):
    """A service's own."""


async def fails_in_some_way(message: Message) -> None:
    match message.payload["n"]:
        case 0:
            raise UnsupportedMimeTypeError("image/x-odd")
        case 1:
            raise ClientError("no such unit")
        case 2:
            raise GiveUp("closed account")
        case 3:
            await asyncio.Event().wait()
        case _:
            raise RuntimeError("odd")


async def test_e7_error_type_is_the_name_of_the_class_and_the_category_is_a_header(vhost_url: str) -> None:
    bodies = [*(b'{"n": %d}' % n for n in range(5)), b"no JSON"]
    policy = replace(QUICK, timeout_s=0.2, max_retries=0)
    async with consuming(vhost_url, fails_in_some_way, policy=policy):
        await asyncio.to_thread(publish, vhost_url, SOURCE, bodies)
        dead = {one.properties.message_id: one for one in await asyncio.to_thread(take, vhost_url, DEAD, 6)}
    details = {name: one.json["error_details"] for name, one in dead.items()}
    assert {name: (details[name]["error_type"], one.headers["x-redrive-category"]) for name, one in dead.items()} == {
        "0": ("UnsupportedMimeTypeError", "validation"),
        "1": ("ClientError", "client_error"),
        "2": ("GiveUp", "unknown"),
        "3": ("TimeoutError", "timeout"),
        "4": ("RuntimeError", "unknown"),
        "5": ("DecodeError", "validation"),
    }
    for one in details.values():
        assert one["stack_trace"].startswith("Traceback (most recent call last):")
        assert one["error_type"] in one["stack_trace"]
    assert {one.headers.get("x-retry-count", 0) for one in dead.values()} == {0}  # E-12: none was retried


FOREIGN = [
    ("ValidationError", 1, "validation", "permanent"),
    ("SyntaxError", 1, "validation", "permanent"),
    ("UnsupportedMimeTypeError", 1, "validation", "permanent"),
    ("ClientError", 1, "client_error", "permanent"),
    ("ConfigurationError", 1, "configuration", "permanent"),
    ("TimeoutError", 3, "timeout", "exhausted"),
    ("RedisConnectionError", 3, "network", "exhausted"),
    ("transient", 2, "server_error", "exhausted"),
    ("OddError", 2, "unknown", "exhausted"),
    ("OddError", 0, "unknown", "permanent"),
]


def as_specified(n: int, error_type: str, retry_count: int) -> bytes:
    """What the specification's own `routeToDlq` publishes."""
    now = int(time.time())
    details = {
        "error_type": error_type,
        "error_message": f"error {n}",
        "stack_trace": f"{error_type}: error {n}\n    at transform (transform.ts:7:9)",
        "retry_count": retry_count,
        "first_attempt_timestamp": now - 14,
        "last_attempt_timestamp": now,
    }
    metadata = {
        "tenant_id": "north",
        "internal_id": n,
        "dlq_timestamp": now,
        "service": SOURCE,
        "service_version": "1.0.0",
    }
    return json.dumps({"original_message": {"n": n}, "error_details": details, "metadata": metadata}).encode()


async def test_e7_letters_of_a_foreign_service_are_collected_with_their_category(
    redrive: Installation, vhost_url: str
) -> None:
    """`2 / 2`, never `2 / 5`: the retries that its service granted, not those of a policy that is none of its own."""
    bodies = [as_specified(n, error_type, retries) for n, (error_type, retries, _, _) in enumerate(FOREIGN)]
    await asyncio.to_thread(declare_and_publish, vhost_url, bodies)
    async with collecting(redrive, vhost_url, DEAD):
        found = {one["payload_snapshot"]["n"]: one for one in await letters(redrive, len(FOREIGN), kind="rabbitmq")}
    for n, (error_type, retries, category, reason) in enumerate(FOREIGN):
        seen: Mapping[str, Any] = found[n]
        assert (seen["category"], seen["reason"]) == (category, reason), error_type
        assert (seen["retry_count"], seen["max_retries"]) == (retries, retries)
        assert seen["error_stack"].startswith(error_type)


def declare_and_publish(url: str, bodies: list[bytes]) -> None:
    assert assert_queue(url, DEAD) is None
    publish(url, DEAD, bodies)


OTHER_TYPE = "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue "


@pytest.mark.parametrize("theirs", [None, QUORUM], ids=["classic", "quorum"])
@pytest.mark.parametrize("queue_type", [None, "quorum"])
async def test_e8_queues_that_another_service_asserted_before_are_used_as_they_are(
    vhost_url: str, theirs: Mapping[str, Any] | None, queue_type: str | None
) -> None:
    for queue in (SOURCE, DEAD):
        assert await asyncio.to_thread(assert_queue, vhost_url, queue, theirs) is None
    await one_message_dies(vhost_url, DEAD, queue_type=queue_type)
    for queue in (SOURCE, DEAD):
        assert await asyncio.to_thread(assert_queue, vhost_url, queue, theirs) is None


@pytest.mark.parametrize("queue_type", [None, "classic", "quorum"])
async def test_e8_another_service_can_assert_the_queues_that_a_consumer_made(
    vhost_url: str, queue_type: str | None
) -> None:
    await one_message_dies(vhost_url, DEAD, queue_type=queue_type)
    for queue in (SOURCE, DEAD):
        plain = await asyncio.to_thread(assert_queue, vhost_url, queue)
        as_quorum = await asyncio.to_thread(assert_queue, vhost_url, queue, QUORUM)
        refused = as_quorum if queue_type != "quorum" else plain
        assert [plain, as_quorum].count(None) == 1
        assert refused is not None
        assert refused.startswith(OTHER_TYPE)


@pytest.mark.parametrize("arguments", [{"x-max-length": 1000}, {"x-message-ttl": 3_600_000}, {"x-max-priority": 3}])
async def test_e8_queues_with_arguments_of_their_own_are_used_as_they_are(
    vhost_url: str, arguments: dict[str, Any]
) -> None:
    for queue in (SOURCE, DEAD):
        assert await asyncio.to_thread(assert_queue, vhost_url, queue, arguments) is None
    await one_message_dies(vhost_url, DEAD)


async def test_e11_the_dead_letter_queue_has_the_name_that_a_service_asserts(
    redrive: Installation, vhost_url: str, eventually: Eventually
) -> None:
    """Whatever its source is called: asserted before the consumer, and collected with the queue that it came from."""
    queue = "orders.outbound"
    assert await asyncio.to_thread(assert_queue, vhost_url, DEAD) is None
    terms: dict[str, Any] = {"queue": queue, "service": SOURCE, "dead_letter_queue": DEAD}
    async with consuming(vhost_url, fails_in_some_way, **terms), collecting(redrive, vhost_url, DEAD):
        await asyncio.to_thread(publish, vhost_url, queue, [b'{"n": 1}'])
        (letter,) = await letters(redrive, 1)
    assert (letter["event_type"], letter["broker"]["source"], letter["broker"]["queue"]) == (queue, DEAD, queue)
    assert await asyncio.to_thread(assert_queue, vhost_url, f"{queue}-dlq", QUORUM) is None  # it was not there


async def test_e11_e8_the_command_takes_the_name_and_the_type(vhost_url: str, tmp_path: Path) -> None:
    options = ("--dead-letter-queue", DEAD, "--queue-type", "quorum")
    order = json.dumps({"fails": 9, "error": "validation"}).encode()
    async with command([vhost_url], tmp_path / "tries", {}, *options):
        await asyncio.to_thread(publish, vhost_url, QUEUE, [order])
        (dead,) = await asyncio.to_thread(take, vhost_url, DEAD, 1)
    assert dead.json["error_details"]["error_type"] == "ValueError"
    for queue in (QUEUE, DEAD):
        assert await asyncio.to_thread(assert_queue, vhost_url, queue, QUORUM) is None


FAILS = """
from redrive import Redrive

app = Redrive()


@app.consume("orders")
async def act(message):
    raise ConnectionError("the hub is down")
"""


@pytest.mark.parametrize("has_database", [True, False])
async def test_c14_the_command_honours_max_retries_with_a_database_and_without(
    redrive: Installation, vhost_url: str, empty_url: str, tmp_path: Path, has_database: bool
) -> None:
    (tmp_path / "shop.py").write_text(FAILS)
    env = {"REDRIVE_RABBITMQ_URL": vhost_url, "MAX_RETRIES": "1"}
    if has_database:
        env["REDRIVE_DATABASE_URL"] = empty_url
    async with program("consume", "--app", "shop:app", env=env, cwd=tmp_path) as running:
        await running.said("consumer_started", within_s=60)
        await asyncio.to_thread(publish, vhost_url, "orders", [b"{}"])
        (dead,) = await asyncio.to_thread(take, vhost_url, "orders-dlq", 1)
    assert dead.json["error_details"]["retry_count"] == 1


async def one_message_dies(url: str, queue: str, **terms: Any) -> None:
    """A message that fails, is retried and dies, as a foreign service publishes and reads it."""

    async def fails(message: Message) -> None:
        raise ConnectionError("the hub is down")

    async with consuming(url, fails, policy=replace(QUICK, max_retries=1), **terms):
        await asyncio.to_thread(publish, url, SOURCE, [b'{"n": 1}'])
        (dead,) = await asyncio.to_thread(take, url, queue, 1)
    assert dead.json["original_message"] == {"n": 1}
    assert dead.headers["x-retry-count"] == dead.json["error_details"]["retry_count"] == 1
