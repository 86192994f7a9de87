"""Every exception and status has the class promised, and reading them never raises."""

import asyncio
import errno
import json
import re
import socket
import ssl
import urllib.error
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import msgspec
import psycopg
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.classify import (
    MAX_MESSAGE_CHARS,
    MAX_RETRY_AFTER,
    MAX_STACK_CHARS,
    ConfigurationError,
    ErrorClass,
    category_named,
    classify_error,
    classify_status,
    error_category,
    failure_of,
    is_retriable,
    parse_http_date,
    parse_retry_after,
)
from redrive.core.outcome import Category, Steer
from redrive.core.presets import PRESETS
from redrive.core.steer import GiveUp, RetryLater

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


class Refused(Exception):
    def __init__(self, **facts: object) -> None:
        super().__init__("refused")
        self.__dict__.update(facts)


class Transport(OSError):
    """Subclasses of OSError keep their own type, whatever their errno."""


class Spiteful(Exception):
    @property
    def response(self) -> object:
        raise RuntimeError("not now")

    def __str__(self) -> str:
        raise RuntimeError("nor this")


class Response:
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


def foreign(module: str, name: str, base: type[Exception] = Exception) -> Exception:
    """An exception of a library that is not installed here."""
    cls: type[Exception] = type(name, (base,), {"__module__": module})
    return cls("foreign")


def raised(source: object) -> BaseException:
    """What a call really raises."""
    try:
        assert callable(source)
        source()
    except Exception as e:  # noqa: BLE001 (whatever it is, is what the test is about)
        return e
    pytest.fail("nothing was raised")


class Order(pydantic.BaseModel):
    id: int


class Item(msgspec.Struct):
    id: int


CASES: list[tuple[BaseException, str, str]] = [
    (TimeoutError(), "timeout", "transient"),
    (asyncio.TimeoutError(), "timeout", "transient"),  # noqa: UP041 (the name users know)
    (OSError(errno.ETIMEDOUT, "slow"), "timeout", "transient"),
    (Transport(errno.ETIMEDOUT, "slow"), "timeout", "transient"),
    (Transport(errno.ECONNREFUSED, "refused"), "network", "transient"),
    (Transport("odd"), "unknown", "client"),
    (foreign("httpx", "ReadTimeout"), "timeout", "transient"),
    (foreign("redis.exceptions", "TimeoutError"), "timeout", "transient"),
    (ConnectionRefusedError(), "network", "transient"),
    (BrokenPipeError(), "network", "transient"),
    (socket.gaierror(-2, "unknown name"), "network", "transient"),
    (ssl.SSLError("handshake"), "network", "transient"),
    (ssl.SSLCertVerificationError("certificate"), "network", "transient"),
    (OSError(errno.EHOSTUNREACH, "no route"), "network", "transient"),
    (urllib.error.URLError(ConnectionRefusedError()), "network", "transient"),
    (asyncpg.ConnectionDoesNotExistError(), "network", "transient"),
    (asyncpg.InterfaceError("closed"), "network", "transient"),
    (psycopg.OperationalError("down"), "network", "transient"),
    (foreign("redis.exceptions", "ConnectionError"), "network", "transient"),
    (foreign("aio_pika.exceptions", "DeliveryError"), "network", "transient"),
    (raised(lambda: json.loads("{")), "validation", "validation"),
    (raised(lambda: b"\xff".decode()), "validation", "validation"),
    (raised(lambda: UUID("no")), "validation", "validation"),
    (raised(lambda: {"id": 7}["field"]), "validation", "validation"),
    (raised(lambda: Order.model_validate({"id": "x"})), "validation", "validation"),
    (raised(lambda: msgspec.json.decode(b'{"id": "x"}', type=Item)), "validation", "validation"),
    (foreign("aiohttp.client_exceptions", "ContentTypeError"), "validation", "validation"),
    (ConfigurationError("no key"), "configuration", "configuration"),
    (foreign("botocore.exceptions", "NoCredentialsError"), "configuration", "configuration"),
    (Refused(status_code=404), "client_error", "client"),
    (Refused(status=503), "server_error", "transient"),
    (Refused(response=Response(429)), "rate_limited", "transient"),
    (Refused(status_code=True), "unknown", "client"),
    (Refused(status_code=200), "unknown", "client"),
    (urllib.error.HTTPError("http://x", 500, "no", None, None), "server_error", "transient"),  # type: ignore[arg-type]
    (Spiteful(), "unknown", "client"),
    (RuntimeError("odd"), "unknown", "client"),
    (FileNotFoundError(errno.ENOENT, "gone"), "unknown", "client"),
    (asyncio.CancelledError(), "unknown", "client"),
    (ExceptionGroup("one", [ExceptionGroup("inner", [TimeoutError()])]), "timeout", "transient"),
    (ExceptionGroup("two", [TimeoutError(), TimeoutError()]), "unknown", "client"),
    (GiveUp("enough"), "unknown", "client"),
    (GiveUp("enough", category=Category.CONFIGURATION), "configuration", "configuration"),
]


@pytest.mark.parametrize(("error", "category", "row_e"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_an_exception_has_its_class(error: BaseException, category: str, row_e: str) -> None:
    assert error_category(error) == category
    assert classify_error(error) == ErrorClass(row_e, retryable=row_e == "transient")


class ClientError(Exception):
    """A service's own."""


@pytest.mark.parametrize(
    "error",
    [
        type("UnsupportedMimeTypeError", (Exception,), {})("image/x-odd"),
        type("MediaTypeNotAccepted", (RuntimeError,), {})("odd"),
        type("UnsupportedMediaType", (Exception,), {})("odd"),
        RuntimeError("Unsupported MIME type: image/x-odd"),
        RuntimeError("The content type image/x-odd is not supported."),
    ],
    ids=repr,
)
def test_e12_an_unsupported_media_type_is_validation_by_any_class_name(error: Exception) -> None:
    assert error_category(error) is Category.VALIDATION
    assert classify_error(error) == ErrorClass("validation", retryable=False)


def test_e12_there_are_four_classes_and_an_unknown_error_is_client_and_not_retried() -> None:
    assert classify_error(RuntimeError("odd")) == ErrorClass("client", retryable=False)
    assert classify_error(ClientError("no such unit")) == ErrorClass("client", retryable=False)
    assert classify_error(RetryLater()) == ErrorClass("transient", retryable=True)
    given_up = GiveUp("enough", category=Category.SERVER_ERROR)
    assert classify_error(given_up) == ErrorClass("transient", retryable=False)
    assert {classify_error(error).category for error, _, _ in CASES} == {
        "transient",
        "client",
        "validation",
        "configuration",
    }


def test_e12_the_base_of_all_errors_of_a_library_is_no_client_error() -> None:
    assert error_category(foreign("aiohttp.client_exceptions", "ClientError")) is Category.UNKNOWN
    assert error_category(foreign("botocore.exceptions", "ClientError")) is Category.UNKNOWN


@pytest.mark.parametrize(
    ("name", "category"),
    [
        *((category.value, category) for category in Category),
        ("transient", Category.SERVER_ERROR),
        ("client", Category.CLIENT_ERROR),
        ("ValidationError", Category.VALIDATION),
        ("SyntaxError", Category.VALIDATION),  # what JSON.parse raises
        ("JSONDecodeError", Category.VALIDATION),
        ("KeyError", Category.VALIDATION),
        ("UnsupportedMimeTypeError", Category.VALIDATION),
        ("TimeoutError", Category.TIMEOUT),
        ("ConnectionResetError", Category.NETWORK),
        ("MongoNetworkError", Category.NETWORK),
        ("TooManyRequestsError", Category.RATE_LIMITED),
        ("ServiceUnavailableException", Category.SERVER_ERROR),
        ("NotFoundError", Category.CLIENT_ERROR),
        ("MissingCredentialsError", Category.CONFIGURATION),
        ("RuntimeError", None),
        ("Error", None),
        ("", None),
    ],
)
def test_e7_the_name_of_a_class_or_a_category_leads_back_to_its_category(name: str, category: Category | None) -> None:
    assert category_named(name) is category


def test_the_cause_of_an_exception_is_not_its_class() -> None:
    error = RuntimeError("odd")
    error.__cause__ = TimeoutError()
    assert error_category(error) is Category.UNKNOWN


def test_the_default_decides_what_is_retried() -> None:
    assert is_retriable(TimeoutError())
    assert is_retriable(RuntimeError())
    assert is_retriable(RetryLater())
    assert is_retriable(ExceptionGroup("one", [RetryLater()]))
    assert not is_retriable(GiveUp())
    assert not is_retriable(KeyError("id"))
    assert not is_retriable(Refused(status_code=400))


OF_CLASS: dict[str, list[BaseException]] = {
    "timeout": [TimeoutError()],
    "network": [ConnectionResetError()],
    "server_error: 5xx": [Refused(status_code=500), Refused(status_code=503)],
    "server_error: 408, 425": [Refused(status_code=408), Refused(status_code=425)],
    "rate_limited: 429": [Refused(status_code=429)],
    "client_error: 3xx": [Refused(status_code=302)],
    "client_error: 401, 403, 410": [Refused(status_code=status) for status in (401, 403, 410)],
    "client_error: other 4xx": [Refused(status_code=400), Refused(status_code=404), Refused(status_code=422)],
    "validation": [ValueError("no number"), KeyError("id")],
    "configuration": [ConfigurationError("no key")],
    "unknown": [RuntimeError()],
}


def test_d12_the_documented_table_says_which_errors_each_preset_retries() -> None:
    page = (Path(__file__).parents[2] / "docs/policies.md").read_text()
    table = page.partition("### Which errors are retried")[2].partition("| Class |")[2].splitlines()
    presets = [re.findall(r"`(\w+)`", cell) for cell in table[0].split("|") if "`" in cell]
    assert {name for names in presets for name in names} == set(PRESETS)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2 : 2 + len(OF_CLASS)]]
    assert [row[0].replace("`", "") for row in rows] == list(OF_CLASS)
    for row in rows:
        for error in OF_CLASS[row[0].replace("`", "")]:
            assert str(error_category(error)) == re.findall(r"`(\w+)`", row[0])[0]
            for names, said in zip(presets, row[1:], strict=True):
                for name in names:
                    assert is_retriable(error, policy=name) is (said == "yes"), (row[0], name)


def test_d12_a_policy_of_ones_own_decides_what_is_retried() -> None:
    spec = {"kind": "list", "delays_s": [5], "classify": {"retry": [404], "fail": ["unknown"]}}
    assert is_retriable(Refused(status_code=404), policy=spec)
    assert not is_retriable(RuntimeError(), policy=spec)
    assert is_retriable(RetryLater(), policy=spec)
    assert not is_retriable(GiveUp(), policy="triggers")
    with pytest.raises(ValueError, match="one of integration, immediate, manual"):
        is_retriable(RuntimeError(), policy="mine")
    with pytest.raises(ValueError, match="kind: is needed"):
        is_retriable(RuntimeError(), policy={})


def test_d12_the_class_that_a_handler_gives_up_with_is_a_word() -> None:
    assert error_category(GiveUp("closed", category="client_error")) is Category.CLIENT_ERROR
    assert error_category(GiveUp("closed", category=Category.TIMEOUT)) is Category.TIMEOUT
    assert error_category(GiveUp("closed")) is error_category(GiveUp("closed", category="x")) is Category.UNKNOWN


def test_every_status_has_its_class() -> None:
    for status in range(100, 600):
        found = classify_status(status)
        if 200 <= status < 300:
            assert found is None
        elif status == 429:
            assert found is Category.RATE_LIMITED
        elif status >= 500 or status in (408, 425):
            assert found is Category.SERVER_ERROR
        elif status >= 300:
            assert found is Category.CLIENT_ERROR
        else:
            assert found is Category.UNKNOWN
    assert classify_status(0) is classify_status(999) is Category.UNKNOWN


def test_a_handlers_wish_reaches_the_failure() -> None:
    later = failure_of(RetryLater("busy", after=90), "")
    assert (later.steer, later.retry_after, later.message) == (Steer.RETRY, timedelta(seconds=90), "busy")
    never = failure_of(GiveUp("closed account", category=Category.CLIENT_ERROR), "")
    assert (never.steer, never.category) == (Steer.GIVE_UP, Category.CLIENT_ERROR)
    grouped = failure_of(ExceptionGroup("one", [RetryLater("busy", after=timedelta(minutes=2))]), "")
    assert grouped.retry_after == timedelta(minutes=2)


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        (None, None),
        (float("nan"), None),
        (-5, 0),
        (float("inf"), 30 * 86400),
        pytest.param(10**400, 30 * 86400, id="400 digits"),
        (timedelta(days=999), 30 * 86400),
    ],
)
def test_a_senseless_delay_is_bent_into_range(after: float | timedelta | None, seconds: float | None) -> None:
    found = RetryLater(after=after).after
    assert (None if found is None else found.total_seconds()) == seconds


def test_a_failure_carries_status_message_and_stack() -> None:
    failure = failure_of(Refused(status_code=503), "Traceback …")
    assert (failure.status_code, failure.message, failure.stack) == (503, "refused", "Traceback …")
    assert failure.steer is None
    assert failure_of(RuntimeError(), "").message == "RuntimeError"
    assert failure_of(KeyError("id"), "").message == "KeyError: 'id'"
    assert failure_of(Spiteful(), "").message == "Spiteful"


def test_a_failure_is_redacted_storable_and_bounded() -> None:
    failure = failure_of(RuntimeError("password=hunter2\x00\ud800" + "x" * 10_000), "token=abc123\n" * 10_000)
    assert failure.stack is not None
    assert "hunter2" not in failure.message
    assert "abc123" not in failure.stack
    assert len(failure.message) <= MAX_MESSAGE_CHARS
    assert len(failure.stack) <= MAX_STACK_CHARS
    assert "\x00" not in failure.message
    failure.message.encode()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 120 ", 120),
        ("1.5", 1),
        ("-5", 0),
        ("315360000", MAX_RETRY_AFTER.total_seconds()),
        ("9" * 5000, MAX_RETRY_AFTER.total_seconds()),
        ("0" * 5000 + "7", 7),
        ("Wed, 02 Jan 2030 03:05:05 GMT", 60),
        ("Wednesday, 02-Jan-30 03:05:05 GMT", 60),
        ("Tue, 01 Jan 2030 00:00:00 GMT", 0),
        ("Sun, 01 Jan 2040 00:00:00 GMT", MAX_RETRY_AFTER.total_seconds()),
        ("", None),
        ("soon", None),
        ("1e999", None),
        ("NaN", None),
        ("١٢٣", None),
        ("Wed, 99 Jan 2030 03:05:05 GMT", None),
        ("Wed, 02 Jan 99999 03:05:05 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    found = parse_retry_after(value, NOW)
    assert (None if found is None else found.total_seconds()) == seconds


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80) | st.from_regex(r"[A-Za-z]{3}, [0-9]{1,3} [A-Za-z]{3} -?[0-9]{1,6} [0-9:+-]{1,12}"))
def test_retry_after_never_raises_and_stays_in_range(value: str) -> None:
    for now in (NOW, NOW.replace(tzinfo=None)):
        found = parse_retry_after(value, now)
        assert found is None or timedelta(0) <= found <= MAX_RETRY_AFTER


@pytest.mark.parametrize("garbage", ["", "soon", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "é", "1" * 500])
def test_a_date_that_is_none_is_told_and_raises_nothing(garbage: str) -> None:
    assert parse_http_date(garbage) is None
