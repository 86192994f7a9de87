"""An installation with a week of sample data, running until it is stopped: `make sample`, or with a port
`make sample ARGS="--port 8123"`. For looking at pages while they are written.

Everything is its own and goes with it: a PostgreSQL in a temporary folder, a receiver, a worker in the same process,
and a trickle of new events. Prints one-time sign-in links and the accounts. Nothing is reloaded: start it again to
see a change.
"""

import argparse
import asyncio
import contextlib
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from conftest import FAST_SETTINGS
from redrive.core.permissions import Role
from redrive.observe.logs import set_up_logs
from redrive.store.clock import DatabaseClock
from redrive.store.embedded import EmbeddedPostgres
from redrive.store.events import accept
from support import letters, sample
from support.installation import Installation, installation
from support.receiver import open_receiver

PORT = 8123
TRICKLE_S = 2.0


@asynccontextmanager
async def private_postgres() -> AsyncIterator[str]:
    """The URL of a PostgreSQL in a folder of its own, which goes with it; quick, not durable."""
    folder = Path(tempfile.mkdtemp(prefix="rd-sample-", dir="/tmp"))
    folder.chmod(0o755)  # as root PostgreSQL runs under an account of its own
    server = await EmbeddedPostgres.start(folder, settings=FAST_SETTINGS)
    try:
        yield server.url
    finally:
        await server.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def trickle(redrive: Installation) -> None:
    """Something new every two seconds, until cancelled."""
    chance = random.Random(sample.SEED)
    while True:
        await asyncio.sleep(TRICKLE_S)
        event = sample.an_event(redrive.org_id, chance)
        await accept(redrive.stores.engine, [event], DatabaseClock())


async def main(port: int, more_letters: int) -> None:
    set_up_logs("console", "critical", service="sample")
    stop = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    async with (
        private_postgres() as url,
        open_receiver() as receiver,
        installation(url, port=port) as redrive,
    ):
        print("A week goes by …", file=sys.stderr, flush=True)
        await sample.live_through(redrive, receiver)
        if more_letters:
            await letters.seed(url, redrive.api, redrive.org_id, more_letters, url=receiver.url)
        for role in Role:
            print(f"{role:<11} {await redrive.sign_in_url(role)}")
        print(f"accounts    {', '.join(email for email, *_ in sample.PEOPLE)}; password: {sample.PASSWORD}", flush=True)
        async with redrive.working(sample.HANDLERS):
            flowing = asyncio.create_task(trickle(redrive))
            await stop.wait()
            flowing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await flowing


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make sample", description=__doc__)
    parser.add_argument("--port", type=int, default=PORT, help="where to listen, on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--letters", type=int, default=0, metavar="N", help="so many dead letters more")
    args = parser.parse_args()
    asyncio.run(main(args.port, args.letters))
