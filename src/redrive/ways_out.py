"""The destinations of a process, as the settings say. Put together here for app and api_process, which run workers."""

import os
import socket
from typing import TYPE_CHECKING, TypedDict

from redrive.core.address import AddressRules
from redrive.core.ports import Destination
from redrive.destinations import apprise
from redrive.destinations.client import Client
from redrive.destinations.http import HttpDestination
from redrive.destinations.mail import MailDestination
from redrive.destinations.step_calls import StepCalls
from redrive.settings import Settings, SettingsError
from redrive.store.db import Database
from redrive.store.dead_messages import Returns
from redrive.store.endpoints import EndpointTermsBook
from redrive.store.seal import Sealer
from redrive.store.step_book import StoredSteps
from redrive.version import __version__

if TYPE_CHECKING:
    from redrive.broker.publisher import Publisher

MAX_PER_ORIGIN = 200


class _ChannelTerms(TypedDict):
    public_url: str | None
    slot_wait_s: float


def http_destination(settings: Settings, engine: Database, sealer: Sealer) -> HttpDestination:
    return HttpDestination(_client(settings), EndpointTermsBook(engine, sealer), version=__version__)


def open_publisher(settings: Settings) -> "Publisher":
    """What all destinations of a worker publish through. Nothing is connected before the first message."""
    try:
        from redrive.broker.publisher import Publisher  # its library is an extra
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"REDRIVE_RABBITMQ_URL is set, but {missing.name} is not installed: install redrive[rabbitmq]."
        ) from missing
    return Publisher(settings.broker_urls, name=f"redrive-worker {socket.gethostname()}:{os.getpid()}")


def rabbitmq_destinations(
    settings: Settings, engine: Database, sealer: Sealer, publisher: "Publisher"
) -> list[Destination]:
    from redrive.destinations.rabbitmq import RabbitDestination
    from redrive.destinations.rabbitmq_returns import ReturnDestination

    return [
        RabbitDestination(publisher, EndpointTermsBook(engine, sealer), org=settings.rabbitmq_org),
        ReturnDestination(publisher, Returns(engine), to_queue=settings.rabbitmq_redrive_to == "queue"),
    ]


def open_channels(settings: Settings, engine: Database, sealer: Sealer) -> list[Destination]:
    """The ways to people: mail where there is a server for it, chat and the like where apprise is installed."""
    book = EndpointTermsBook(engine, sealer)
    terms: _ChannelTerms = {"public_url": settings.public_url, "slot_wait_s": settings.lease_margin_s / 4}
    found: list[Destination] = []
    if settings.mail_server is not None:
        found.append(MailDestination(settings.mail_server, settings.mail_sender, book, **terms))
    if apprise.is_installed():
        found.append(apprise.AppriseDestination(AddressRules(settings.allow_networks), book, **terms))
    return found


def step_calls(settings: Settings, engine: Database, sealer: Sealer, steps: StoredSteps) -> StepCalls:
    return StepCalls(_client(settings), EndpointTermsBook(engine, sealer), steps, version=__version__)


def _client(settings: Settings) -> Client:
    return Client(
        rules=AddressRules(settings.allow_networks),
        max_connections=settings.concurrency * 2,
        max_per_origin=min(MAX_PER_ORIGIN, settings.concurrency),
    )
