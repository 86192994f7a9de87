"""Every setting of Redrive, where it may come from, and what it may be. How single ones are read: setting_types.

Flags win over REDRIVE_* in the environment, those over the file redrive.toml, that over the defaults. Reads
the environment and the file when `load_settings` is called, never at import. Called by the command line;
the documentation of the settings is checked against the descriptions here.
"""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from redrive.core.breaker import BreakerRules
from redrive.core.mail import MailServer, Sender, parse_sender, parse_server
from redrive.setting_types import (
    MAX_COLLECTED_QUEUES,
    MAX_DELAY_S,
    MIN_KEY_CHARS,
    BrokerUrls,
    CollectorUrl,
    DatabaseUrl,
    Delays,
    Folder,
    FolderOrNone,
    Key,
    Level,
    Lower,
    MailAddress,
    MailServerUrl,
    Networks,
    PublicUrl,
    QueueNames,
    listed,
)

ENV_PREFIX = "REDRIVE_"
CONFIG_VARIABLE = "REDRIVE_CONFIG"
CONFIG_FILE = "redrive.toml"
# Names that the systems before Redrive used; with the prefix they win over these.
UNPREFIXED = ("max_retries", "retry_delays", "max_retry_attempts", "service_version", "log_level")
STANDARD_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
MAX_WORKERS = 64
MAX_CONCURRENCY = 10_000
MAX_RETRIES = 1_000
MAX_DELAYS = 100
MIN_RETENTION_EVERY_S = 60
MAX_RETENTION_EVERY_S = 7 * 24 * 3600
MAX_MIN_TRIES = 100_000
MAX_TRICKLE_PER_S = 1_000
MAX_TRICKLE_IN_FLIGHT = 1_000
MAX_DISABLE_AFTER_DAYS = 365
MIN_EVERY_S = 0.1
MAX_HEARTBEAT_EVERY_S = 30
MAX_ALERTS_EVERY_S = 600
DAY_S = 86_400.0
MAX_SHOWN_VALUE_CHARS = 100


class SettingsError(Exception):
    """A setting cannot be used. The message names each one, its value (unless secret) and what is allowed."""


def default_data_dir() -> Path:
    """/var/lib/redrive for root, whose home is closed to PostgreSQL's own user; else the XDG data folder."""
    if os.geteuid() == 0:
        return Path("/var/lib/redrive")
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "redrive"


def _setting(default: Any, description: str, allowed: str, *, secret: bool = False, **limits: Any) -> Any:
    extra: JsonDict = {"allowed": allowed, "secret": secret}
    return Field(default, description=description, json_schema_extra=extra, repr=not secret, **limits)


class Settings(BaseSettings):
    """Immutable once loaded; get one from `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    host: str = _setting(
        "127.0.0.1", "Address that the API and the UI listen on.", "an address or host name", min_length=1
    )
    port: int = _setting(
        8787,
        "Port that the API and the UI listen on; 0 takes a free one.",
        "a whole number from 0 to 65535",
        ge=0,
        le=65535,
    )
    data_dir: Folder = Field(
        default_factory=default_data_dir,
        description="Folder of the embedded PostgreSQL and of generated keys. By default /var/lib/redrive for"
        " root, else redrive in the XDG data folder.",
        json_schema_extra={"allowed": "a path", "secret": False},
    )
    database_url: DatabaseUrl = _setting(
        None,
        "PostgreSQL (15 or newer) to use instead of the embedded one.",
        "a URL that begins with postgresql://",
        secret=True,
    )
    database_pooler: Annotated[Literal["none", "transaction"], Lower] = _setting(
        "none",
        "Whether `database_url` leads through a pooler that lends connections for one transaction at a time.",
        '"none" or "transaction"',
    )
    database_direct_url: DatabaseUrl = _setting(
        None,
        "The same database without the pooler, for wake-ups (LISTEN) and migrations.",
        "a URL that begins with postgresql://",
        secret=True,
    )
    workers: int = _setting(
        1,
        "Worker processes that `serve` runs beside the API.",
        f"a whole number from 0 to {MAX_WORKERS}",
        ge=0,
        le=MAX_WORKERS,
    )
    concurrency: int = _setting(
        500,
        "Deliveries in flight at once, per worker process.",
        f"a whole number from 1 to {MAX_CONCURRENCY}",
        ge=1,
        le=MAX_CONCURRENCY,
    )
    lease_margin_s: float = _setting(
        15.0,
        "Seconds that a worker's lease on a task outlasts the time-out of its try.",
        "a number of seconds from 1 to 300",
        ge=1,
        le=300,
    )
    allow_networks: Networks = _setting(
        (),
        "Networks that deliveries may reach although they are private, separated by commas.",
        'networks in CIDR form without host bits, like "127.0.0.0/8,10.1.0.0/16", or "none"',
    )
    metrics_host: str = _setting(
        "127.0.0.1",
        "Address that workers, consumers and hubs serve their metrics on, to whoever reaches it.",
        "an address or host name",
        min_length=1,
    )
    metrics_port: int | None = _setting(
        None,
        "Port that workers, consumers and hubs serve /metrics, /healthz and /readyz on; 0 takes a free one, none when "
        "unset.",
        "a whole number from 0 to 65535",
        ge=0,
        le=65535,
    )
    trust_proxy: bool = _setting(
        False,
        "Whether X-Forwarded-For and X-Forwarded-Proto are believed: only behind a proxy that sets them.",
        "true or false",
    )
    public_url: PublicUrl = _setting(
        None,
        "Where senders of webhooks reach this installation: what the addresses of relays begin with.",
        'a URL that begins with https:// or http://, like "https://edge.example.com"',
    )
    admin_key: SecretStr | None = _setting(
        None,
        "API key that is made sure to exist, at start-up, as an OWNER key of the org `default`.",
        "any text",
        secret=True,
    )
    secret_key: Key = _setting(
        None,
        "Key that encrypts endpoint secrets at rest. When unset, one is made in the data folder.",
        f"at least {MIN_KEY_CHARS} characters",
        secret=True,
    )
    log_format: Annotated[Literal["json", "console"], Lower] = _setting(
        "json", "How log lines look.", '"json" or "console"'
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error", "critical"], Level] = _setting(
        "info",
        "The least severe log lines that are written.",
        '"debug", "info", "warning", "error" or "critical"',
    )
    service_name: str | None = _setting(
        None,
        "The `service` of every log line; `redrive-api`, `redrive-worker` and so on when unset.",
        "1 to 100 characters",
        min_length=1,
        max_length=100,
    )
    otel_endpoint: CollectorUrl = _setting(
        None,
        "Collector that traces are sent to, by OTLP over HTTP (the extra `otel`); unset: none are made. Also read from"
        " OTEL_EXPORTER_OTLP_ENDPOINT.",
        'a URL that begins with http:// or https://, like "http://127.0.0.1:4318"',
        secret=True,
    )
    trace_share: float = _setting(
        0.01,
        "Share of the events and runs that are traced where whoever hands them in has not decided.",
        "a number from 0 to 1",
        ge=0,
        le=1,
    )
    max_retries: int | None = _setting(
        None,
        "Retries of the policy preset `transformer`; 3 when unset.",
        f"a whole number from 0 to {MAX_RETRIES}",
        ge=0,
        le=MAX_RETRIES,
    )
    retry_delays: Delays = _setting(
        None,
        "Delays of the policy preset `triggers` in seconds, separated by commas; 60,300,900 when unset.",
        f'1 to {MAX_DELAYS} numbers of seconds from 0 to {MAX_DELAY_S:.0f}, like "60,300,900"',
        min_length=1,
        max_length=MAX_DELAYS,
    )
    max_retry_attempts: int | None = _setting(
        None,
        "Retries of the policy preset `triggers`; 3 when unset.",
        f"a whole number from 0 to {MAX_RETRIES}",
        ge=0,
        le=MAX_RETRIES,
    )
    default_policy: str | None = _setting(
        None,
        "Policy of tasks that nothing else names one for, in orgs without a default; `integration` when unset.",
        "the name of a policy of the org `default`",
        min_length=1,
        max_length=100,
    )
    retention_every_s: float = _setting(
        3600.0,
        "Seconds between two passes of the janitor, which removes what the policies no longer keep.",
        f"a number of seconds from {MIN_RETENTION_EVERY_S} to {MAX_RETENTION_EVERY_S}",
        ge=MIN_RETENTION_EVERY_S,
        le=MAX_RETENTION_EVERY_S,
    )
    archive_dir: FolderOrNone = _setting(None, "Folder that keeps what the janitor removes.", "a path")
    breaker_failure_rate: float = _setting(
        0.8,
        "Share of an endpoint's tries of the last minute that must fail before its breaker opens.",
        "a number above 0 and at most 1",
        gt=0,
        le=1,
    )
    breaker_min_tries: int = _setting(
        20,
        "Tries of an endpoint within a minute below which its breaker stays closed, whatever became of them.",
        f"a whole number from 1 to {MAX_MIN_TRIES}",
        ge=1,
        le=MAX_MIN_TRIES,
    )
    breaker_trickle_per_s: float = _setting(
        10.0,
        "Tries per second that an open breaker lets through to its endpoint.",
        f"a number above 0 and at most {MAX_TRICKLE_PER_S}",
        gt=0,
        le=MAX_TRICKLE_PER_S,
    )
    breaker_trickle_in_flight: int = _setting(
        5,
        "Tries of an endpoint that may be under way at once while its breaker is open.",
        f"a whole number from 1 to {MAX_TRICKLE_IN_FLIGHT}",
        ge=1,
        le=MAX_TRICKLE_IN_FLIGHT,
    )
    retry_share: float = _setting(
        0.2,
        "Share of an unhealthy endpoint's tries that may be retries which fail again, beyond ten per second and "
        "worker; 1: no limit.",
        "a number from 0 to 1",
        ge=0,
        le=1,
    )
    disable_after_days: float = _setting(
        5.0,
        "Days after which an endpoint that did nothing but fail is disabled; 0: never.",
        f"a number of days from 0 to {MAX_DISABLE_AFTER_DAYS}",
        ge=0,
        le=MAX_DISABLE_AFTER_DAYS,
    )
    heartbeat_every_s: float = _setting(
        15.0,
        "Seconds between two signs of life of a worker; the alert `no_worker` should wait for three at least.",
        f"a number of seconds from {MIN_EVERY_S} to {MAX_HEARTBEAT_EVERY_S}",
        ge=MIN_EVERY_S,
        le=MAX_HEARTBEAT_EVERY_S,
    )
    alerts_every_s: float = _setting(
        10.0,
        "Seconds between two looks whether an alert is due, or over: of all processes together.",
        f"a number of seconds from {MIN_EVERY_S} to {MAX_ALERTS_EVERY_S}",
        ge=MIN_EVERY_S,
        le=MAX_ALERTS_EVERY_S,
    )
    rabbitmq_url: BrokerUrls = _setting(
        None,
        "RabbitMQ that messages are consumed from and published to; the nodes of a cluster separated by commas.",
        'URLs that begin with amqp:// or amqps://, like "amqp://user:password@rabbit.example.com/vhost"',
        secret=True,
    )
    rabbitmq_collect: QueueNames = _setting(
        (),
        "Dead-letter queues of RabbitMQ that are emptied into Redrive's dead letters, separated by commas.",
        f'at most {MAX_COLLECTED_QUEUES} names of queues, like "orders-dlq,outbound-transformer-dlq"',
    )
    rabbitmq_org: str = _setting(
        "default",
        "Org that RabbitMQ belongs to: it gets the dead letters, and alone may have endpoints of kind `rabbitmq`.",
        "the name of an org",
        min_length=1,
        max_length=100,
    )
    rabbitmq_redrive_to: Annotated[Literal["exchange", "queue"], Lower] = _setting(
        "exchange",
        "Where a redrive publishes a message: to the exchange and routing key that it was first published to, or"
        " straight to the queue that it died in, past all others that are bound to that exchange.",
        '"exchange" or "queue"',
    )
    smtp_url: MailServerUrl = _setting(
        None,
        "Mail server that endpoints of kind `mail` are reached by. TLS is asked for and verified.",
        'a URL like "smtp://user:password@mail.example.com:587?starttls=required" or "smtps://…"; starttls=none only'
        " without a password; ca=/path/to/ca.pem names the server's own authority",
        secret=True,
    )
    mail_from: MailAddress = _setting(
        None,
        "Address that mail is from. When unset, the user of `smtp_url`, where that is an address.",
        'an address like "redrive@example.com" or "Redrive <redrive@example.com>"',
    )
    service_version: str = _setting(
        "1.0.0",
        "Version that this service gives of itself in dead letters of a broker.",
        "1 to 100 characters",
        min_length=1,
        max_length=100,
    )

    @property
    def pooler(self) -> Literal["none", "transaction"]:
        """What stands before the database in use: before the embedded one, nothing."""
        return "none" if self.database_url is None else self.database_pooler

    @property
    def collector_url(self) -> str | None:
        """Where traces are sent; None: nowhere."""
        return self.otel_endpoint.get_secret_value() if self.otel_endpoint is not None else None

    @property
    def broker_urls(self) -> tuple[str, ...]:
        """The nodes of RabbitMQ, passwords and all; none: there is no broker."""
        return tuple(listed(self.rabbitmq_url.get_secret_value())) if self.rabbitmq_url is not None else ()

    @property
    def mail_server(self) -> MailServer | None:
        """Its password included; None: no mail is sent."""
        return parse_server(self.smtp_url.get_secret_value()) if self.smtp_url is not None else None

    @property
    def mail_sender(self) -> Sender:
        """Who mail is from. SettingsError where nobody said so."""
        server = self.mail_server
        try:
            return parse_sender(self.mail_from or (server.user if server is not None else None) or "")
        except ValueError:
            raise SettingsError(
                "Setting mail_from (REDRIVE_MAIL_FROM) is needed: the user of REDRIVE_SMTP_URL is not an address."
            ) from None

    def require_sender(self) -> None:
        """SettingsError where mail could be sent, and nobody said who it is from: at once, not by each process."""
        if self.mail_server is not None:
            _ = self.mail_sender

    def direct_url(self, url: str) -> str | None:
        """Where a connection keeps its session, for a database reached by `url`; None where only a pooler is known."""
        if self.database_url is not None and self.database_direct_url is not None:
            return self.database_direct_url
        return url if self.pooler == "none" else None

    def breaker_rules(self) -> BreakerRules:
        return BreakerRules(
            failure_rate=self.breaker_failure_rate,
            min_tries=self.breaker_min_tries,
            trickle_per_s=self.breaker_trickle_per_s,
            trickle_in_flight=self.breaker_trickle_in_flight,
            retry_share=self.retry_share,
        )

    @property
    def disable_after_s(self) -> float | None:
        """None: never."""
        return self.disable_after_days * DAY_S or None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = InitSettingsSource(settings_cls, init_kwargs=_read_file())
        standard = InitSettingsSource(settings_cls, init_kwargs=_read_standard())
        return init_settings, env_settings, _UnprefixedSource(settings_cls, env_prefix=""), file, standard


class _UnprefixedSource(EnvSettingsSource):
    """The environment without the prefix, for the few names that are known that way."""

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__call__().items() if name in UNPREFIXED}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        if field_name not in UNPREFIXED:  # HOST, PORT and the like are other programs' business
            return None, field_name, False
        return super().get_field_value(field, field_name)


def load_settings(**flags: Any) -> Settings:
    """Settings from all sources; flags that are None were not given."""
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as problem:
        # One line per setting: a list with three bad members is one mistake to a person.
        lines = {error["loc"][0]: _explain(error) for error in reversed(problem.errors(include_url=False))}
        raise SettingsError("\n".join(reversed(lines.values()))) from None


def _read_standard() -> dict[str, Any]:
    """What OpenTelemetry calls by a name of its own."""
    endpoint = os.environ.get(STANDARD_ENDPOINT)
    return {"otel_endpoint": endpoint} if endpoint else {}


def _read_file() -> dict[str, Any]:
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named or CONFIG_FILE)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise SettingsError(f"{CONFIG_VARIABLE} names {path}, but there is no such file.") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise SettingsError(f"The settings file {path} cannot be read: {problem}.") from problem


def _explain(error: Any) -> str:
    name = str(error["loc"][0])
    field = Settings.model_fields.get(name)
    if field is None:
        return f"There is no setting {name}. Known are: {', '.join(sorted(Settings.model_fields))}."
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    said = "its value (not shown)" if extra["secret"] else _shown(error["input"])
    variable = f"{ENV_PREFIX}{name.upper()}" + (f" or {name.upper()}" if name in UNPREFIXED else "")
    return f"Setting {name} ({variable}): {said} cannot be used; allowed is {extra['allowed']}."


def _shown(value: object) -> str:
    text = str(value)
    return f'"{text[:MAX_SHOWN_VALUE_CHARS]}{"…" if len(text) > MAX_SHOWN_VALUE_CHARS else ""}"'
