"""What entries of the audit tell, line by line."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.web.audit_words import MAX_CHANGES_SHOWN, Line, changes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("action", "before", "after", "told"),
    [
        (
            "org.update",
            {"name": "acme", "limits": {"burst": 5}},
            {"name": "acme", "limits": {"burst": 50}},
            [Line("limits.burst", "5", "50", compared=True)],
        ),
        # What was asked for is no whole: what it lacks has stayed.
        (
            "user.update",
            {"name": "Ada", "role": "ADMIN", "suspended": False},
            {"role": "STAFF"},
            [Line("role", "ADMIN", "STAFF", compared=True)],
        ),
        ("policy.put", {"name": "a", "cap_s": 1}, {"name": "a"}, [Line("cap_s", "1", None, compared=True)]),
        # Not the same thing at two times: each is named.
        (
            "dead_letter.retry",
            {"state": "open"},
            {"operation_id": "7"},
            [Line("state", "open", None, compared=False), Line("operation_id", None, "7", compared=False)],
        ),
        ("key.create", None, {"name": "shop", "scope": None}, [Line("name", None, "shop", compared=False)]),
        ("event.ack", None, None, []),
    ],
)
def test_an_entry_tells_what_changed(action: str, before: Any, after: Any, told: list[Line]) -> None:
    assert changes(action, before, after) == (told, 0)


def test_what_looks_secret_is_hidden_and_integers_stay_whole() -> None:
    (secret, big), _ = changes("x", None, {"api_key": "sk_live_123", "n": 9_007_199_254_740_993_001})
    assert secret.is_now == "[redacted]"
    assert big.is_now == "9007199254740993001"


def test_of_many_changes_the_first_are_told_and_the_rest_counted() -> None:
    lines, more = changes("policy.put", {"n": 0, **{f"f{n}": 1 for n in range(40)}}, {"n": 0})
    assert (len(lines), more) == (MAX_CHANGES_SHOWN, 40 - MAX_CHANGES_SHOWN)


@given(before=JSON, after=JSON)
def test_any_two_values_can_be_told_apart(before: object, after: object) -> None:
    lines, more = changes("anything", before, after)
    assert more >= 0
    assert all(line.was is not None or line.is_now is not None for line in lines)
