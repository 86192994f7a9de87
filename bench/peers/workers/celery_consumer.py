"""Celery's side of bench.rabbitmq: `enqueue` and `work`. Runs in a venv of its own; imports nothing of ours but tally.

Broker, queue and its kind from BENCH_BROKER, BENCH_QUEUE, BENCH_KIND. Messages are persistent and acknowledged after
the work. Of the pools, `solo` is the quickest for a handler that does nothing.
"""

import os
import sys

from celery import Celery
from tally import NotYet, Tally, message

PREFETCH = 100
QUEUE = os.environ["BENCH_QUEUE"]

app = Celery("celery_consumer", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_default_queue=QUEUE,
    task_default_queue_type=os.environ["BENCH_KIND"],
    worker_prefetch_multiplier=PREFETCH,
    worker_disable_rate_limits=True,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,  # it would take the tally for a line of its log
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": sys.argv[1:] == ["work"]},  # of what is tried again, as ours are
)
tally = Tally()


@app.task(name="handle", bind=True, max_retries=3)
def handle(self: object, payload: dict[str, object]) -> None:
    try:
        tally.handle(payload["number"])
    except NotYet as error:
        raise self.retry(exc=error, countdown=0) from None


def enqueue() -> None:
    with app.producer_or_acquire() as producer:
        for number in range(int(os.environ["BENCH_MESSAGES"])):
            handle.apply_async((message(number),), producer=producer)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["enqueue"]:
            enqueue()
        case ["work"]:
            app.worker_main(
                ["worker", "--pool", "solo", "--loglevel", "CRITICAL",
                 "--without-gossip", "--without-mingle", "--without-heartbeat", "-n", f"bench{os.getpid()}@localhost"]
            )  # fmt: skip
