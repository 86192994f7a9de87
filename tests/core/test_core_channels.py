"""Mail, chat and what people read: every text fits into a header, every address is one, and no server's URL leaks."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from redrive.api.endpoint_input import check_channel
from redrive.api.problems import Problem
from redrive.core.channels import address_problem, method_of, recipients_problem, service_of, service_problem
from redrive.core.mail import parse_sender, parse_server
from redrive.core.notice_text import MAX_SUBJECT_CHARS, one_line, told

EVENT = UUID(int=7)
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=4),
    max_leaves=10,
)


@given(kind=some.text(), value=JSON, is_ours=some.booleans())
def test_whatever_an_event_holds_there_is_a_subject_of_one_line_and_a_bounded_text(
    kind: str, value: object, is_ours: bool
) -> None:
    said = told(
        ("redrive." if is_ours else "") + kind, EVENT, json.dumps(value).encode(), public_url="https://r.example"
    )
    _check(said.subject, said.text)


@given(
    text=some.text(),
    facts=some.dictionaries(some.text(), JSON, max_size=5),
    subject=some.none()
    | some.fixed_dictionaries({"kind": some.sampled_from(["dead_letter", "alert"]), "id": some.text()}),
)
def test_so_it_is_with_whatever_a_notice_says(text: str, facts: dict[str, object], subject: object) -> None:
    notice = {"id": "n", "at": "2031-05-04T12:00:00Z", "org": text, "kind": "alert.fired", "severity": "error"}
    body = json.dumps({**notice, "text": text, "facts": facts, "subject": subject}).encode()
    said = told("redrive.alert.fired", EVENT, body, public_url="https://r.example")
    _check(said.subject, said.text)
    assert said.severity == "error"


def test_a_message_of_many_alerts_names_them_in_its_text_alone() -> None:
    facts = {"rule": "endpoint_open", "more": 2, "alerts": [{"alert_id": str(EVENT), "subject": {"name": "billing"}}]}
    notice = {"id": "n", "at": "2031-05-04T12:00:00Z", "org": "o", "kind": "alert.fired", "severity": "warning"}
    body = json.dumps({**notice, "text": "Two are open.", "facts": facts}).encode()
    said = told("redrive.alert.fired", EVENT, body, public_url=None)
    assert "What was seen:\n  rule: endpoint_open\n  more: 2\n\n" in said.text


@given(body=some.binary(max_size=9_000))
def test_what_is_no_json_is_shown_as_far_as_it_is_text(body: bytes) -> None:
    said = told("file.came", EVENT, body, public_url=None)
    _check(said.subject, said.text)


@pytest.mark.parametrize(
    "body", [b'{"first": "' + b"x" * 1_000_000 + b'"}', b"[" * 900 + b"]" * 900, b'{"first":' + b"9" * 5_000 + b"}"]
)
def test_a_payload_that_would_take_long_to_lay_out_or_cannot_be_is_shown_as_it_is_written(body: bytes) -> None:
    said = told("file.came", EVENT, body, public_url=None)
    _check(said.subject, said.text)
    assert body[:500].decode() in said.text or body[:500].count(b"[") == 500


def _check(subject: str, text: str) -> None:
    assert subject == one_line(subject)
    assert 0 < len(subject) <= MAX_SUBJECT_CHARS
    assert len(text) < 9_000
    assert all(char in "\n\t" or char.isprintable() or char == "\ufffd" for char in text)


@given(some.text())
def test_what_is_taken_for_an_address_holds_nothing_that_smtp_acts_upon(text: str) -> None:
    if address_problem(text) is None:
        assert text.isascii()
        assert text.count("@") == 1
        assert not set(text) & set(' \r\n\t<>,;:"()[]\\')


@pytest.mark.parametrize("address", ["ops@example.com", "a.b+c@x-y.example.co", "o'neil@example.com"])
def test_ordinary_addresses_are_addresses(address: str) -> None:
    assert address_problem(address) is None
    assert recipients_problem([address]) is None


@given(some.text())
def test_what_is_said_of_a_url_that_cannot_be_used_never_repeats_it(text: str) -> None:
    why = service_problem(f"{text}canary")
    assert why is None or "canary" not in why
    assert service_of("slack://a/b") == "slack"


def test_where_a_delivery_went_tells_how() -> None:
    ways = {
        "mailto:a@b.example": "MAIL",
        "apprise://slack": "NOTIFY",
        "rabbitmq://a/b": "PUBLISH",
        "https://a/": "POST",
    }
    assert {url: method_of(url) for url in ways} == ways


def test_a_mail_server_is_spoken_to_by_tls_unless_it_is_said_otherwise_and_never_with_a_password_then() -> None:
    usual = parse_server("smtp://ops:p%40ss@mail.example.com")
    assert (usual.host, usual.port, usual.security, usual.user, usual.password) == (
        "mail.example.com",
        587,
        "starttls",
        "ops",
        "p@ss",
    )
    assert "p@ss" not in repr(usual)
    assert (parse_server("smtps://m.example").port, parse_server("smtps://m.example").security) == (465, "tls")
    assert parse_server("smtp://127.0.0.1:25?starttls=none").security == "none"
    for wrong in (
        "smtp://ops:canary@m.example?starttls=none",
        "smtp://ops@m.example",
        "smtp://m.example?starttls=maybe",
        "smtp://m.example?canary=1",
        "smtp://m.example:canary",
        "smtp://m.example/canary",
        "https://m.example",
    ):
        with pytest.raises(ValueError, match=r"^[a-zA-Z, ]+$") as refused:
            parse_server(wrong)
        assert "canary" not in str(refused.value)
    assert parse_sender("Ops Team <a@b.example>").name == "Ops Team"
    with pytest.raises(ValueError, match="not an address"):
        parse_sender("nobody")


def test_without_a_mail_server_or_apprise_there_are_no_such_endpoints() -> None:
    check_channel("http", has_mail=False, has_apprise=False)
    for kind, said in (("mail", "REDRIVE_SMTP_URL"), ("apprise", "redrive[notify]")):
        with pytest.raises(Problem) as refused:
            check_channel(kind, has_mail=False, has_apprise=False)
        assert said in str(refused.value.errors)
