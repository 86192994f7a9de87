"""The breakers of the endpoints that a worker tries: opened by what comes back, moved on by time.

What follows is core.breaker's; the state that all workers share is the store's (core.ports.EndpointStates). Any worker
may open a breaker; from then on the one that owns the endpoint moves it on. Used by engine.worker.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import assert_never

import structlog

from redrive.core.breaker import (
    CLOSED,
    Breaker,
    BreakerRules,
    BreakerState,
    Closed,
    Open,
    Ramping,
    Verdict,
    after_time,
    after_try,
    breaker_verdict,
    name_of,
)
from redrive.core.brief import brief
from redrive.core.outcome import Failure, Outcome
from redrive.core.ports import NO_ENDPOINT, EndpointStates
from redrive.engine.agenda import Agenda
from redrive.engine.outlet import Outlet
from redrive.observe.watch import Watched

log = Watched(structlog.get_logger("redrive.breakers"))


class Breakers:
    def __init__(
        self,
        states: EndpointStates,
        agenda: Agenda,
        rules: BreakerRules,
        *,
        begin: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._states = states
        self._agenda = agenda
        self._rules = rules
        self._begin = begin

    def note(
        self,
        outlet: Outlet,
        outcome: Outcome,
        took_s: float,
        at: float,
        *,
        is_retry: bool,
        expedited: bool = False,
    ) -> None:
        """A try has ended. What handlers do is no endpoint's health.

        `expedited`: it was made whoever owns the endpoint, whose breaker may be open though this worker knows nothing.
        """
        if outlet.place.id == NO_ENDPOINT:
            return
        if at - took_s < outlet.breaker_since and not expedited:
            return  # begun before: it tells of another time
        verdict = breaker_verdict(outcome)
        if verdict is Verdict.SUCCEEDED:
            outlet.succeeded(is_retry)
            if outlet.breaker is CLOSED:
                if expedited:
                    self._begin(self._end_trickle(outlet, "a person's retry came through", at))
                return
        elif verdict is Verdict.FAILED:
            outlet.failed(at)
        outlet.catch_up(at)
        following = after_try(outlet.breaker, verdict, outlet.window, at, self._rules)
        if following is not outlet.breaker:
            reason = _reason(outlet, outcome)
            self._begin(self._tell(outlet, self._move(outlet, following, at), following, reason, at))

    async def tick(self, at: float) -> None:
        """What follows from the time alone, for the endpoints that are ours."""
        for outlet in self._agenda.guarded(at):
            following = after_time(outlet.breaker, at, self._rules)
            if following is not outlet.breaker:
                await self._tell(outlet, self._move(outlet, following, at), following, "", at)

    def _move(self, outlet: Outlet, following: Breaker, at: float) -> BreakerState:
        """Here at once; what it was before is answered."""
        before = name_of(outlet.breaker)
        outlet.set_breaker(following, at)
        self._agenda.arrange(outlet, at)
        return before

    async def _tell(self, outlet: Outlet, before: BreakerState, following: Breaker, reason: str, at: float) -> None:
        """For all, when it is written. Where another was first, what it did is learned anew."""
        if await self._is_written(outlet, before, following, reason):
            return
        outlet.owned_until = 0.0
        outlet.counted = True
        self._agenda.arrange(outlet, at)

    async def _is_written(self, outlet: Outlet, before: BreakerState, following: Breaker, reason: str) -> bool:
        try:
            changed = await self._write(outlet, before, following, reason)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the database may be away: the state it has rules
            log.warning("breaker_failed", endpoint_id=str(outlet.place.id), error=brief(error))
            return False
        if not changed:
            return False
        facts = {
            "org_id": str(outlet.place.org_id),
            "endpoint_id": str(outlet.place.id),
            "old_state": before.value,
            "new_state": name_of(following).value,
        }
        if BreakerState.CLOSED in (before, name_of(following)):
            log.warning("breaker_moved", **facts, why=reason or None)
        else:  # again and again, where four of five fail
            log.info("breaker_wavered", **facts, why=reason or None)
        return True

    async def _end_trickle(self, outlet: Outlet, reason: str, at: float) -> None:
        """A try that a person asked for came through. Whoever owns the endpoint learns it when it looks again."""
        await self._is_written(outlet, BreakerState.OPEN, Ramping(at), reason)

    async def _write(self, outlet: Outlet, before: BreakerState, following: Breaker, reason: str) -> bool:
        _, org_id, endpoint_id = outlet.place
        match following:
            case Open():
                return await self._states.open_breaker(org_id, endpoint_id, taken_for=before, reason=reason)
            case Ramping():
                return await self._states.begin_ramp(org_id, endpoint_id)
            case Closed():
                return await self._states.close_breaker(org_id, endpoint_id)
        assert_never(following)


def _reason(outlet: Outlet, outcome: Outcome) -> str:
    last = outcome.message if isinstance(outcome, Failure) else "a success"
    window = outlet.window
    return f"{window.failures} of the last {window.tries} tries failed, the last one with: {last}"
