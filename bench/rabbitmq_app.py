"""Redrive's side of bench.rabbitmq, run by `redrive consume --app bench.rabbitmq_app:app`. Queue from BENCH_QUEUE."""

from __future__ import annotations

import os
import sys

from bench.peers.base import WORKERS
from redrive import Message, Redrive
from redrive.core.policy import Policy

sys.path.insert(0, str(WORKERS))
from tally import Tally

SOONEST_S = 0.001  # a millisecond is what a broker counts in

app = Redrive()
tally = Tally()
policy = Policy.from_spec({"kind": "list", "delays_s": [SOONEST_S], "max_retries": 3})


@app.consume(os.environ["BENCH_QUEUE"], policy=policy)
async def handle(message: Message) -> None:
    tally.handle(message.payload["number"])
