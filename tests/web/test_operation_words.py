"""Operations in words."""

import json
from typing import Any
from uuid import UUID

import pytest

from redrive.web.operation_words import filter_words, headline, list_address, stages_of

BILLING = UUID(int=7)


@pytest.mark.parametrize(
    ("subject", "total", "is_collected", "said"),
    [
        ("dead_letters", 1, True, "Retry 1 dead letter"),
        ("retry_queue", 3_300, True, "Retry 3,300 entries"),
        ("dead_letters", 0, False, "Retry dead letters"),  # they are being looked for
        ("dead_letters", 0, True, "Retry 0 dead letters"),
    ],
)
def test_the_headline_says_what_is_done_to_how_many(subject: str, total: int, is_collected: bool, said: str) -> None:
    assert headline("retry", subject, total, is_collected) == said


def test_a_filter_reads_and_links_as_the_list_has_it() -> None:
    chosen = {"endpoint_id": str(BILLING), "category": "timeout", "event_type": "invoice.*", "q": "refused"}
    assert filter_words(chosen, {BILLING: "billing"}) == [
        ("endpoint", "billing"),
        ("error", "Timeout"),
        ("type", "invoice.*"),
        ("text", "refused"),
    ]
    address = f"endpoint={BILLING}&error=timeout&type=invoice.%2A&q=refused"
    assert list_address("dead_letters", chosen) == f"/integrations/logs/dead-letter-queue?{address}"
    assert (filter_words(None, {}), list_address("retry_queue", None)) == ([], None)  # ids were given


@pytest.mark.parametrize(
    ("state", "stage", "told"),
    [
        ("running", 0, ["now", "next", "next"]),
        ("paused", 1, ["done", "now", "next"]),
        ("cancelled", 1, ["done", "next", "next"]),
        ("completed", 2, ["done", "done", "done"]),
    ],
)
def test_stages_tell_where_a_canary_stands(state: str, stage: int, told: list[str]) -> None:
    row: Any = {"canary": json.dumps({"stages": [1, 25]}), "state": state, "stage": stage, "total": 30}
    stages = stages_of(row)
    assert [each.state for each in stages] == told
    assert [(each.percent, each.items) for each in stages] == [(1, 1), (25, 8), (100, 30)]
