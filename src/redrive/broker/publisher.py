"""Publishing that is over when the broker has it: confirmed, and noticed where no queue takes it.

One connection, and a channel for each exchange: a publish that the broker refuses closes its channel, and with it what
else was under way there. Used by destinations and by the sources.
"""

import asyncio
import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import NamedTuple
from uuid import uuid4

from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import (
    ChannelClosed,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    PublishError,
)

from redrive.broker.link import LOST, BrokerDown, close, connect, said
from redrive.broker.wire import Properties
from redrive.core.outcome import Category, Failure

MAX_CHANNELS = 64
MAX_NUMBER = 2_047  # of channels; the broker's own limit, unless it says less
FRAME_BYTES = 32  # around the properties
REFUSED_WITHIN_S = 5.0  # what is not confirmed by then was not refused: a queue takes its time
RETIRE_AFTER_S = 1.0  # a queue that is full refuses too, and often
RECONNECT_EVERY_S = 1.0  # a broker that is down is not asked by every message


class Outgoing(NamedTuple):
    exchange: str
    routing_key: str
    body: bytes
    properties: Properties


class PublishRefused(Exception):
    """The broker does not take it, and will not as long as things are as they are."""


class Unroutable(PublishRefused):
    """No queue is bound to the exchange for this routing key."""


class NoSuchExchange(PublishRefused):
    pass


class NotAllowed(PublishRefused):
    """This user may not, or the message is one that the broker does not accept."""


class Unfit(NotAllowed):
    """It is the message, whoever publishes it: too large, or not to be written as AMQP."""


class Unconfirmed(Exception):
    """A queue did not take it: it is full, or its node has a problem."""


def failure_of_publish(problem: BaseException) -> Failure:
    """What a failed publish means for a task."""
    match problem:
        case PublishRefused():
            return Failure(Category.CONFIGURATION, str(problem))
        case Unconfirmed():
            return Failure(Category.SERVER_ERROR, str(problem))
        case TimeoutError():
            message = "RabbitMQ did not confirm the message in time."
            return Failure(Category.TIMEOUT, message, possible_duplicate=True)
        case BrokerDown():
            return Failure(Category.NETWORK, str(problem), possible_duplicate=problem.possible_duplicate)
    raise problem


@dataclass(slots=True)
class _Lane:
    """The channel of an exchange. The library tells returned messages by their ids: no two of one id at once.

    Its first message goes alone. What the broker refuses for all, an exchange that is not there, say, then closes a
    channel with nothing else under way: what is written to one that was just closed costs the connection.
    """

    channel: AbstractChannel
    ids: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    first: asyncio.Lock = field(default_factory=asyncio.Lock)
    proven: asyncio.Event = field(default_factory=asyncio.Event)
    opened_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    is_spent: bool = False  # closed when nothing is under way in it


class Publisher:
    def __init__(self, urls: Sequence[str], *, name: str) -> None:
        self._urls = urls
        self._name = name
        self._connection: AbstractConnection | None = None
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()
        self._opening = asyncio.Lock()
        self._alone = asyncio.Lock()
        self._number = 0
        self._down: tuple[float, BrokerDown] | None = None  # until when it is believed

    async def publish(self, message: Outgoing, timeout_s: float | None) -> None:
        """Returns when the broker has confirmed it, which for a quorum queue is when most of its members have it."""
        if not message.properties.message_id:
            message.properties.message_id = str(uuid4())
        async with asyncio.timeout(timeout_s):
            try:
                await self._in_turn(message)
            except ChannelNotFoundEntity as closed:
                raise NoSuchExchange(_refusal(message, closed)) from closed
            except (ChannelClosed, ChannelInvalidStateError):
                await self._by_itself(message)

    async def _in_turn(self, message: Outgoing) -> None:
        while True:
            lane = await self._lane(message.exchange)
            if lane.proven.is_set():
                return await self._in_lane(lane, message)
            async with lane.first:
                if lane.proven.is_set() or lane.channel.is_closed:
                    continue
                first = asyncio.create_task(self._in_lane(lane, message))
                try:
                    over, _ = await asyncio.wait([first], timeout=REFUSED_WITHIN_S)
                except asyncio.CancelledError:
                    first.cancel()
                    raise
                if not over or first.cancelled() or isinstance(first.exception(), NoneType | Unroutable | Unconfirmed):
                    lane.proven.set()
            return await first

    async def _by_itself(self, message: Outgoing) -> None:
        """The channel was closed because of this message, or of another one: alone it will be seen."""
        async with self._alone:
            async with self._opening:
                lane = _Lane(await self._channel())
            try:
                await self._in_lane(lane, message)
            except ChannelPreconditionFailed as refused:
                raise Unfit(_refusal(message, refused)) from refused
            except ChannelClosed as refused:
                raise NotAllowed(_refusal(message, refused)) from refused
            except ChannelInvalidStateError as lost:
                raise self._lost(said(lost)) from lost
            finally:
                await close(lane.channel)

    async def _in_lane(self, lane: _Lane, message: Outgoing) -> None:
        message_id = str(message.properties.message_id)
        while (before := lane.ids.get(message_id)) is not None:
            await asyncio.wait([before])
        lane.ids[message_id] = over = asyncio.get_running_loop().create_future()
        try:
            _assert_fits(message, lane.channel)
            await lane.channel.basic_publish(
                message.body,
                exchange=message.exchange,
                routing_key=message.routing_key,
                properties=message.properties,
                mandatory=True,
            )
        except PublishError:
            raise Unroutable(
                f"No queue takes messages that are published to {_exchange(message.exchange)} with the routing key "
                f"{message.routing_key!r}."
            ) from None
        except DeliveryError:
            self._retire(message.exchange, lane)
            raise Unconfirmed(
                f"RabbitMQ did not take a message for {_exchange(message.exchange)} with the routing key "
                f"{message.routing_key!r}: a queue is full, or has no leader."
            ) from None
        except (ChannelClosed, ChannelInvalidStateError, TimeoutError, Unfit):
            raise
        except (TypeError, ValueError, OverflowError, struct.error) as problem:
            # What exactly is wrong might repeat a header's value.
            raise Unfit("A property, a header or the routing key cannot be written as AMQP.") from problem
        except asyncio.CancelledError:
            # The library's way of saying that the channel was closed, unless it is this call that is to end.
            this = asyncio.current_task()
            if this is None or this.cancelling():
                raise
            raise self._lost("it was closed") from None
        except LOST as problem:
            raise self._lost(said(problem)) from problem
        finally:
            del lane.ids[message_id]
            over.set_result(None)
            if lane.is_spent and not lane.ids:
                await close(lane.channel)

    def _retire(self, exchange: str, lane: _Lane) -> None:
        """A channel asks the node that led a queue when it first published there, and as long as that node is gone some
        versions of RabbitMQ refuse whatever comes by this channel. Another one learns which node leads it now.
        """
        age_s = asyncio.get_running_loop().time() - lane.opened_at
        if self._lanes.get(exchange) is lane and age_s > RETIRE_AFTER_S:
            del self._lanes[exchange]
            lane.is_spent = True

    def _lost(self, why: str) -> BrokerDown:
        return BrokerDown(f"The connection to RabbitMQ was lost: {why}.", possible_duplicate=True)

    async def _lane(self, exchange: str) -> _Lane:
        lane = self._lanes.get(exchange)
        if lane is not None and not lane.channel.is_closed:
            self._lanes.move_to_end(exchange)
            return lane
        async with self._opening:
            lane = self._lanes.get(exchange)
            if lane is None or lane.channel.is_closed:
                lane = await self._open(exchange)
        return lane

    async def _open(self, exchange: str) -> _Lane:
        lane = _Lane(await self._channel())
        self._lanes[exchange] = lane
        self._lanes.move_to_end(exchange)
        idle = [name for name, other in self._lanes.items() if not other.ids and other is not lane]
        while len(self._lanes) > MAX_CHANNELS and idle:
            await close(self._lanes.pop(idle.pop(0)).channel)
        return lane

    async def _channel(self) -> AbstractChannel:
        connection = await self._connected()
        try:
            return await connection.channel(self._next_number(connection), on_return_raises=True)
        except LOST as problem:
            raise BrokerDown(f"RabbitMQ opened no channel: {said(problem)}.") from problem

    def _next_number(self, connection: AbstractConnection) -> int:
        """One that was not used lately. The library would give that of a channel that the broker has just closed to the
        next one, where what was still to be written to the old one arrives, and is confirmed in place of another.
        """
        most = min(connection.connection_tune.channel_max or MAX_NUMBER, MAX_NUMBER)
        self._number = self._number % most + 1
        while self._number in connection.channels:
            self._number = self._number % most + 1
        return self._number

    async def _connected(self) -> AbstractConnection:
        if self._connection is not None and self._connection.is_opened:
            return self._connection
        at = asyncio.get_running_loop().time()
        if self._down is not None and at < self._down[0]:
            raise BrokerDown(str(self._down[1]))
        if self._connection is not None:
            await close(self._connection)
            self._lanes.clear()
        try:
            self._connection = await connect(self._urls, name=self._name)
        except BrokerDown as down:
            self._down = (asyncio.get_running_loop().time() + RECONNECT_EVERY_S, down)
            raise
        return self._connection

    async def connection(self) -> AbstractConnection:
        """The one that it publishes through, for questions about the topology."""
        async with self._opening:
            return await self._connected()

    async def close(self) -> None:
        if self._connection is not None:
            await close(self._connection)
            self._connection = None


def _assert_fits(message: Outgoing, channel: AbstractChannel) -> None:
    """What does not fit costs the connection, and all that is under way on it."""
    most = channel.connection.connection_tune.frame_max
    if most and len(message.properties.marshal()) > most - FRAME_BYTES:
        raise Unfit(f"The headers and properties of a message have more than {most} bytes: RabbitMQ takes none such.")


def _refusal(message: Outgoing, closed: ChannelClosed) -> str:
    return f"RabbitMQ refused a message for {_exchange(message.exchange)}: {said(closed)}."


def _exchange(name: str) -> str:
    return f"the exchange {name!r}" if name else "the default exchange"
