"""Reading endpoints as people send them: names, URLs, exchanges, headers and limits. Pure.

Called by routes.endpoints. What these rules let through, the delivering client can send.
"""

import re
import ssl
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from redrive.api.problems import FieldError, Problem, invalid
from redrive.core.address import MAX_URL_CHARS, AddressRules, BadUrl, parse_target, unreachable
from redrive.core.broker import RABBITMQ_KIND
from redrive.core.broker_route import MAX_NAME_BYTES, is_short, key_problem
from redrive.core.channels import (
    APPRISE_KIND,
    MAIL_KIND,
    MAX_ADDRESS_CHARS,
    MAX_APPRISE_CHARS,
    MAX_RECIPIENTS,
    hidden,
    recipients_problem,
    service_of,
    service_problem,
)
from redrive.core.headers import MAX_HEADERS, TOO_LARGE, are_too_large, name_problem, value_problem
from redrive.core.inbound import MAX_SECRET_CHARS, Scheme, secret_problem
from redrive.core.policy import MAX_TIMEOUT_S, MIN_TIMEOUT_S
from redrive.core.redact import REDACTED
from redrive.store.endpoints import RELAY, EndpointSpec
from redrive.store.hooks import Verification

MAX_NAME_CHARS = 200
MAX_EVENT_TYPES = 100
MAX_CA_CHARS = 65_536
MAX_IN_FLIGHT = 10_000
MIN_BLOCK_S = 1.0
MAX_BLOCK_S = 2_592_000.0  # 30 days
MAX_RATE_PER_S = 100_000.0
MIN_RATE_PER_S = 0.001
RELAY_POLICY = "relay"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _plain(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("must not hold control characters")
    return text


def _broker_name(text: str) -> str:
    if not is_short(text):
        raise ValueError(f"is longer than {MAX_NAME_BYTES} bytes")
    return _plain(text)


def _recipients(addresses: list[str]) -> list[str]:
    why = recipients_problem(addresses)
    if why is not None:
        raise ValueError(why)
    return addresses


def _apprise_url(url: str) -> str:
    why = service_problem(url) if not is_hidden(url) else None
    if why is not None:
        raise ValueError(why)
    return url


def is_hidden(url: str) -> bool:
    """Whether it reads as answers show one."""
    return url == hidden(service_of(url) or "")


def _header_lines(headers: dict[str, str]) -> dict[str, str]:
    """Every header by itself, then all together. Values are never repeated: they may be secrets."""
    seen: set[str] = set()
    for name, value in headers.items():
        wrong = name_problem(name) or value_problem(name, value)
        if wrong is not None:
            raise ValueError(wrong)
        if name.lower() in seen:
            raise ValueError(f"{name} is given twice")
        seen.add(name.lower())
    if are_too_large(headers.items()):
        raise ValueError(TOO_LARGE)
    return headers


def _certificates(pem: str) -> str:
    try:
        ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, ValueError, TypeError):  # TypeError: not ASCII
        raise ValueError("is not a certificate in PEM form") from None
    return pem


HeaderLines = tuple[tuple[str, str], ...]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS), AfterValidator(_plain)]
Url = Annotated[str, Field(max_length=MAX_URL_CHARS)]
BrokerName = Annotated[str, Field(max_length=MAX_NAME_BYTES), AfterValidator(_broker_name)]
Recipients = Annotated[
    list[Annotated[str, Field(max_length=MAX_ADDRESS_CHARS)]],
    Field(min_length=1, max_length=MAX_RECIPIENTS),
    AfterValidator(_recipients),
]
AppriseUrl = Annotated[str, Field(max_length=MAX_APPRISE_CHARS), AfterValidator(_apprise_url)]
EventTypes = Annotated[list[Name], Field(max_length=MAX_EVENT_TYPES)]
PolicyName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_plain)]
Headers = Annotated[dict[str, str], Field(max_length=MAX_HEADERS), AfterValidator(_header_lines)]
CaPem = Annotated[str, Field(min_length=1, max_length=MAX_CA_CHARS), AfterValidator(_certificates)]
TimeoutS = Annotated[float, Field(ge=MIN_TIMEOUT_S, le=MAX_TIMEOUT_S, allow_inf_nan=False)]
InFlight = Annotated[int, Field(ge=1, le=MAX_IN_FLIGHT)]
BlockS = Annotated[float, Field(ge=MIN_BLOCK_S, le=MAX_BLOCK_S, allow_inf_nan=False)]
OnBlock = Literal["skip", "halt"]
RatePerS = Annotated[float, Field(ge=MIN_RATE_PER_S, le=MAX_RATE_PER_S, allow_inf_nan=False)]


class VerifyIn(BaseModel):
    """How the sender of webhooks signs them, and with what."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"scheme": "github", "secret": "chosen with the sender"}]}
    )

    scheme: Scheme
    secret: Annotated[str, Field(min_length=1, max_length=MAX_SECRET_CHARS, repr=False)]

    def verification(self) -> Verification:
        wrong = secret_problem(self.scheme, self.secret) if self.secret != REDACTED else None
        if wrong is not None:
            raise invalid(FieldError(("body", "verify", "secret"), wrong))
        return Verification(self.scheme, self.secret)


class EndpointIn(BaseModel):
    """A new endpoint. A relay has no `url`: the answer tells its `hook_url`. Unless said otherwise it is ordered,
    retries by the policy `relay`, and takes only what comes in there. One of kind rabbitmq has an `exchange` instead,
    one of kind mail has `to`, one of kind apprise an `apprise_url`, which is never shown again.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"name": "billing", "url": "https://billing.example.com/hooks", "event_types": ["invoice.*"]}]
        },
    )

    name: Name
    kind: Literal["http", "relay", "rabbitmq", "mail", "apprise"] = "http"
    url: Url | None = None
    verify: VerifyIn | None = None
    exchange: BrokerName | None = None
    routing_key: BrokerName | None = None
    to: Recipients | None = None
    apprise_url: AppriseUrl | None = Field(default=None, repr=False)
    event_types: EventTypes = Field(default_factory=lambda: ["*"])
    policy: PolicyName | None = None
    ordered: bool = False
    external_system: Name | None = None
    headers: Headers = Field(default_factory=dict)
    ca_pem: CaPem | None = None
    timeout_s: TimeoutS | None = None
    max_in_flight: InFlight | None = None
    rate_per_s: RatePerS | None = None
    max_block_s: BlockS | None = None
    on_block: OnBlock = "skip"
    disabled: bool = False

    def spec(self, rules: AddressRules) -> EndpointSpec:
        verify = kept_verify(self.verify.verification() if self.verify else None, None)
        given = self.model_dump() | {
            "headers": kept_headers(self.headers.items(), ()),
            "event_types": tuple(self.event_types),
            "verify": verify,
            "to": None if self.to is None else tuple(self.to),
        }
        if self.apprise_url is not None and is_hidden(self.apprise_url):
            raise _nothing_stored()
        if self.kind == RELAY:
            usual = {"event_types": (), "policy": RELAY_POLICY, "ordered": True}
            given |= {name: value for name, value in usual.items() if name not in self.model_fields_set}
        check_kind(self.kind, given)
        check_key(self.exchange, self.routing_key)
        if self.url is not None:
            check_url(self.url, rules)
        return EndpointSpec(**given)


def _left_out(schema: dict[str, Any]) -> None:
    """What is left out of a change has no default: it stays."""
    schema.pop("default", None)


class EndpointChange(BaseModel):
    """The fields to change; what is left out stays. Only what may be absent may be null."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"disabled": True}]})

    name: Name = Field(default="", json_schema_extra=_left_out)
    url: Url | None = None
    verify: VerifyIn | None = None
    exchange: BrokerName | None = None
    routing_key: BrokerName | None = None
    to: Recipients | None = None
    apprise_url: AppriseUrl | None = Field(default=None, repr=False)
    event_types: EventTypes = Field(default_factory=list)
    policy: PolicyName | None = None
    ordered: bool = Field(default=False, json_schema_extra=_left_out)
    external_system: Name | None = None
    headers: Headers = Field(default_factory=dict)
    ca_pem: CaPem | None = None
    timeout_s: TimeoutS | None = None
    max_in_flight: InFlight | None = None
    rate_per_s: RatePerS | None = None
    max_block_s: BlockS | None = None
    on_block: OnBlock = Field(default="skip", json_schema_extra=_left_out)
    disabled: bool = Field(default=False, json_schema_extra=_left_out)

    def changes(self, rules: AddressRules) -> dict[str, object]:
        given = self.model_dump(include=self.model_fields_set)
        if self.url is not None:
            check_url(self.url, rules)
        if "verify" in given:
            given["verify"] = self.verify.verification() if self.verify else None
        if "event_types" in given:
            given["event_types"] = tuple(self.event_types)
        if self.to is not None:
            given["to"] = tuple(self.to)
        if "headers" in given:
            given["headers"] = tuple(self.headers.items())
        return given


# What an endpoint of each kind is reached by, and what it has besides that others cannot have.
_PLACES = {"http": "url", RABBITMQ_KIND: "exchange", MAIL_KIND: "to", APPRISE_KIND: "apprise_url"}
_OWN = {"http": ("ca_pem",), RABBITMQ_KIND: ("routing_key",), RELAY: ("verify",)}
_TAKE_NO_HEADERS = (MAIL_KIND, APPRISE_KIND)


def check_kind(kind: str, given: Mapping[str, object]) -> None:
    """Refuse what an endpoint of this kind cannot have, or cannot be without."""
    for other in (*_PLACES, RELAY):
        if other == kind:
            continue
        for name in (*([_PLACES[other]] if other in _PLACES else []), *_OWN.get(other, ())):
            if given.get(name) is not None:
                raise invalid(FieldError(("body", name), _not_of(kind, other)))
    if kind in _TAKE_NO_HEADERS and given.get("headers"):
        raise invalid(FieldError(("body", "headers"), f"an endpoint of kind {kind} sends none"))
    if kind == RELAY:
        return
    place = _PLACES[kind]
    if place in given and given[place] is None:
        raise invalid(FieldError(("body", place), "is needed"))
    if "event_types" in given and not given["event_types"]:
        raise invalid(FieldError(("body", "event_types"), "names at least 1 event type"))


def _not_of(kind: str, other: str) -> str:
    if other == RELAY:
        return "is for endpoints of kind relay: nothing comes in at others"
    if other != "http":
        return f"is for endpoints of kind {other}"
    if kind == RELAY:
        return "a relay has none: its hub knows where to forward to"
    return f"an endpoint of kind {kind} has none: it has {'an ' if _PLACES[kind] != 'to' else ''}{_PLACES[kind]}"


def check_channel(kind: str, *, has_mail: bool, has_apprise: bool) -> None:
    """Refuse what would reach nobody from here."""
    if kind == MAIL_KIND and not has_mail:
        why = "there is no mail server here: name it with REDRIVE_SMTP_URL, for the API and for the workers"
        raise invalid(FieldError(("body", "kind"), why))
    if kind == APPRISE_KIND and not has_apprise:
        why = "apprise is not installed here: install redrive[notify], for the API and for the workers"
        raise invalid(FieldError(("body", "kind"), why))


def kept_apprise(given: str | None, stored: str | None, service: str | None) -> str | None:
    """The URL to store. One that reads as answers show it means the one that is stored."""
    if given is None or not is_hidden(given):
        return given
    if stored is None or service_of(given) != service:
        raise _nothing_stored()
    return stored


def _nothing_stored() -> Problem:
    why = f"there is no stored URL of this service that {REDACTED} could stand for; give it"
    return invalid(FieldError(("body", "apprise_url"), why))


def check_key(exchange: str | None, routing_key: str | None) -> None:
    why = key_problem(exchange, routing_key)
    if why is not None:
        raise invalid(FieldError(("body", "routing_key"), why))


def check_broker(broker_org: str | None, org_name: str) -> None:
    """Refuse what goes to RabbitMQ where there is none, and from orgs that it does not belong to."""
    if broker_org is None:
        why = "there is no RabbitMQ here: name it with REDRIVE_RABBITMQ_URL, for the API and for the workers"
        raise invalid(FieldError(("body", "kind"), why))
    if broker_org != org_name:
        why = "RabbitMQ belongs to another org of this installation (REDRIVE_RABBITMQ_ORG): only that one can use it"
        raise invalid(FieldError(("body", "kind"), why))


def kept_verify(given: Verification | None, stored: Verification | None) -> Verification | None:
    """The verification to store. A secret that reads as answers show it means the one that is stored."""
    if given is None or given.secret != REDACTED:
        return given
    if stored is None or stored.scheme != given.scheme:
        message = f"there is no stored secret of this scheme that {REDACTED} could stand for; give it"
        raise invalid(FieldError(("body", "verify", "secret"), message))
    return stored


def kept_headers(given: Iterable[tuple[str, str]], stored: Iterable[tuple[str, str]]) -> HeaderLines:
    """The headers to store. A value that reads as answers show it means the one that is stored under this name."""
    known = {name.lower(): value for name, value in stored}
    kept: list[tuple[str, str]] = []
    for name, value in given:
        if value == REDACTED and name.lower() not in known:
            message = f"{name} has no stored value that {REDACTED} could stand for; give its value"
            raise invalid(FieldError(("body", "headers"), message))
        kept.append((name, known[name.lower()] if value == REDACTED else value))
    if are_too_large(kept):
        raise invalid(FieldError(("body", "headers"), TOO_LARGE))
    return tuple(kept)


def check_url(url: str, rules: AddressRules) -> None:
    """Refuse what the delivering client would refuse, as far as that can be told without a look-up."""
    try:
        target = parse_target(url)
    except BadUrl as bad:
        raise invalid(FieldError(("body", "url"), str(bad))) from None
    why = unreachable(target, rules)
    if why is not None:
        raise invalid(FieldError(("body", "url"), why))
