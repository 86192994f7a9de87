"""Celery's side: `enqueue N` and `work`. Runs in a venv of its own; imports nothing of ours.

Broker and receiver from BENCH_BROKER, BENCH_TARGET. Messages are persistent and acknowledged after the work.
"""

import os
import sys

import urllib3
from celery import Celery

BODY = "x" * 512
THREADS = 20
PREFETCH = 4

app = Celery("celery_worker", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_default_queue="deliver",
    worker_prefetch_multiplier=PREFETCH,
    worker_disable_rate_limits=True,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
http = urllib3.PoolManager(maxsize=THREADS, retries=False)


@app.task(name="deliver", bind=True, max_retries=5)
def deliver(self: object, body: str) -> None:
    answer = http.request(
        "POST", os.environ["BENCH_TARGET"], body=body.encode(), headers={"webhook-id": self.request.id}
    )
    if answer.status != 200:
        raise self.retry(countdown=0)


def enqueue(n: int) -> None:
    with app.producer_or_acquire() as producer:
        for _ in range(n):
            deliver.apply_async((BODY,), producer=producer)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["enqueue", count]:
            enqueue(int(count))
        case ["work"]:
            app.worker_main(
                ["worker", "--pool", "threads", "--concurrency", str(THREADS), "--loglevel", "CRITICAL",
                 "--without-gossip", "--without-mingle", "--without-heartbeat", "-n", f"bench{os.getpid()}@localhost"]
            )  # fmt: skip
