"""How single settings are read: what a text, a flag or a value of the file becomes, and what it may not be.

A reader raises ValueError, without the value: it may be secret. Used by settings, whose words say what is allowed.
"""

from ipaddress import IPv4Network, IPv6Network, ip_network
from math import isfinite
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr
from pydantic_settings import NoDecode

from redrive.core.mail import parse_sender, parse_server

MAX_DELAY_S = 30 * 24 * 3600.0
MIN_KEY_CHARS = 16
MAX_COLLECTED_QUEUES = 100
MAX_QUEUE_NAME_BYTES = 255

Network = IPv4Network | IPv6Network


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _split(value: object) -> object:
    return listed(value) if isinstance(value, str) else value


def _networks(value: object) -> object:
    parts = [] if _lower(value) == "none" else _split(value)
    # As text: ip_network would take the number 5 for an address.
    return [ip_network(str(part)) for part in parts] if isinstance(parts, list) else parts


def _delays(value: tuple[float, ...] | None) -> tuple[float, ...] | None:
    if value is not None and not all(isfinite(s) and 0 <= s <= MAX_DELAY_S for s in value):
        raise ValueError("a delay is out of range")
    return value


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _absolute_if_any(path: Path | None) -> Path | None:
    return None if path is None else _absolute(path)


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _level(value: object) -> object:
    return "warning" if _lower(value) == "warn" else _lower(value)


def _public_url(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError("not the base of a URL")
    return value.rstrip("/")


def _database_url(value: str | None) -> str | None:
    if value is not None and not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("not a PostgreSQL URL")
    return value


def _collector_url(value: SecretStr | None) -> SecretStr | None:
    parts = urlsplit(value.get_secret_value()) if value is not None else None
    if parts is not None and (parts.scheme not in ("http", "https") or not parts.hostname or not _has_good_port(parts)):
        raise ValueError("not the URL of a collector")
    return value


def _broker_urls(value: SecretStr | None) -> SecretStr | None:
    for url in listed(value.get_secret_value()) if value is not None else ():
        parts = urlsplit(url)
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname or not _has_good_port(parts):
            raise ValueError("not a URL of a RabbitMQ")
    return value


def _mail_server(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        parse_server(value.get_secret_value())
    return value


def _mail_from(value: str | None) -> str | None:
    if value is not None:
        parse_sender(value)
    return value


def _has_good_port(parts: SplitResult) -> bool:
    """None is good too. A password with a character that is not written as %23 or the like ends up here."""
    try:
        return parts.port != 0
    except ValueError:
        return False


def _queue_names(value: tuple[str, ...]) -> tuple[str, ...]:
    if len(value) > MAX_COLLECTED_QUEUES or not all(0 < len(name.encode()) <= MAX_QUEUE_NAME_BYTES for name in value):
        raise ValueError("too many, or not names of queues")
    return tuple(dict.fromkeys(value))


def _long_enough(value: SecretStr | None) -> SecretStr | None:
    if value is not None and len(value.get_secret_value()) < MIN_KEY_CHARS:
        raise ValueError("too short")
    return value


Lower = BeforeValidator(_lower)  # for words that may be written in any case
Level = BeforeValidator(_level)
Folder = Annotated[Path, AfterValidator(_absolute)]
FolderOrNone = Annotated[Path | None, AfterValidator(_absolute_if_any)]
Networks = Annotated[tuple[Network, ...], NoDecode, BeforeValidator(_networks)]
Delays = Annotated[tuple[float, ...] | None, NoDecode, BeforeValidator(_split), AfterValidator(_delays)]
QueueNames = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), AfterValidator(_queue_names)]
PublicUrl = Annotated[str | None, AfterValidator(_public_url)]
DatabaseUrl = Annotated[str | None, AfterValidator(_database_url)]
CollectorUrl = Annotated[SecretStr | None, AfterValidator(_collector_url)]
BrokerUrls = Annotated[SecretStr | None, AfterValidator(_broker_urls)]
MailServerUrl = Annotated[SecretStr | None, AfterValidator(_mail_server)]
MailAddress = Annotated[str | None, AfterValidator(_mail_from)]
Key = Annotated[SecretStr | None, AfterValidator(_long_enough)]
