"""Dramatiq's side of bench.rabbitmq: `enqueue` as a script, and a module for `dramatiq`. Of ours it imports tally only.

Broker and queue from BENCH_BROKER, BENCH_QUEUE. Messages are persistent and acknowledged after the work. Its queues are
classic ones: it declares them itself, and has no setting for others.
"""

import logging
import os
import sys

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import Retries
from tally import Tally, message

SOONEST_MS = 1

is_filling = sys.argv[1:] == ["enqueue"]
broker = RabbitmqBroker(
    url=os.environ["BENCH_BROKER"],
    middleware=[Retries()],
    confirm_delivery=not is_filling,  # of what is tried again, as ours are
)
dramatiq.set_broker(broker)
logging.getLogger("dramatiq").setLevel(logging.CRITICAL)  # a stack trace for each try that fails
tally = Tally()


@dramatiq.actor(queue_name=os.environ["BENCH_QUEUE"], max_retries=3, min_backoff=SOONEST_MS, max_backoff=SOONEST_MS)
def handle(payload: dict[str, object]) -> None:
    tally.handle(payload["number"])


if is_filling:
    for number in range(int(os.environ["BENCH_MESSAGES"])):
        handle.send(message(number))
