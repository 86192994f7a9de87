"""Settings that contradict each other, are riskier than they look, or have names that nobody reads. Reads the settings,
not the database.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from types import MappingProxyType

from redrive.core.findings import Finding, Seen, problem, warning
from redrive.setting_types import Network
from redrive.settings import ENV_PREFIX, Settings

METADATA = ip_address("169.254.169.254")  # where clouds tell a machine its credentials
WIDE_BITS = {4: 8, 6: 16}  # a network with fewer is most of the internet
MIN_ADMIN_KEY_CHARS = 20
# Read from the environment by something else than the settings: commands, and processes told by those that start them.
NO_SETTINGS = frozenset(
    {
        "REDRIVE_APPRISE_URL",
        "REDRIVE_CONFIG",
        "REDRIVE_KEY",
        "REDRIVE_LISTENER",
        "REDRIVE_METRICS_CHILDREN",
        "REDRIVE_METRICS_SOCKET",
        "REDRIVE_PROCESS_NAME",
    }
)
_OF_KUBERNETES = re.compile(r"REDRIVE_(.+_)?(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))(_.+)?")  # of services' names


def look_at_settings(settings: Settings, environment: Mapping[str, str] = MappingProxyType({})) -> Seen:
    given = sorted(settings.model_fields_set)
    shown = ", ".join(given[:8]) + ("…" if len(given) > 8 else "")
    return Seen(
        f"Set to something else than the default: {shown}." if given else "All settings are the defaults.",
        [
            *_networks(settings),
            *_listening(settings),
            *_database(settings),
            *_broker(settings),
            *_others(settings),
            *_misnamed(environment),
        ],
    )


def _networks(settings: Settings) -> Iterator[Finding]:
    for network in settings.allow_networks:
        if network.prefixlen < WIDE_BITS[network.version]:
            yield problem(
                f"Deliveries may reach {network}: nearly everything.",
                "Whoever may add an endpoint reaches every machine that this one reaches, with its answers among"
                " the attempts.",
                "Let REDRIVE_ALLOW_NETWORKS name only the networks that receivers are in.",
            )
        elif network.version == METADATA.version and METADATA in network:
            yield problem(
                f"Deliveries may reach {network}, and so {METADATA}.",
                "There clouds tell a machine its credentials, and whoever may add an endpoint could read them.",
                "Let REDRIVE_ALLOW_NETWORKS name only the networks that receivers are in.",
            )
        elif _is_loopback(network) and not _listens_here_only(settings):
            yield warning(
                f"Deliveries may reach {network}, this machine itself, while the API listens on {settings.host}.",
                "Whoever may add an endpoint reaches services that listen on loopback because they trust it.",
                "Take it out of REDRIVE_ALLOW_NETWORKS, unless receivers run on this machine.",
            )


def _is_loopback(network: Network) -> bool:
    return any(
        network.version == own.version and network.overlaps(own)
        for own in (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    )


def _listens_here_only(settings: Settings) -> bool:
    try:
        return ip_address(settings.host).is_loopback
    except ValueError:
        return settings.host == "localhost"


def _listening(settings: Settings) -> Iterator[Finding]:
    if not _listens_here_only(settings) and settings.public_url is None:
        yield warning(
            f"The API listens on {settings.host}, and REDRIVE_PUBLIC_URL is not set.",
            "Nobody knows under which address it is reached: those of relays cannot be told, and it may be open"
            " without TLS.",
            "Set REDRIVE_PUBLIC_URL to the address that others reach it by, with a proxy that speaks TLS before it.",
        )
    if settings.public_url is not None and settings.public_url.startswith("https://") and not settings.trust_proxy:
        yield warning(
            f"{settings.public_url} is behind a proxy, and REDRIVE_TRUST_PROXY is not set.",
            "The API takes every request for plain HTTP from the proxy's address: sign-in throttling and the audit"
            " name the proxy.",
            "Set REDRIVE_TRUST_PROXY=true if the proxy sets X-Forwarded-For and X-Forwarded-Proto itself.",
        )


def _database(settings: Settings) -> Iterator[Finding]:
    if settings.pooler == "transaction" and settings.database_direct_url is None:
        yield warning(
            "The database is reached through a pooler, and REDRIVE_DATABASE_DIRECT_URL is not set.",
            "Notifications do not pass it: workers find new work by looking every half second, and `redrive tail`"
            " sees nothing.",
            "Set REDRIVE_DATABASE_DIRECT_URL to the server itself.",
        )
    for name in ("database_direct_url", "database_pooler"):
        if settings.database_url is None and name in settings.model_fields_set:
            yield warning(
                f"REDRIVE_{name.upper()} is set, but not REDRIVE_DATABASE_URL.",
                "It is not used: without a URL the embedded PostgreSQL runs.",
                f"Set REDRIVE_DATABASE_URL, or take REDRIVE_{name.upper()} away.",
            )


def _broker(settings: Settings) -> Iterator[Finding]:
    if settings.broker_urls and find_spec("aiormq") is None:
        yield problem(
            "REDRIVE_RABBITMQ_URL is set, but the library for it is not installed.",
            "Workers refuse to start.",
            "pip install 'redrive[rabbitmq]'",
        )
    if settings.rabbitmq_collect and not settings.broker_urls:
        yield problem(
            "REDRIVE_RABBITMQ_COLLECT names queues, but REDRIVE_RABBITMQ_URL is not set.",
            "They are not collected.",
            "Set REDRIVE_RABBITMQ_URL.",
        )


def _others(settings: Settings) -> Iterator[Finding]:
    if settings.log_level in ("warning", "error", "critical"):
        yield warning(
            f"The log level is {settings.log_level}.",
            "What becomes of each event is not in the log (it is in the database, and in `redrive tail`).",
            "Set REDRIVE_LOG_LEVEL=info, unless that is what you want.",
        )
    if settings.admin_key is not None and len(settings.admin_key.get_secret_value()) < MIN_ADMIN_KEY_CHARS:
        yield problem(
            f"REDRIVE_ADMIN_KEY has fewer than {MIN_ADMIN_KEY_CHARS} characters.",
            "It opens everything to whoever guesses it.",
            "Make another: openssl rand -base64 32",
        )


def _misnamed(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Names only: the value may be a secret."""
    known = {f"{ENV_PREFIX}{name}".upper() for name in Settings.model_fields}
    for given in sorted(name for name, value in environment.items() if value):
        name = given.upper()
        if not name.startswith(ENV_PREFIX.upper()) or name in known | NO_SETTINGS or _OF_KUBERNETES.fullmatch(name):
            continue
        close = get_close_matches(name, known, n=1, cutoff=0.85)
        yield warning(
            f"{given} is no setting{f'; is {close[0]} meant?' if close else '.'}",
            "It is in the environment, and nothing reads it.",
            "Correct its name, or take it away: docs/settings.md has all of them.",
        )
