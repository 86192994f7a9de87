"""What somebody who watches is shown: what they asked for, each transition once, and honest numbers of the rest."""

import json
from itertools import islice

import msgspec
from hypothesis import given
from hypothesis.strategies import builds, dictionaries, integers, lists, none, sampled_from, text, tuples

from redrive.core.watching import MAX_NOTIFY_BYTES, WORDS, Wish, word_of, word_of_act
from redrive.observe.watch import MAX_LINES_PER_S, Gallery

ID = "0" * 32
names = none() | text(max_size=5)
wishes = builds(
    Wish,
    org_id=names,
    event_id=names,
    correlation_id=names,
    event_type=names,
    endpoint_ids=none() | lists(text(max_size=5), max_size=3).map(tuple),
    words=none() | lists(sampled_from(WORDS), min_size=1, max_size=3).map(tuple),
)


def watched(wish: Wish | None = None) -> Gallery:
    gallery = Gallery()
    gallery.hear(json.dumps({"id": ID, "wish": (wish or Wish()).as_spec()}))
    return gallery


@given(wish=wishes)
def test_a_wish_arrives_as_it_was_sent(wish: Wish) -> None:
    assert Wish.from_spec(msgspec.json.decode(msgspec.json.encode(wish.as_spec()))) == wish


def test_a_wish_is_matched_in_all_its_parts() -> None:
    facts = {"org_id": "o", "event_id": "e", "event_type": "invoice.paid", "endpoint_id": "p", "correlation_id": "c"}
    assert Wish().wants("dead", {})
    assert Wish("o", "e", "c", "invoice.*", ("p", "q"), ("dead",)).wants("dead", facts)
    for wrong in (
        Wish(org_id="x"),
        Wish(event_id="x"),
        Wish(correlation_id="x"),
        Wish(event_type="invoice.?aid"),
        Wish(event_type="order.*"),
        Wish(endpoint_ids=("x",)),
        Wish(words=("failed",)),
    ):
        assert not wrong.wants("dead", facts)


def test_each_transition_is_told_by_one_line() -> None:
    moves = [
        (None, "received"),
        ("received", "queued"),
        ("queued", "delivered"),
        ("queued", "queued"),
        ("queued", "failed"),
    ]
    words = [word_of("status_transition", {"old_status": old, "new_status": new}) for old, new in moves]
    assert words == ["accepted", None, "delivered", None, None]
    assert [
        word_of(event, {}) for event in ("delivery_failure", "event_failed", "retry_attempted", "claim_failed")
    ] == [
        "failed",
        "dead",
        None,
        None,
    ]
    assert {word_of_act("dead_letter.retry"), word_of_act("endpoint.pause")} == {"redriven", "acted"} <= set(WORDS)


@given(
    told=lists(
        tuples(
            sampled_from(["delivery_failure", "event_failed"]),
            dictionaries(text(max_size=8), text(max_size=2000), max_size=5),
        ),
        max_size=30,
    ),
    times=integers(1, 12),
)
def test_what_is_gathered_is_sent_in_small_pieces_and_the_rest_is_counted(
    told: list[tuple[str, dict[str, object]]], times: int
) -> None:
    gallery = watched()
    for event, facts in told * times:
        gallery.show(event, facts)
    sent = [(name, text) for name, text in gallery.batches()]
    assert {name for name, _ in sent} == {ID}  # also where there is nothing: to say who is there
    assert all(len(text.encode()) < MAX_NOTIFY_BYTES + 1 for _, text in sent)
    batches = [json.loads(text) for _, text in sent]
    shown = sum(len(batch["lines"]) for batch in batches)
    assert shown <= MAX_LINES_PER_S * 2  # a second may pass between two of them
    assert shown + sum(batch["missed"] for batch in batches) == len(told) * times
    assert list(gallery.batches()) == []


def test_a_line_of_any_size_and_any_text_is_shown_or_counted() -> None:
    """One that fits by a hair, and half a character."""
    most = {f"n{place}": "x" * 300 for place in range(24)}
    for more in range(300):
        gallery = watched()
        gallery.show("event_failed", most | {"more": "y" * more})
        gallery.show("event_failed", {"error": "\udcff"})
        sent = [json.loads(text) for _, text in islice(gallery.batches(), 5)]
        assert sum(len(batch["lines"]) + batch["missed"] for batch in sent) == 2
        assert len(sent) < 4


def test_while_nobody_watches_nothing_is_kept() -> None:
    gallery = Gallery()
    assert not gallery.is_open
    for unreadable in ("", "{", '{"id": 5}', '{"id": "x", "wish": {"unheard": 1}}', '{"id": "../../x"}'):
        gallery.hear(unreadable)
        assert not gallery.is_open
    gallery = watched(Wish(words=("dead",)))
    assert gallery.is_open is True
    gallery.show("delivery_failure", {})
    gallery.hear(json.dumps({"id": ID, "leaves": True}))
    assert list(gallery.batches()) == []
    assert [gallery.is_open] == [False]
