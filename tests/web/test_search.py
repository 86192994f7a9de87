"""Searches as people type them, and as addresses say them."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.web.search import Search, asked, moment, quoted, typed

NAMES = ("type", "endpoint", "error", "since", "group")
NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)

values = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters='"'), min_size=1, max_size=60
).filter(lambda text: text == text.strip() and text)


def test_qualifiers_and_text_are_told_apart() -> None:
    found = typed("type:invoice.* endpoint:billing error:timeout since:2h refused by gateway", NAMES)
    assert found.terms == {"type": "invoice.*", "endpoint": "billing", "error": "timeout", "since": "2h"}
    assert found.text == "refused by gateway"


def test_a_value_in_quotes_may_hold_spaces() -> None:
    assert typed('endpoint:"our billing" late', NAMES) == Search({"endpoint": "our billing"}, "late")


def test_the_words_of_the_api_are_taken_too() -> None:
    assert typed("event_type:order.paid category:network", NAMES).terms == {"type": "order.paid", "error": "network"}


def test_a_qualifier_that_is_none_is_text_and_is_told() -> None:
    found = typed("colour:red", NAMES)
    assert found.text == "colour:red"
    assert found.unknown == ("colour",)


def test_words_in_quotes_are_looked_for_as_they_stand() -> None:
    assert typed('"HTTP 500" error:network', NAMES) == Search({"error": "network"}, "HTTP 500")


def test_an_address_in_a_text_is_no_qualifier() -> None:
    assert typed("https://example.com/x", NAMES) == Search({}, "https://example.com/x")


@given(terms=st.dictionaries(st.sampled_from(NAMES), values, max_size=5), text=values | st.just(""))
def test_what_an_address_says_is_what_was_searched_for(terms: dict[str, str], text: str) -> None:
    search = Search({name: terms[name] for name in NAMES if name in terms}, "")
    address = search.address("/list")
    again, is_plain = asked(dict(parse_qsl(urlsplit(address).query)), NAMES)
    assert again == search
    assert is_plain


@given(name=st.sampled_from(NAMES), value=values)
def test_a_term_typed_back_is_the_same_term(name: str, value: str) -> None:
    assert typed(quoted(name, value), NAMES).terms == {name: value}


@given(st.text(max_size=300))
def test_whatever_is_typed_becomes_one_plain_address(text: str) -> None:
    """The page sends a browser to the plain address once, never in circles."""
    first, _ = asked({"q": text}, NAMES)
    again, is_plain = asked(dict(parse_qsl(urlsplit(first.address("/x")).query)), NAMES)
    assert is_plain
    assert again.terms == first.terms


def test_a_qualifier_in_the_box_is_made_a_parameter() -> None:
    search, is_plain = asked({"q": "type:a b", "error": "timeout"}, NAMES)
    assert not is_plain
    assert search.address("/x") == "/x?type=a&error=timeout&q=b"


def test_taking_a_term_away_leaves_the_others() -> None:
    search = Search({"type": "a", "error": "timeout"}, "words")
    assert search.without("type").address("/x") == "/x?error=timeout&q=words"
    assert search.without("q").address("/x") == "/x?type=a&error=timeout"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("45s", NOW - timedelta(seconds=45)),
        ("30m", NOW - timedelta(minutes=30)),
        ("2h", NOW - timedelta(hours=2)),
        ("3 d", NOW - timedelta(days=3)),
        ("1w", NOW - timedelta(weeks=1)),
        ("2026-11-15", datetime(2026, 11, 15, tzinfo=UTC)),
        ("2026-11-15T09:30Z", datetime(2026, 11, 15, 9, 30, tzinfo=UTC)),
        ("2026-11-15T09:30+02:00", datetime(2026, 11, 15, 7, 30, tzinfo=UTC)),
        ("yesterday", None),
        ("999999d", None),
        ("-1h", None),
    ],
)
def test_times_as_people_write_them(text: str, at: datetime | None) -> None:
    assert moment(text, NOW) == at


def test_until_a_day_means_to_its_end() -> None:
    assert moment("2026-11-15", NOW, end=True) == datetime(2026, 11, 16, tzinfo=UTC)


@given(st.text(max_size=40))
def test_no_text_is_a_time_by_accident_or_breaks(text: str) -> None:
    found = moment(text, NOW)
    assert found is None or found.tzinfo is not None
