"""What pages of long bodies cost: looked through in a thread, outside of transactions, and no more than is shown."""

import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from api.conftest import URL, Api
from redrive.api import evidence, shapes
from redrive.api.context import ApiContext
from redrive.core.decide import Die, Reason
from redrive.core.outcome import Category, Failure
from redrive.core.ports import Exchange, Job
from redrive.store.db import Session
from redrive.store.keys import Caller
from redrive.web import bodies, json_text
from redrive.web.bodies import MAX_ANSWERS_BYTES, shares
from redrive.web.detail import MAX_EDITED_BYTES
from redrive.web.timeline import MAX_TRIES_SHOWN
from support.page import read

TASKS = 6
LONG = json.dumps([{"n": n, "text": f"answer {n}"} for n in range(1_700)]).encode()
SHORT = b'{"error": "closed on Sundays"}'


@dataclass
class Looked:
    """Sizes of what was looked through for secrets; by which threads; and whether a transaction was open meanwhile."""

    payloads: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    open: int = 0
    was_open: bool = False

    def noting(self, sizes: list[int], really: Callable[..., Any]) -> Callable[..., Any]:
        def look(body: bytes, **options: Any) -> Any:
            sizes.append(len(body))
            self.threads.add(threading.get_ident())
            self.was_open |= self.open > 0
            return really(body, **options)

        return look

    @property
    def is_out_of_the_way(self) -> bool:
        return threading.get_ident() not in self.threads and not self.was_open


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    noted, tenant = Looked(), ApiContext.tenant

    @asynccontextmanager
    async def counted(context: ApiContext, caller: Caller) -> AsyncIterator[Session]:
        async with tenant(context, caller) as session:
            noted.open += 1
            try:
                yield session
            finally:
                noted.open -= 1

    monkeypatch.setattr(ApiContext, "tenant", counted)
    monkeypatch.setattr(bodies, "redacted_payload", noted.noting(noted.payloads, evidence.redacted_payload))
    monkeypatch.setattr(shapes, "redacted_answer", noted.noting(noted.answers, evidence.redacted_answer))
    return noted


async def _die(api: Api, job: Job, answer: bytes) -> None:
    failure = Failure(Category.SERVER_ERROR, "HTTP 500", status_code=500)
    exchange = Exchange(URL, None, 500, None, answer)
    await api.settle(job, failure, Die(Reason.EXHAUSTED, Category.SERVER_ERROR), exchange)


async def test_pages_of_a_task_are_told_in_a_thread_when_their_transaction_is_over(api: Api, looked: Looked) -> None:
    await api.endpoint()
    letter = await api.dead_task(payload={"n": 1})
    for path in (f"/app/admin/dlq/{letter['id']}", f"/integrations/logs/{letter['id']}"):
        looked.threads.clear()
        assert (await read(api.owner, path)).status == 200
        assert looked.threads
        assert looked.is_out_of_the_way


async def test_the_page_of_a_run_is_told_in_a_thread_when_its_transaction_is_over(api: Api, looked: Looked) -> None:
    steps = [{"name": "nap", "kind": "wait", "wait_s": 60}]
    assert (await api.owner.request("PUT", "/v1/workflows/nap", {"steps": steps})).status == 200
    begun = await api.owner.post("/v1/workflows/nap/runs", {"input": {"n": 1}})
    assert (await read(api.owner, f"/runs/{begun.json['run_id']}")).status == 200
    assert looked.threads
    assert looked.is_out_of_the_way


async def test_the_editor_s_text_is_laid_out_in_a_thread(
    api: Api, looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.endpoint()
    letter = await api.dead_task(payload={"n": 1})
    monkeypatch.setattr(bodies, "pretty", looked.noting([], json_text.pretty))
    assert (await api.owner.get(f"/app/admin/dlq/{letter['id']}/payload")).status == 200
    assert looked.threads
    assert looked.is_out_of_the_way


async def test_the_answers_of_an_event_s_tasks_share_one_budget_and_each_newest_comes_first(
    api: Api, looked: Looked
) -> None:
    for number in range(TASKS):
        await api.endpoint(name=f"endpoint {number}")
    event_id = await api.event(payload={"n": 1})
    jobs = await api.claim()
    assert len(jobs) == TASKS
    for number, job in enumerate(jobs):
        await _die(api, job, SHORT if number == 0 else LONG)
    page = await read(api.owner, f"/events/{event_id}")
    assert page.status == 200
    assert sorted(looked.answers) == [len(SHORT), len(LONG), len(LONG)]
    assert sum(looked.answers) <= MAX_ANSWERS_BYTES
    assert looked.is_out_of_the_way
    assert page.text.count("are left out: others are as much as is shown at once.") == TASKS - 3


async def test_a_payload_is_looked_through_once_for_who_may_not_read_it_and_not_where_it_is_shown_whole(
    api: Api, looked: Looked
) -> None:
    await api.endpoint()
    letter = await api.dead_task(payload={"text": "x" * bodies.MAX_BODY_CHARS})
    page = await read(api.viewer, f"/events/{letter['event_id']}")
    assert len(looked.payloads) == 1
    assert "Its body is the payload of this page." in page.text
    assert (await read(api.owner, f"/events/{letter['event_id']}")).status == 200
    assert len(looked.payloads) == 1


async def test_answers_that_are_not_shown_are_not_looked_through(api: Api, looked: Looked) -> None:
    await api.endpoint()
    await api.event()
    (job,) = await api.claim()
    for _ in range(MAX_TRIES_SHOWN):
        await api.fail(job, retry_in_s=0)
        (job,) = await api.claim()
    await api.fail(job)
    assert (await read(api.owner, f"/events/{job.event_id}")).status == 200
    assert len(looked.answers) == 10
    assert (await read(api.owner, f"/integrations/logs/{job.id}?attempts=all")).status == 200
    assert len(looked.answers) == 10 + MAX_TRIES_SHOWN


async def test_of_long_edits_those_are_shown_that_a_page_has_room_for(api: Api, looked: Looked) -> None:
    await api.endpoint()
    letter = await api.dead_task(payload={"n": 1})
    sizes = []
    for size in (10, MAX_EDITED_BYTES // 2, MAX_EDITED_BYTES // 2):
        payload = {"text": "x" * size}
        given = {"payload": payload, "now": True}
        assert (await api.owner.post(f"/v1/dead-letters/{letter['id']}/replay", given)).status == 200
        (job,) = await api.claim()
        await api.die(job)
        sizes.append(len(json.dumps(payload, separators=(",", ":"))))
    for path in (f"/app/admin/dlq/{letter['id']}", f"/events/{letter['event_id']}"):
        looked.payloads.clear()
        page = await read(api.owner, path)
        assert len([size for size in looked.payloads if size >= sizes[1]]) == 2
        assert "An edited payload that is left out here" in page.text


@pytest.mark.parametrize(
    ("total", "sizes", "given"),
    [
        (10, [[4, 4], [4, 4]], [4, 4]),
        (12, [[4, 4], [4, 4]], [8, 4]),
        (10, [[20, 1], [3]], [0, 3]),  # what is left out leaves out all that is older
        (5, [[9], [], [0, 0, 5]], [0, 0, 5]),
        (5, [], []),
    ],
)
def test_a_budget_is_given_out_newest_first_over_all_rows(total: int, sizes: list[list[int]], given: list[int]) -> None:
    assert shares(total, sizes) == given
