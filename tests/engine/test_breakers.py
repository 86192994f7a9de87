"""What comes back opens a breaker or not: without a database, whose part an obliging one plays."""

from collections.abc import Coroutine
from uuid import UUID

import pytest

from redrive.core.breaker import CLOSED, DEFAULT_RULES, OPEN, Breaker, BreakerState, Ramping
from redrive.core.outcome import Category, Failure, Success
from redrive.core.ports import HTTP_QUEUE, Place
from redrive.engine.agenda import Agenda
from redrive.engine.breakers import Breakers

PLACE = Place(HTTP_QUEUE, UUID(int=1), UUID(int=2))
AT = 1_000.0


class Obliging:
    """core.ports.EndpointStates where nobody else is first."""

    async def open_breaker(self, org_id: UUID, endpoint_id: UUID, *, taken_for: BreakerState, reason: str) -> bool:
        return True

    async def begin_ramp(self, org_id: UUID, endpoint_id: UUID) -> bool:
        return True

    async def close_breaker(self, org_id: UUID, endpoint_id: UUID) -> bool:
        return True


def never_written(work: Coroutine[None, None, None]) -> None:
    work.close()


@pytest.mark.parametrize("now_it_is", [Ramping(AT), CLOSED], ids=["by hand", "by another address"])
def test_tries_from_before_a_breaker_was_lifted_say_nothing_of_the_time_after(now_it_is: Breaker) -> None:
    agenda = Agenda(DEFAULT_RULES)
    breakers = Breakers(Obliging(), agenda, DEFAULT_RULES, begin=never_written)
    outlet = agenda.outlet(PLACE)
    outlet.set_breaker(OPEN, AT - 10)
    outlet.set_breaker(now_it_is, AT)
    for n in range(60):  # they hung in the receiver that was away
        breakers.note(outlet, Failure(Category.TIMEOUT, "late"), took_s=30.0, at=AT + 2 + n / 10, is_retry=False)
    breakers.note(outlet, Success(200), took_s=0.1, at=AT + 9, is_retry=False)
    assert outlet.breaker == now_it_is


def test_tries_from_after_it_open_it_again() -> None:
    agenda = Agenda(DEFAULT_RULES)
    breakers = Breakers(Obliging(), agenda, DEFAULT_RULES, begin=never_written)
    outlet = agenda.outlet(PLACE)
    for n in range(60):
        breakers.note(outlet, Failure(Category.TIMEOUT, "late"), took_s=1.0, at=AT + n / 10, is_retry=False)
    assert outlet.breaker is OPEN
