"""A service that never heard of Redrive, written with pika as row E's specification has it.

Blocking: call it in a thread.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

QUORUM: Mapping[str, Any] = {"x-queue-type": "quorum"}


class Taken(NamedTuple):
    body: bytes
    headers: Mapping[str, Any]
    properties: pika.BasicProperties

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def assert_queue(url: str, queue: str, arguments: Mapping[str, Any] | None = None) -> str | None:
    """`channel.assertQueue(queue, {durable: true})`; what the broker says where it refuses."""
    with _channel(url) as channel:
        try:
            channel.queue_declare(queue, durable=True, arguments=None if arguments is None else dict(arguments))
        except ChannelClosedByBroker as refused:
            return str(refused.reply_text)
    return None


def publish(url: str, queue: str, bodies: list[bytes], **properties: Any) -> None:
    """Each has the place in the list as its id, if it is given none."""
    with _channel(url) as channel:
        channel.confirm_delivery()
        for place, body in enumerate(bodies):
            told = pika.BasicProperties(**{"message_id": str(place), "delivery_mode": 2, **properties})
            channel.basic_publish("", queue, body, told, mandatory=True)


def take(url: str, queue: str, count: int, *, within_s: float = 20.0) -> list[Taken]:
    """As many as these, taken out of it; fewer where no more come in time."""
    taken: list[Taken] = []
    with _channel(url) as channel:
        for method, properties, body in channel.consume(queue, inactivity_timeout=within_s):
            if method is None:
                break
            channel.basic_ack(method.delivery_tag)
            taken.append(Taken(body, properties.headers or {}, properties))
            if len(taken) == count:
                break
        channel.cancel()
    return taken


@contextmanager
def _channel(url: str) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        connection.close()
