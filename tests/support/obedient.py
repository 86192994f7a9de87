"""An app for `redrive consume --app support.obedient:app`: its handler does what a message tells it to.

It writes each try down before it answers, and takes a moment from there to the answer: a kill falls in between. Where
to, and how many may be under way, the environment says. Read by support.broker_load.
"""

import asyncio
import os
import time

from redrive import Message, Redrive
from redrive.core.policy import Policy

QUEUE = "orders"
DELAYS_S = (0.05, 0.1, 0.2)
POLICY = Policy.from_spec({"kind": "list", "delays_s": DELAYS_S, "jitter": 0.2, "max_retries": len(DELAYS_S)})
CONCURRENCY = 20
PREFETCH = 2 * CONCURRENCY
ANSWER_AFTER_S = 0.01

app = Redrive()


@app.consume(QUEUE, policy=POLICY, concurrency=CONCURRENCY, prefetch=PREFETCH - CONCURRENCY)
async def obey(message: Message) -> None:
    fails, error = message.payload["fails"], message.payload["error"]
    has_effect = message.attempt > fails
    line = f"{message.message_id} {message.attempt} {int(has_effect)} {time.monotonic()}\n"
    os.write(_file(), line.encode())
    await asyncio.sleep(ANSWER_AFTER_S)
    if not has_effect:
        raise ValueError("bad order") if error == "validation" else ConnectionError("no answer")


def _file() -> int:
    global _opened
    if _opened is None:
        _opened = os.open(os.environ["TRIES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return _opened


_opened: int | None = None
