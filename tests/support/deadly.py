"""An app for `redrive consume --app support.deadly:app`: one of its messages kills the process. It writes each try down
before it answers; where to, the environment says.
"""

import asyncio
import os
import signal

from redrive import Message, Redrive

QUEUE = "orders"
CONCURRENCY = 10
ANSWER_AFTER_S = 0.02

app = Redrive()


@app.consume(QUEUE, concurrency=CONCURRENCY)
async def obey(message: Message) -> None:
    with open(os.environ["TRIES"], "a") as file:  # noqa: PTH123 - at once, whatever happens next
        file.write(f"{message.message_id}\n")
    if message.payload["is_deadly"]:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(ANSWER_AFTER_S)
