"""Give every failure its class, and say whether a policy retries it. Pure.

Called by destinations (status codes, exceptions), by core.decide and by users: `error_category`,
`classify_error` and `is_retriable` are public. Exceptions of other libraries are known by module and
name, since this package imports none of them.
"""

import errno
import json
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from redrive.core.outcome import TRANSIENT, Category, Failure, Steer
from redrive.core.policy import MAX_DELAY_S, MAX_STATUS, Policy, StatusFamily
from redrive.core.presets import DEFAULT_POLICY, PRESETS
from redrive.core.redact import redact_text
from redrive.core.steer import GiveUp, RetryLater

MAX_MESSAGE_CHARS = 2_000
MAX_STACK_CHARS = 16_000
MAX_GROUP_DEPTH = 8
MAX_RETRY_AFTER_CHARS = 64
MAX_RETRY_AFTER = timedelta(seconds=MAX_DELAY_S)

_NETWORK_ERRNOS = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EPIPE,
        errno.EHOSTUNREACH,
        errno.EHOSTDOWN,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENOTCONN,
        errno.ESHUTDOWN,
        errno.EADDRNOTAVAIL,
    }
)

# The top-level package of a class and the names, anywhere in the ancestry of an exception, that mean network.
_NETWORK_NAMES: dict[str, frozenset[str]] = {
    "asyncpg": frozenset(
        {
            "PostgresConnectionError",
            "CannotConnectNowError",
            "TooManyConnectionsError",
            "AdminShutdownError",
            "CrashShutdownError",
            "InterfaceError",
        }
    ),
    "psycopg": frozenset({"OperationalError", "InterfaceError"}),
    "psycopg2": frozenset({"OperationalError", "InterfaceError"}),
    "sqlalchemy": frozenset({"OperationalError", "InterfaceError"}),
    "redis": frozenset({"ConnectionError", "BusyLoadingError"}),
    "aio_pika": frozenset({"AMQPConnectionError", "AMQPChannelError", "DeliveryError", "PublishError"}),
    "aiormq": frozenset({"AMQPConnectionError", "AMQPChannelError", "DeliveryError", "PublishError"}),
    "pika": frozenset({"AMQPConnectionError", "AMQPChannelError", "UnroutableError", "NackError"}),
    "kombu": frozenset({"OperationalError"}),
    "httpx": frozenset({"NetworkError", "RemoteProtocolError", "ProxyError"}),
    "httpcore": frozenset({"NetworkError", "RemoteProtocolError", "ProxyError"}),
    "requests": frozenset({"ConnectionError", "ChunkedEncodingError"}),
    "urllib3": frozenset({"ProtocolError", "NewConnectionError", "MaxRetryError", "SSLError"}),
    "aiohttp": frozenset({"ClientConnectionError", "ClientPayloadError"}),
    "botocore": frozenset({"EndpointConnectionError", "ConnectionError", "HTTPClientError"}),
    "http": frozenset({"RemoteDisconnected", "IncompleteRead", "BadStatusLine"}),
}
_TIMEOUT_PACKAGES = frozenset({"redis", "httpx", "httpcore", "requests", "urllib3", "aiohttp", "botocore"})
_VALIDATION_NAMES = frozenset(
    {"ValidationError", "DecodeError", "ContentTypeError", "UnsupportedMediaType", "InvalidJSONError"}
)
_CONFIGURATION_NAMES = frozenset(
    {"ConfigurationError", "ImproperlyConfigured", "NoCredentialsError", "SettingsError", "NoRegionError"}
)
# Names of a service's own errors. The same names in these packages are the base of all that can go wrong there.
_CLIENT_NAMES = frozenset({"ClientError"})
_PACKAGES_OF_OTHER_CLIENT_ERRORS = frozenset({"aiohttp", "botocore"})
_MEDIA_TYPE_NAME = re.compile(r"mime|media_?type|content_?type|unsupported_?media", re.IGNORECASE)
_MEDIA_TYPE_TEXT = re.compile(
    r"unsupported (?:mime|media|content)\b|(?:mime|media|content)[ -]?type\b.{0,200}\b(?:not |un)supported",
    re.IGNORECASE | re.DOTALL,
)
_SECONDS = re.compile(r"([+-]?)([0-9]+)(?:\.[0-9]*)?\Z")


# Of names alone, the first that fits. Four are the words of `classify_error`.
_CATEGORIES_BY_NAME: tuple[tuple[re.Pattern[str], Category], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), category)
    for pattern, category in (
        (r"time_?d?_?out|deadline", Category.TIMEOUT),
        (r"rate_?limit|too_?many_?requests|throttl", Category.RATE_LIMITED),
        (r"config|credential|settings", Category.CONFIGURATION),
        (r"validation|mime|media|content_?type|decode|syntax|parse|json|unicode|uuid|schema", Category.VALIDATION),
        (r"^(value|key)_?error$|missing_?field|invalid", Category.VALIDATION),
        (
            r"connect|network|socket|dns|gaierror|ssl|tls|redis|postgres|operational|amqp|publish|broken_?pipe",
            Category.NETWORK,
        ),
        (r"transient|server_?error|unavailable|bad_?gateway", Category.SERVER_ERROR),
        (r"client|not_?found|forbidden|unauthori[sz]ed|bad_?request|conflict|permission", Category.CLIENT_ERROR),
    )
)


class ConfigurationError(Exception):
    """Credentials or settings are missing or wrong: trying again changes nothing until a person acts."""


def classify_status(status: int) -> Category | None:
    """The class of an HTTP status; None for success."""
    if 200 <= status <= 299:
        return None
    if status == 429:
        return Category.RATE_LIMITED
    if status in (408, 425) or 500 <= status <= MAX_STATUS:
        return Category.SERVER_ERROR
    if 300 <= status <= 499:
        return Category.CLIENT_ERROR
    return Category.UNKNOWN


def error_category(e: BaseException) -> Category:
    """The class of an exception. A status code it carries beats its type; causes are not followed."""
    e = _single(e)
    if isinstance(e, GiveUp):
        return e.category or Category.UNKNOWN
    status = _status_of(e)
    by_status = None if status is None else classify_status(status)
    found = by_status or _category_by_type(e) or _category_by_name(e)
    if found is None and _MEDIA_TYPE_TEXT.search(_text_of(e)[:MAX_MESSAGE_CHARS]):
        return Category.VALIDATION
    return found or Category.UNKNOWN


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """`category` is transient, client, validation or configuration."""

    category: str
    retryable: bool


def classify_error(e: BaseException) -> ErrorClass:
    """The class of an exception in four words, and whether a consumer of a broker retries it by default.

    An unknown error is `client`: it is not retried.
    """
    match _steer_of(_single(e)):
        case Steer.RETRY:
            return ErrorClass("transient", retryable=True)
        case Steer.GIVE_UP:
            return ErrorClass(_in_four(error_category(e)), retryable=False)
        case None:
            category = error_category(e)
            return ErrorClass(_in_four(category), retryable=category in TRANSIENT)


def _in_four(category: Category) -> str:
    if category in TRANSIENT:
        return "transient"
    return category.value if category in (Category.VALIDATION, Category.CONFIGURATION) else "client"


def category_named(name: str) -> Category | None:
    """The category that a class name or a category's own name stands for. None: it says nothing.

    Names come from services in any language: `TimeoutError`, `HttpServerError`, `SyntaxError` of JavaScript.
    """
    if name in set(Category):
        return Category(name)
    return next((category for pattern, category in _CATEGORIES_BY_NAME if pattern.search(name)), None)


def is_retriable(e: BaseException, policy: str | Mapping[str, object] = DEFAULT_POLICY) -> bool:
    """Whether a policy retries after this exception: the preset of that name, or a policy as an object.

    ValueError where there is no preset of that name, PolicyError (a ValueError) where the object is no policy.
    """
    if not isinstance(policy, str):
        return retriable(Policy.from_spec(policy), failure_of(e, ""))
    if policy not in PRESETS:
        raise ValueError(f"policy must be one of {', '.join(PRESETS)} or a policy as an object, not {policy!r}")
    return retriable(PRESETS[policy], failure_of(e, ""))


def failure_of(e: BaseException, stack: str) -> Failure:
    """What an exception from a handler means. Message and stack come out redacted and bounded."""
    e = _single(e)
    return Failure(
        category=error_category(e),
        message=redact_text(_text_of(e), MAX_MESSAGE_CHARS),
        status_code=_status_of(e),
        stack=redact_text(_tail(stack), MAX_STACK_CHARS),
        retry_after=e.after if isinstance(e, RetryLater) else None,
        steer=_steer_of(e),
        error_type=type(e).__name__,
    )


def retriable(policy: Policy, failure: Failure) -> bool:
    """Whether the policy tries again: by the handler's wish, else status code, else its family, else class."""
    if failure.steer is not None:
        return failure.steer is Steer.RETRY
    if failure.status_code is not None:
        for rule in (failure.status_code, StatusFamily.of(failure.status_code)):
            if rule in policy.retry:
                return True
            if rule in policy.fail:
                return False
    return failure.category in policy.retry  # a policy names every class


def parse_retry_after(value: str, now: datetime) -> timedelta | None:
    """A Retry-After header: seconds or a date. Garbage is None, the past is zero, ten years are cut."""
    text = value.strip()
    seconds = _SECONDS.match(text)
    if seconds:
        sign, digits = seconds.groups()
        if sign == "-":
            return timedelta(0)
        digits = digits.lstrip("0")
        # A number too long to be worth converting: int() refuses thousands of digits.
        whole_s = int(digits or "0") if len(digits) <= 12 else int(MAX_DELAY_S)
        return min(timedelta(seconds=whole_s), MAX_RETRY_AFTER)
    due = parse_http_date(text)
    if due is None:
        return None
    return min(max(due - _as_utc(now), timedelta(0)), MAX_RETRY_AFTER)


def parse_http_date(value: str) -> datetime | None:
    """A date as HTTP headers write it, in UTC; garbage is None."""
    text = value.strip()
    if len(text) > MAX_RETRY_AFTER_CHARS or not text.isascii():
        return None
    try:
        return _as_utc(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):  # the parser's ways of saying "not a date"
        return None


def _as_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _single(e: BaseException) -> BaseException:
    """The one member of a group (task groups wrap a lone failure), else the exception itself."""
    for _ in range(MAX_GROUP_DEPTH):
        if not isinstance(e, BaseExceptionGroup) or len(e.exceptions) != 1:
            break
        e = e.exceptions[0]
    return e


def _steer_of(e: BaseException) -> Steer | None:
    if isinstance(e, GiveUp):
        return Steer.GIVE_UP
    return Steer.RETRY if isinstance(e, RetryLater) else None


def _status_of(e: BaseException) -> int | None:
    """The HTTP status of a failed response that the exception carries."""
    holders = (e, _attribute(e, "response"))
    for holder in holders:
        for name in ("status_code", "status"):
            status = _attribute(holder, name)
            if isinstance(status, int) and not isinstance(status, bool) and 300 <= status <= MAX_STATUS:
                return int(status)
    return None


def _attribute(holder: object, name: str) -> object:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 (a property of a foreign exception may raise anything; then it says nothing)
        return None


def _category_by_type(e: BaseException, *, wrapped: bool = False) -> Category | None:
    # Order matters: a failed certificate check is a ValueError too, a time-out an OSError, and requests'
    # JSON error both a JSONDecodeError and an OSError.
    if isinstance(e, TimeoutError):
        return Category.TIMEOUT
    if isinstance(e, ConnectionError | socket.gaierror | socket.herror | ssl.SSLError):
        return Category.NETWORK
    if isinstance(e, json.JSONDecodeError | UnicodeError):
        return Category.VALIDATION
    if isinstance(e, ConfigurationError):
        return Category.CONFIGURATION
    if isinstance(e, OSError):
        if e.errno == errno.ETIMEDOUT:
            return Category.TIMEOUT
        if e.errno in _NETWORK_ERRNOS:
            return Category.NETWORK
        reason = None if wrapped else _attribute(e, "reason")  # urllib wraps what went wrong, once
        return _category_by_type(reason, wrapped=True) if isinstance(reason, OSError) else None
    return None


def _category_by_name(e: BaseException) -> Category | None:
    for cls in type(e).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in _TIMEOUT_PACKAGES and cls.__name__.endswith(("Timeout", "TimeoutError", "TimeoutException")):
            return Category.TIMEOUT
        if cls.__name__ in _NETWORK_NAMES.get(package, ()):
            return Category.NETWORK
        if cls.__name__ in _CONFIGURATION_NAMES:
            return Category.CONFIGURATION
        if cls.__name__ in _VALIDATION_NAMES or _MEDIA_TYPE_NAME.search(cls.__name__):
            return Category.VALIDATION
        if cls.__name__ in _CLIENT_NAMES and package not in _PACKAGES_OF_OTHER_CLIENT_ERRORS:
            return Category.CLIENT_ERROR
    # A bad UUID or number is a plain ValueError, a missing field a KeyError: the same input fails again.
    return Category.VALIDATION if isinstance(e, ValueError | KeyError) else None


def _text_of(e: BaseException) -> str:
    try:
        text = str(e)
    except Exception:  # noqa: BLE001 (a foreign __str__ may raise anything; its class still names the error)
        text = ""
    name = type(e).__name__
    if isinstance(e, KeyError):  # its text is the bare key
        return f"{name}: {text}"
    return text or name


def _tail(stack: str) -> str:
    """The end of a stack tells most; cut at a line, so that no value is parted from its key."""
    if len(stack) <= MAX_STACK_CHARS:
        return stack
    return stack[-MAX_STACK_CHARS:].partition("\n")[2]
