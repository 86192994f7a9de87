"""Ids sort by time and keep their layout; signatures are those of Standard Webhooks."""

import hmac
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from redrive.core.ids import uuid7
from redrive.core.sign import Signer, decode_secret, new_secret, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, TIME, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
KEY = decode_secret(SECRET)
OTHER = bytes(range(24))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_a_uuid7_has_its_layout(unix_ms: int, chance: bytes) -> None:
    made = uuid7(unix_ms, chance)
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert made.int >> 80 == unix_ms
    assert made.int & (2**62 - 1) == int.from_bytes(chance, "big") & (2**62 - 1)


def test_the_uuid7_of_the_rfc() -> None:
    made = uuid7(0x017F22E279B0, bytes.fromhex("0cc3" + "18c4dc0c0c07398f"))
    assert str(made) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**48 - 2), st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_a_later_id_sorts_after_an_earlier_one(unix_ms: int, one: bytes, other: bytes) -> None:
    assert uuid7(unix_ms, one) < uuid7(unix_ms + 1, other)


@pytest.mark.parametrize(("unix_ms", "size"), [(-1, 10), (2**48, 10), (0, 9), (0, 11)])
def test_what_does_not_fit_an_id_is_refused(unix_ms: int, size: int) -> None:
    with pytest.raises(ValueError, match="must"):
        uuid7(unix_ms, bytes(size))


def test_the_check_vector_of_standard_webhooks() -> None:
    assert sign([KEY], ID, TIME, BODY) == SIGNATURE


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=24, max_size=64), st.text(max_size=50))
def test_the_reference_library_makes_the_same_signature(random: bytes, body: str) -> None:
    from datetime import UTC, datetime

    secret = new_secret(random)
    theirs = Webhook(secret).sign(ID, datetime.fromtimestamp(TIME, UTC), body)
    assert sign([decode_secret(secret)], ID, TIME, body.encode()) == theirs


@given(random=st.binary(max_size=200), body=st.binary(max_size=200))
def test_a_signature_is_the_hmac_of_the_standard_library(random: bytes, body: bytes) -> None:
    digest = hmac.digest(random, f"{ID}.{TIME}.".encode() + body, "sha256")
    assert sign([random], ID, TIME, body) == "v1," + b64encode(digest).decode()


def test_a_signer_keeps_nothing_of_a_message_for_the_next() -> None:
    signer = Signer([KEY, OTHER])
    assert len({signer.sign(ID, TIME, BODY), signer.sign(ID, TIME, BODY), sign([KEY, OTHER], ID, TIME, BODY)}) == 1
    assert signer.sign(ID, TIME, b"other") != signer.sign(ID, TIME, BODY)


def test_during_a_rotation_both_secrets_sign() -> None:
    both = sign([KEY, OTHER], ID, TIME, BODY)
    assert both.split()[0] == SIGNATURE
    for secret in (KEY, OTHER):
        assert verify([secret], ID, TIME, BODY, both, now=TIME)
    assert verify([OTHER, KEY], ID, TIME, BODY, SIGNATURE, now=TIME)


def test_only_the_right_message_at_the_right_time_verifies() -> None:
    assert verify([KEY], ID, TIME, BODY, f"v1a,x {SIGNATURE}", now=TIME + 300)
    assert not verify([KEY], ID, TIME, BODY, SIGNATURE, now=TIME + 301)
    assert not verify([KEY], ID, TIME, BODY, SIGNATURE, now=TIME - 301)
    assert not verify([KEY], ID, TIME, BODY + b" ", SIGNATURE, now=TIME)
    assert not verify([KEY], "msg_other", TIME, BODY, SIGNATURE, now=TIME)
    assert not verify([OTHER], ID, TIME, BODY, SIGNATURE, now=TIME)
    assert not verify([KEY], ID, TIME, BODY, "", now=TIME)
    assert not verify([KEY], ID, TIME, BODY, "v1,\ud800é", now=TIME)


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=24, max_size=64))
def test_a_secret_survives_its_text(random: bytes) -> None:
    assert decode_secret(new_secret(random)) == random


@pytest.mark.parametrize("size", [0, 23, 65])
def test_a_secret_of_the_wrong_length_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="24 to 64"):
        new_secret(bytes(size))


@pytest.mark.parametrize("text", ["whsec_", "whsec_CANARY!", "whsec_CANARY", "CANARYé", "CANARY" * 100, "CANA RY=="])
def test_a_broken_secret_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match="a signing secret") as caught:
        decode_secret(text)
    assert "CANA" not in str(caught.value)
    assert caught.value.__cause__ is None
