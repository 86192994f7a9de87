"""Endpoints as people give them to the command line: what each kind has, and what can be reached. For cli.endpoints."""

import os
import sys

from redrive.cli.connect import Desk
from redrive.cli.lookup import require_one_of
from redrive.cli.runner import Refused, WrongUsage
from redrive.core.address import AddressRules, BadUrl, parse_target
from redrive.core.broker import RABBITMQ_KIND
from redrive.core.broker_route import MAX_NAME_BYTES, is_short, key_problem
from redrive.core.channels import APPRISE_KIND, MAIL_KIND, recipients_problem, service_problem
from redrive.destinations.apprise import ServiceJudge, is_installed
from redrive.store.endpoints import EndpointSpec

MAX_TEXT_CHARS = 200
MAX_EVENT_TYPES = 100
KINDS = ("http", RABBITMQ_KIND, MAIL_KIND, APPRISE_KIND)
APPRISE_VARIABLE = "REDRIVE_APPRISE_URL"  # where a URL is that is given as -


def check_texts(spec: EndpointSpec) -> None:
    if len(spec.event_types) > MAX_EVENT_TYPES:
        raise WrongUsage(f"An endpoint has at most {MAX_EVENT_TYPES} event types.")
    for text in (spec.name, *spec.event_types, *([spec.external_system] if spec.external_system is not None else [])):
        if not 1 <= len(text) <= MAX_TEXT_CHARS or not text.isprintable():
            raise WrongUsage(f"Names and event types have 1 to {MAX_TEXT_CHARS} printable characters.")


def check_route(spec: EndpointSpec) -> None:
    """Refuse what its kind cannot have, or cannot be without."""
    require_one_of("kind", spec.kind, KINDS)
    if spec.kind != RABBITMQ_KIND and (spec.exchange is not None or spec.routing_key is not None):
        raise WrongUsage(f"--exchange and --routing-key are for --kind {RABBITMQ_KIND}.")
    if spec.kind != MAIL_KIND and spec.to is not None:
        raise WrongUsage(f"--to is for --kind {MAIL_KIND}.")
    if spec.kind != APPRISE_KIND and spec.apprise_url is not None:
        raise WrongUsage(f"--apprise-url is for --kind {APPRISE_KIND}.")
    if spec.kind == "http":
        if spec.url is None:
            raise WrongUsage("Say where to deliver: a URL.")
        return
    if spec.kind in (MAIL_KIND, APPRISE_KIND):
        _check_people(spec)
        return
    if spec.url is not None:
        raise WrongUsage(f"An endpoint of kind {RABBITMQ_KIND} has no URL: it has an --exchange.")
    if spec.exchange is None:
        raise WrongUsage(f"Say where to publish: --kind {RABBITMQ_KIND} needs --exchange.")
    for text in (spec.exchange, spec.routing_key or ""):
        if not is_short(text) or not text.isprintable():
            raise WrongUsage(f"Exchanges and routing keys have at most {MAX_NAME_BYTES} bytes, all printable.")
    why = key_problem(spec.exchange, spec.routing_key)
    if why is not None:
        raise WrongUsage(f"--routing-key {why}.")


def _check_people(spec: EndpointSpec) -> None:
    if spec.url is not None:
        needs = "--to" if spec.kind == MAIL_KIND else "--apprise-url"
        raise WrongUsage(f"An endpoint of kind {spec.kind} has no URL: it has {needs}.")
    if spec.kind == MAIL_KIND:
        why = recipients_problem(spec.to or ())
        if why is not None:
            raise WrongUsage(f"--to {why}.")
        return
    why = "is needed" if spec.apprise_url is None else service_problem(spec.apprise_url)
    if why is not None:
        raise WrongUsage(f"--apprise-url {why}.")


def given_url(given: str | None) -> str | None:
    """A URL that is a secret: where it is told by -, from the environment, else from the first line of stdin."""
    if given != "-":
        return given
    return os.environ.get(APPRISE_VARIABLE) or sys.stdin.readline().strip()


async def check_place(desk: Desk, spec: EndpointSpec) -> None:
    """Refuse what cannot be reached from this installation."""
    rules = AddressRules(desk.settings.allow_networks)
    match spec.kind:
        case "mail":
            if desk.settings.mail_server is None:
                where = "here and where the API and the workers run"
                raise Refused(f"There is no mail server here. Name it with REDRIVE_SMTP_URL, {where}.")
        case "apprise":
            assert spec.apprise_url is not None
            if not is_installed():
                raise Refused("apprise is not installed here. Install redrive[notify], here and for API and workers.")
            why = await ServiceJudge(rules)(spec.apprise_url)
            if why is not None:
                raise Refused(f"The URL of the service {why}.")
        case "rabbitmq":
            _check_broker(desk)
        case _:
            assert spec.url is not None
            _check_url(spec.url, rules)


def _check_broker(desk: Desk) -> None:
    if not desk.settings.broker_urls:
        raise Refused(
            "There is no RabbitMQ here. Name it with REDRIVE_RABBITMQ_URL, here and where the API and the workers run."
        )
    owner = desk.settings.rabbitmq_org
    if owner != desk.org:
        raise Refused(f'RabbitMQ belongs to the org "{owner}" (REDRIVE_RABBITMQ_ORG): only that one can use it.')


def _check_url(url: str, rules: AddressRules) -> None:
    """Refuse what deliveries would refuse, as far as it can be told without a look-up."""
    try:
        target = parse_target(url)
    except BadUrl as problem:
        raise WrongUsage(f"The URL cannot be used: {problem}") from None
    why = rules.refusal(target.ip) if target.ip is not None else None
    if why is not None:
        raise Refused(
            f"Deliveries may not reach {target.ip}: {why}. If it is meant, open its network with "
            f"REDRIVE_ALLOW_NETWORKS={target.ip}, here and where the workers run."
        )
