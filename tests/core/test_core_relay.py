"""The messages between an edge and its hubs: each side reads what the other writes, and nothing else."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.outcome import Category
from redrive.core.relay import (
    MAX_ANSWER_BYTES,
    MAX_HUB_MESSAGE_BYTES,
    Answered,
    BadMessage,
    Delivery,
    Hello,
    Unanswered,
    Welcome,
    encode,
    from_edge,
    from_hub,
)

ids = st.uuids()
counts = st.integers(0, 2**31 - 1)
texts = st.text(max_size=100)
headers = st.dictionaries(texts, texts, max_size=5)
hub_messages = st.one_of(
    st.builds(Hello, texts),
    st.builds(Answered, ids, counts, st.integers(100, 999), headers, st.binary(max_size=200), st.booleans()),
    st.builds(Unanswered, ids, counts, texts, st.sampled_from([Category.NETWORK, Category.TIMEOUT]), st.booleans()),
)
edge_messages = st.one_of(
    st.builds(Welcome, texts, st.booleans()),
    st.builds(
        Delivery, ids, counts, ids, texts, counts, st.floats(0.001, 300), headers, texts, st.binary(max_size=200)
    ),
)
RESULT: dict[str, Any] = {
    "type": "result",
    "id": str(UUID(int=7)),
    "fence": 1,
    "status": 200,
    "headers": {},
    "body": "",
    "truncated": False,
}
FAILED: dict[str, Any] = {
    "type": "result",
    "id": str(UUID(int=7)),
    "fence": 1,
    "error": "refused",
    "category": "network",
    "sent": False,
}

WRONG_RESULTS: list[dict[str, Any]] = [
    {"id": "seven"},
    {"id": 7},
    {"fence": -1},
    {"fence": True},
    {"fence": 2**40},
    {"status": 99},
    {"status": "200"},
    {"body": "not base64!"},
    {"body": "AAAA" * (MAX_ANSWER_BYTES // 3 + 1)},
    {"headers": {"a": 1}},
    {"headers": []},
    {"headers": {str(number): "" for number in range(201)}},
    {"truncated": 0},
]
WRONG_FAILURES: list[dict[str, Any]] = [{"category": "client_error"}, {"category": None}, {"error": 7}, {"sent": "no"}]


@given(hub_messages)
def test_an_edge_reads_what_a_hub_writes(message: Hello | Answered | Unanswered) -> None:
    assert from_hub(encode(message)) == message


@given(edge_messages)
def test_a_hub_reads_what_an_edge_writes(message: Welcome | Delivery) -> None:
    assert from_edge(encode(message)) == message


@given(st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda inner: st.dictionaries(texts, inner)))
def test_anything_else_is_a_bad_message(value: Any) -> None:
    for read in (from_hub, from_edge):
        with pytest.raises(BadMessage):
            read(json.dumps(value))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 10_000,
        "\x00",
        json.dumps({"type": "hello", "version": 2, "forward": "x"}),
        json.dumps({"type": "hello", "version": 1, "forward": "x" * 3_000}),
        " " * (MAX_HUB_MESSAGE_BYTES + 1),
        *(json.dumps({**RESULT, **change}) for change in WRONG_RESULTS),
        *(json.dumps({**FAILED, **change}) for change in WRONG_FAILURES),
    ],
)
def test_what_a_hub_may_not_say_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(BadMessage) as bad:
        from_hub(text)
    assert len(str(bad.value)) < 100


def test_secrets_stay_out_of_what_is_printed_of_a_message() -> None:
    delivery = Delivery(UUID(int=1), 1, UUID(int=2), "t", 1, 1.0, {"a": "canary"}, "text/plain", b"canary")
    answered = Answered(UUID(int=1), 1, 200, {"a": "canary"}, b"canary", False)
    assert "canary" not in f"{delivery!r} {answered!r}"
