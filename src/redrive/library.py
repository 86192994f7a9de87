"""The public face for Python programs: register handlers, hand in tasks and events.

    app = Redrive("postgresql://…")

    @app.handler("edi.orders", policy="integration")
    async def send_order(task): ...

    await app.enqueue("edi.orders", {"order": 7}, idempotency_key="order-7")

`redrive worker --app mymodule:app` runs the handlers.
"""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from redrive.core.broker import MAX_SOURCE_BYTES, ConsumerSpec
from redrive.core.policy import Policy
from redrive.core.trace import as_headers, traceparent_of
from redrive.core.workflow import Workflow
from redrive.destinations.callbacks import Callback
from redrive.destinations.python import Handler
from redrive.observe import traces
from redrive.python_workflows import read_class
from redrive.settings import Settings, load_settings
from redrive.store.db import Pooler
from redrive.store.embedded import running_url
from redrive.store.handover import HandIn, Producer, hand_in, hand_in_sync
from redrive.store.orgs import DEFAULT_ORG
from redrive.store.run_handover import start_run

MAX_NAME_CHARS = 200
MAX_CONCURRENCY = 10_000
MAX_PREFETCH = 65_535  # AMQP knows no more

H = TypeVar("H", bound=Handler)
C = TypeVar("C", bound=Callback)
W = TypeVar("W", bound=type)


class Redrive:
    """Without a URL it speaks to the embedded PostgreSQL that `redrive serve` runs on this machine.

    `pooler` is "transaction" where the URL leads through a pooler in that mode; by default what the settings say.
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        data_dir: Path | None = None,
        org: str = DEFAULT_ORG,
        pooler: Pooler | None = None,
    ) -> None:
        self._database_url = database_url
        self._data_dir = data_dir
        self._org = org
        self._pooler = pooler
        self._producer: Producer | None = None
        self._opening = asyncio.Lock()
        self.handlers: dict[str, Handler] = {}
        self.workflows: dict[str, Workflow] = {}
        self.consumers: dict[str, ConsumerSpec] = {}
        self.dead_letter_callback: Callback | None = None
        self._policies: dict[str, str] = {}

    def handler(self, name: str, *, policy: str | None = None) -> Callable[[H], H]:
        """Register a callable, asynchronous or not. `policy` is that of tasks enqueued through this app."""
        if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise ValueError(f"a handler's name has 1 to {MAX_NAME_CHARS} printable characters")
        if name in self.handlers:
            raise ValueError(f"there is a handler named {name!r} already")

        def register(handler: H) -> H:
            self.handlers[name] = handler
            if policy is not None:
                self._policies[name] = policy
            return handler

        return register

    def workflow(self, named: str | type | None = None) -> Any:
        """Register a class whose methods are the steps of a workflow: `@app.workflow`, or `@app.workflow("name")`.

        Without a name it is the name of the class. A worker that runs this app stores the definition when it starts.
        """
        if isinstance(named, type):
            return self._add_workflow(named.__name__, named)
        return lambda cls: self._add_workflow(named or cls.__name__, cls)

    def _add_workflow(self, name: str, cls: W) -> W:
        if name in self.workflows:
            raise ValueError(f"there is a workflow named {name!r} already")
        workflow, handlers = read_class(name, cls)
        taken = sorted(handlers.keys() & self.handlers.keys())
        if taken:
            raise ValueError(f"there is a handler named {taken[0]!r} already")
        self.workflows[name] = workflow
        self.handlers |= handlers
        return cls

    def consume(
        self,
        queue: str,
        *,
        policy: str | Policy = "transformer",
        name: str | None = None,
        concurrency: int = 50,
        prefetch: int | None = None,
        json: bool = True,
        declare: bool = True,
        dead_letter_queue: str | None = None,
        queue_type: str | None = None,
    ) -> Callable[[H], H]:
        """Register a handler for the messages of a queue of RabbitMQ; `redrive consume` runs it.

        `policy` is a name or a Policy; `name` is how dead letters call the service, by default as the queue. With
        `json` a message that is not JSON is a dead letter, and the handler finds it read in `payload`. With `declare`
        a queue that does not exist is made. `prefetch`: how many messages may wait here besides those under way.
        `dead_letter_queue` is `<queue>-dlq` by default. `queue_type`, "classic" or "quorum", is that of both queues
        where they are made; by default they are asserted as other services do, durable and without arguments.
        """
        if not 1 <= len(queue.encode()) <= MAX_SOURCE_BYTES:
            raise ValueError(f"the name of a queue to consume has 1 to {MAX_SOURCE_BYTES} bytes")
        if queue in self.consumers:
            raise ValueError(f"there is a consumer of {queue!r} already")
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency is a whole number from 1 to {MAX_CONCURRENCY}")
        at_once = min(concurrency + (concurrency if prefetch is None else prefetch), MAX_PREFETCH)

        def register(handler: H) -> H:
            self.consumers[queue] = ConsumerSpec(
                queue,
                handler,
                policy,
                name or queue,
                concurrency,
                at_once,
                is_json=json,
                declare=declare,
                dead_letter_queue=dead_letter_queue,
                queue_type=queue_type,
            )
            return handler

        return register

    def on_dead_letter(self, callback: C) -> C:
        """Register what is told of dead letters, asynchronous or not: it gets a DeadLetterNotice."""
        if self.dead_letter_callback is not None:
            raise ValueError("there is a callback for dead letters already")
        self.dead_letter_callback = callback
        return callback

    async def enqueue(
        self,
        name: str,
        payload: Any,
        *,
        idempotency_key: str | None = None,
        policy: str | None = None,
        external_system: str | None = None,
        correlation_id: str | None = None,
        traceparent: str | None = None,
        connection: Any = None,
    ) -> UUID:
        """Hand a task to the handler of that name and answer its id.

        With `connection` (asyncpg, psycopg or SQLAlchemy) it is written in the transaction that the connection is
        in: it exists exactly when that commits. The same idempotency key is the same task. Without `traceparent` it
        goes on in the trace that this code is in, by OpenTelemetry, if it is in one.
        """
        item = self._call_of(name, payload, idempotency_key, policy, external_system, correlation_id, traceparent)
        return await self._hand_in(connection, item)

    def enqueue_sync(
        self,
        name: str,
        payload: Any,
        *,
        connection: Any,
        idempotency_key: str | None = None,
        policy: str | None = None,
        external_system: str | None = None,
        correlation_id: str | None = None,
        traceparent: str | None = None,
    ) -> UUID:
        """`enqueue` for code outside of an event loop, through its own psycopg or SQLAlchemy connection."""
        item = self._call_of(name, payload, idempotency_key, policy, external_system, correlation_id, traceparent)
        return hand_in_sync(connection, item)

    async def publish(
        self,
        event_type: str,
        payload: Any,
        *,
        idempotency_key: str | None = None,
        policy: str | None = None,
        external_system: str | None = None,
        correlation_id: str | None = None,
        traceparent: str | None = None,
        connection: Any = None,
    ) -> UUID:
        """Hand in an event for the endpoints that subscribe to its type; `connection` as in `enqueue`."""
        named = (idempotency_key, self._org, policy, external_system, correlation_id)
        item = HandIn(event_type, None, body_of(payload), *named, _context(traceparent))
        return await self._hand_in(connection, item)

    async def start(
        self,
        workflow: str,
        input: Any = None,
        *,
        idempotency_key: str | None = None,
        correlation_id: str | None = None,
        traceparent: str | None = None,
        connection: Any = None,
    ) -> UUID:
        """Begin a run of a workflow and answer its id; `connection` and `idempotency_key` as in `enqueue`.

        The workflow must be stored: by a worker that runs this app, or by `PUT /v1/workflows/{name}`.
        """
        begin = partial(
            start_run,
            org=self._org,
            workflow=workflow,
            input=body_of(input),
            idempotency_key=idempotency_key,
            correlation_id=correlation_id,
            traceparent=traceparent or traces.current_context(),
        )
        return await begin(connection if connection is not None else (await self._own_producer()).connections)

    def _call_of(
        self,
        name: str,
        payload: Any,
        idempotency_key: str | None,
        policy: str | None,
        external_system: str | None,
        correlation_id: str | None,
        traceparent: str | None,
    ) -> HandIn:
        chosen = policy or self._policies.get(name)
        named = (idempotency_key, self._org, chosen, external_system, correlation_id)
        return HandIn(name, name, body_of(payload), *named, _context(traceparent))

    async def _hand_in(self, connection: Any, item: HandIn) -> UUID:
        if connection is not None:
            return await hand_in(connection, item)
        return await (await self._own_producer()).hand_in(item)

    async def _own_producer(self) -> Producer:
        async with self._opening:  # two first calls at once make one pool
            if self._producer is None:
                self._producer = await Producer.open(self.database_url(), pooler=self._pooler or self.settings().pooler)
        return self._producer

    @property
    def named_database_url(self) -> str | None:
        """The one that this app was told itself."""
        return self._database_url

    @property
    def org(self) -> str:
        return self._org

    def policy_of(self, name: str) -> str | None:
        """The policy that the handler of that name was registered with."""
        return self._policies.get(name)

    def settings(self) -> Settings:
        """The settings of this machine, but for what this app was told itself."""
        return load_settings(data_dir=self._data_dir, database_url=self._database_url, database_pooler=self._pooler)

    def database_url(self) -> str:
        """Where the database is; a clear error where there is none."""
        if self._database_url is not None:
            return self._database_url
        settings = self.settings()
        url = settings.database_url or running_url(settings.data_dir)
        if url is None:
            raise ConnectionError(
                f"No Redrive runs on {settings.data_dir}. Start one with `redrive serve`, or give Redrive(…) the "
                "URL of its database."
            )
        return url

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
            self._producer = None


def _context(given: str | None) -> str | None:
    """The trace that something is handed in within, as it is kept."""
    usable = traceparent_of(given or traces.current_context())
    return None if usable is None else as_headers(usable)


def body_of(payload: Any) -> bytes:
    """Bytes go as they are; anything else as compact JSON. NaN and Infinity are not JSON."""
    if isinstance(payload, bytes):
        return payload
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
