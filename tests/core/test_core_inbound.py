"""Webhooks from outside: signatures by the senders' own rules, and what of their headers is kept."""

import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from redrive.core import inbound
from redrive.core.inbound import BadHeaders, Scheme, kept_headers, readable, refusal, secret_problem
from redrive.core.sign import new_secret
from redrive.destinations.client import build_head

NOW = 1_614_265_330
BODY = b'{"test": 2432232314}'
STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SECRETS = {
    Scheme.STANDARD: STANDARD_SECRET,
    Scheme.GITHUB: "It's a Secret to Everybody",
    Scheme.STRIPE: "whsec_of_stripe",
    Scheme.SLACK: "8f742231b10e8888abcd99yyyzzz85a5",
}

Headers = dict[str, str]


def _hmac(secret: str, signed: bytes) -> str:
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def standard(body: bytes = BODY, at: int = NOW, secret: str = STANDARD_SECRET) -> Headers:
    signature = Webhook(secret).sign("msg_1", datetime.fromtimestamp(at, UTC), body.decode("latin-1"))
    return {"webhook-id": "msg_1", "webhook-timestamp": str(at), "webhook-signature": signature}


def github(body: bytes = BODY, at: int = NOW) -> Headers:
    return {"x-hub-signature-256": f"sha256={_hmac(SECRETS[Scheme.GITHUB], body)}"}


def stripe(body: bytes = BODY, at: int = NOW) -> Headers:
    signature = _hmac(SECRETS[Scheme.STRIPE], f"{at}.".encode() + body)
    return {"stripe-signature": f"t={at},v1={'0' * 64},v1={signature},v0=00"}


def slack(body: bytes = BODY, at: int = NOW) -> Headers:
    signature = _hmac(SECRETS[Scheme.SLACK], f"v0:{at}:".encode() + body)
    return {"x-slack-request-timestamp": str(at), "x-slack-signature": f"v0={signature}"}


SIGNERS: dict[Scheme, Callable[..., Headers]] = {
    Scheme.STANDARD: standard,
    Scheme.GITHUB: github,
    Scheme.STRIPE: stripe,
    Scheme.SLACK: slack,
}
TIMED = [Scheme.STANDARD, Scheme.STRIPE, Scheme.SLACK]
every_scheme = pytest.mark.parametrize("scheme", Scheme)


def judge(scheme: Scheme, headers: Headers, body: bytes = BODY, now: int = NOW) -> str | None:
    return refusal(scheme, SECRETS[scheme], headers, body, now=now)


# -- vectors that the senders publish ----------------------------------------------------------------------------------


def test_the_vector_of_standard_webhooks_holds() -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert judge(Scheme.STANDARD, headers) is None


def test_the_vector_of_github_holds() -> None:
    said = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert judge(Scheme.GITHUB, {"x-hub-signature-256": said}, b"Hello, World!") is None


def test_the_vector_of_slack_holds() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name="
        b"foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F"
        b"hooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id="
        b"398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    assert judge(Scheme.SLACK, headers, body, now=1531420618) is None


# -- every scheme ------------------------------------------------------------------------------------------------------


@every_scheme
@given(body=st.binary(max_size=200).filter(bytes.isascii))
def test_what_the_sender_signed_holds_and_any_other_body_does_not(scheme: Scheme, body: bytes) -> None:
    headers = SIGNERS[scheme](body)
    assert judge(scheme, headers, body) is None
    assert judge(scheme, headers, body + b" ") is not None


@every_scheme
def test_another_secret_s_signature_does_not_hold(scheme: Scheme) -> None:
    other = new_secret(bytes(range(24)))
    said = refusal(scheme, other, SIGNERS[scheme](), BODY, now=NOW)
    assert said is not None
    assert "does not hold" in said


@pytest.mark.parametrize("scheme", TIMED)
@given(away_s=st.integers(-(10**6), 10**6))
def test_a_signature_is_good_for_five_minutes(scheme: Scheme, away_s: int) -> None:
    said = judge(scheme, SIGNERS[scheme](BODY, NOW + away_s))
    assert (said is None) == (abs(away_s) <= 300)


@every_scheme
def test_a_header_that_is_missing_is_named(scheme: Scheme) -> None:
    whole = SIGNERS[scheme]()
    for name in whole:
        for without in ({key: value for key, value in whole.items() if key != name}, {**whole, name: ""}):
            said = judge(scheme, without)
            assert said is not None
            assert name in said


@every_scheme
@given(data=st.data())
def test_nothing_that_is_sent_breaks_it_or_comes_back(scheme: Scheme, data: st.DataObject) -> None:
    whole = SIGNERS[scheme]()
    headers = {name: data.draw(st.text(max_size=100), name) for name in whole}
    said = judge(scheme, headers)
    assert said is not None
    assert SECRETS[scheme] not in said
    # What is drawn may be a word of ours.
    ours = [judge(scheme, {**whole, name: other}) or "" for name in whole for other in ("", "~")]
    ours.append(judge(scheme, SIGNERS[scheme](BODY, NOW - 301)) or "")
    for value in headers.values():
        assert len(value) < 8 or value not in said or any(value in words for words in ours)


def test_a_secret_that_cannot_be_used_is_refused_when_it_is_set() -> None:
    assert secret_problem(Scheme.STANDARD, STANDARD_SECRET) is None
    assert secret_problem(Scheme.STANDARD, "whsec_short") is not None
    assert secret_problem(Scheme.GITHUB, "anything") is None
    assert secret_problem(Scheme.GITHUB, "") is not None
    assert secret_problem(Scheme.SLACK, "line\nbreak") is not None
    assert secret_problem(Scheme.STRIPE, "x" * 501) is not None


# -- what else a webhook says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "challenge"),
    [
        (json.dumps({"type": "url_verification", "challenge": "3eZbrw"}).encode(), "3eZbrw"),
        (json.dumps({"type": "event_callback", "challenge": "x"}).encode(), None),
        (b'{"type": "url_verification", "challenge": 7}', None),
        (b"[" * 5_000, None),
        (b"\xff", None),
    ],
)
def test_slack_s_question_is_told_from_its_events(body: bytes, challenge: str | None) -> None:
    assert inbound.slack_challenge(body) == challenge


@pytest.mark.parametrize(
    ("headers", "event_type"),
    [
        ({}, "webhook"),
        ({"x-github-event": "pull_request"}, "github.pull_request"),
        ({"x-github-event": "no such\x00"}, "webhook"),
        ({"x-github-event": "x" * 101}, "webhook"),
    ],
)
def test_the_type_is_told_by_a_header_that_is_known_to(headers: Headers, event_type: str) -> None:
    assert inbound.event_type_of(headers) == event_type


def test_the_sender_s_own_id_is_found_under_the_names_that_are_known() -> None:
    assert inbound.sender_id_of({"webhook-id": "a", "idempotency-key": "b"}) == "webhook-id:a"
    assert inbound.sender_id_of({"x-github-delivery": "c"}) == "x-github-delivery:c"
    assert inbound.sender_id_of({"idempotency-key": "b"}) == "idempotency-key:b"
    assert inbound.sender_id_of({"webhook-id": "", "x-request-id": "d"}) is None


def test_headers_between_two_hops_and_credentials_are_left_out_and_ours_are_set_aside() -> None:
    given_headers = readable(
        [
            (b"Host", b"edge"),
            (b"Connection", b"close, X-Hop"),
            (b"X-Hop", b"1"),
            (b"Content-Length", b"3"),
            (b"Content-Type", b"text/plain"),
            (b"Authorization", b"Basic abc"),
            (b"Cookie", b"a=b"),
            (b"Proxy-Authorization", b"x"),
            (b"X-API-Key", b"rdk_x"),
            (b"webhook-id", b"msg_1"),
            (b"Redrive-Attempt", b"9"),
            (b"User-Agent", b"GitHub-Hookshot/1"),
            (b"X-Custom", b"caf\xc3\xa9"),
            (b"X-Custom", b"\xe9"),
        ]
    )
    assert kept_headers(given_headers) == {
        "original-webhook-id": "msg_1",
        "original-redrive-attempt": "9",
        "user-agent": "GitHub-Hookshot/1",
        "x-custom": "café, é",
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"x bad": "1"},
        {"x-value": "a\x00b"},
        {"x-value": "a\nb"},
        {"x-large": "é" * 9_000},
        {f"x-{number}": "1" for number in range(101)},
    ],
)
def test_headers_that_could_not_be_passed_on_are_refused(headers: Headers) -> None:
    with pytest.raises(BadHeaders):
        kept_headers(headers)


@given(st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=60)), max_size=20))
def test_whatever_is_kept_is_small_and_can_be_sent(raw: list[tuple[bytes, bytes]]) -> None:
    try:
        kept = kept_headers(readable(raw))
    except BadHeaders:
        return
    assert build_head(kept.items()) is not None
    assert "authorization" not in kept
