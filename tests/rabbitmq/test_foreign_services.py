"""Row E beside services that never heard of Redrive: pika asserts the same queues and reads dead letters."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from redrive import GiveUp, Message
from support.broker import DEAD, QUICK, SOURCE, consuming
from support.foreign_service import assert_queue, publish, take
from support.installation import Installation

from .test_collect import collecting, letters

pytestmark = pytest.mark.filterwarnings("error")


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
