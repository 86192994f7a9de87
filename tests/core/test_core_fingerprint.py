"""One failure keeps one fingerprint, another gets another, and hostile messages cost no more than long ones."""

import re
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.fingerprint import fingerprint, normalise


def of(message: str) -> str:
    return fingerprint("webhook", "billing", "server_error", message)


@settings(max_examples=50, deadline=None)
@given(
    st.uuids(),
    st.integers(0, 10**9),
    st.ip_addresses(v=4),
    st.ip_addresses(v=6),
    st.datetimes(),
    st.text("abc xyz", max_size=9),
)
def test_what_differs_between_occurrences_does_not_count(
    id: object, number: int, ip: object, ip6: object, time: object, name: str
) -> None:
    told = (
        f"Order {id} #{number}: no answer from {ip}:80 or {ip6} since {time} "
        f'for "{name}" at https://api.example.com/v1/pay?key={number}&x={id}'
    )
    first = (
        "ORDER 0190a7e2-aaaa-7bbb-8ccc-ddddeeeeffff #7:  no answer from 10.0.0.1:80 or fe80::1 since "
        '2024-05-06 07:08:09.1 for "b"\n at https://api.example.com/v1/pay?key=1'
    )
    assert of(told) == of(first)


@pytest.mark.parametrize(
    ("message", "normalised"),
    [
        ("HTTP 503  Service\tUnavailable", "http <n> service unavailable"),
        ("took 30.5s", "took <n>s"),
        ("balance -5 or 12345678 or 1234567890123456789", "balance <n> or <n> or <n>"),
        ("at 2024-05-06T07:08:09Z and 2024-05-06", "at <time> and <time>"),
        ("at 07:08:09", "at <time>"),
        ("object at 0x7f3a", "object at <n>"),
        ("commit deadbeef01", "commit <n>"),
        ("charge ch_3nka82jd92kdka failed", "charge <n> failed"),
        ("can't parse 'abc'", "can't parse <str>"),
        ("peer 10.0.0.1:8080 and [::1]:80", "peer <ip> and [<ip>]:<n>"),
        ("https://x.org/a?b=c#d", "https://x.org/a?<query>"),
        ("", ""),
    ],
)
def test_a_message_is_normalised(message: str, normalised: str) -> None:
    assert normalise(message) == normalised


def test_another_kind_place_class_or_error_is_another_failure() -> None:
    prints = {
        fingerprint("webhook", "billing", "timeout", "slow"),
        fingerprint("step", "billing", "timeout", "slow"),
        fingerprint("webhook", "crm", "timeout", "slow"),
        fingerprint("webhook", "billing", "network", "slow"),
        fingerprint("webhook", "billing", "timeout", "refused"),
        fingerprint("webhookbilling", "", "timeout", "slow"),
    }
    assert len(prints) == 6


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text_has_a_fingerprint_of_16_hex_characters(message: str) -> None:
    assert re.fullmatch("[0-9a-f]{16}", fingerprint(message, message, "unknown", message))
    assert of(message) == of(message)


def test_a_fingerprint_stays_the_same_across_processes_and_versions() -> None:
    assert of("HTTP 503") == "36dd2a1f98847c06"


@pytest.mark.parametrize(
    "part", ["a", "1", "1:", "::", "f", '"', "'", "`", "1.", "a://", "0x", "-", "_", "2024-01-01", "1.1.1.1:", " "]
)
def test_a_hostile_message_costs_little(part: str) -> None:
    message = part * (1_000_000 // len(part))
    began = process_time()
    of(message)
    assert process_time() - began < 1.0  # CPU seconds; a pattern that backtracks takes many
