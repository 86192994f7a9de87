"""The worker: claim what is due, try it, decide what follows, settle it. Hundreds of tries in flight in one loop.

Started by app.py. Meets the store and the destinations through core.ports. The time is the database's: a worker
whose own clock is wrong decides the same.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from uuid import UUID

import structlog

from redrive.core.breaker import DEFAULT_RULES, BreakerRules
from redrive.core.brief import brief
from redrive.core.decide import RetryIn
from redrive.core.jobs import JobRecord
from redrive.core.meter import WorkerMeter
from redrive.core.outcome import Failure, Success
from redrive.core.policy import Policy
from redrive.core.ports import (
    NO_EXCHANGE,
    RELAY_QUEUE,
    Claim,
    Destination,
    EndpointStates,
    Job,
    Place,
    ReachingDestination,
    Released,
    Settled,
    Settlement,
    Stream,
    TaskStore,
)
from redrive.ending import end
from redrive.engine.agenda import Agenda
from redrive.engine.breakers import Breakers
from redrive.engine.lookout import Lookout
from redrive.engine.releaser import Releaser
from redrive.engine.settler import Settler
from redrive.engine.transitions import tell, tell_delivered, tell_taken_over
from redrive.engine.tries import Tries
from redrive.observe.watch import Watched

DEFAULT_CONCURRENCY = 500
DEFAULT_MARGIN_S = 15.0
DEFAULT_POLL_S = 0.5
MAX_CLAIM = 400
MAX_EXPEDITED = 50  # tries that people asked for now, beside as many as there is room for
MAX_POLICIES_CACHED = 10_000
CLAIM_ENDS_S = 1.0  # for a claim under way when the worker is told to stop
SMALL_CLAIM_AFTER_S = 0.05
UNREADABLE_S = 30.0
DRAIN_S = 6.0
GONE = 410

log = Watched(structlog.get_logger("redrive.worker"))


class Worker:
    def __init__(
        self,
        store: TaskStore,
        destinations: Sequence[Destination],
        *,
        worker_id: UUID,
        concurrency: int = DEFAULT_CONCURRENCY,
        margin_s: float = DEFAULT_MARGIN_S,
        poll_s: float = DEFAULT_POLL_S,
        dice: Callable[[], float] = random.random,
        states: EndpointStates | None = None,
        rules: BreakerRules = DEFAULT_RULES,
        on_settled: Callable[[list[Settled]], None] | None = None,
        meter: WorkerMeter | None = None,
        release_job: JobRecord | None = None,
    ) -> None:
        self.worker_id = worker_id
        self._store = store
        self._destinations = destinations
        self._by_queue = {queue: destination for destination in destinations for queue in destination.queues}
        self._reaching = {q: one for q, one in self._by_queue.items() if isinstance(one, ReachingDestination)}
        self._concurrency = concurrency
        self._margin_s = margin_s
        self._poll_s = poll_s
        self._policies: dict[UUID, Policy] = {}
        self._on_settled = on_settled
        self._meter = meter
        self._reaches_store = False
        self._agenda = Agenda(rules, can_reach=self._can_reach)
        self._breakers = Breakers(states, self._agenda, rules, begin=self._follow_up) if states else None
        self._lookout = Lookout(store, self._agenda, self.queues, worker_id, self._breakers)
        self._wanted = asyncio.Event()  # something may be due: look
        self._freed = asyncio.Event()  # a slot came free
        self._stopping = False
        self._trying = 0  # deliveries in flight
        self._unsettled = 0  # those, and results on their way to the database
        self._tries = Tries(self._by_queue, self._settle, margin_s=margin_s, dice=dice)
        self._settler = Settler(store, worker_id, self._note_settled, meter)
        self._releaser = Releaser(store, job=release_job)
        self._followups: set[asyncio.Task[None]] = set()
        self._expedited: set[int] = set()  # by identity: jobs that people asked for now

    @property
    def queues(self) -> tuple[str, ...]:
        """What it can carry out."""
        return tuple(sorted(self._by_queue))

    @property
    def concurrency(self) -> int:
        return self._concurrency

    @property
    def in_flight(self) -> int:
        """Tries under way."""
        return self._trying

    @property
    def unsettled(self) -> int:
        """Those, and results on their way to the database: all that it holds a lease of."""
        return self._unsettled

    @property
    def unwritten(self) -> int:
        """Results on their way to the database. Once it has drained: those that the database did not take."""
        return self._unsettled - self._trying

    @property
    def reaches_store(self) -> bool:
        """Whether it found its work, or that there is none, when it looked last."""
        return self._reaches_store

    # -- running ---------------------------------------------------------------------------------------------------

    def wake(self, told: str = "") -> None:
        """Something may have fallen due (a NOTIFY came in)."""
        self._lookout.tell(told)
        self._wanted.set()
        self._freed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`, then drain."""
        self._settler.start()
        log.info("worker_started", worker=str(self.worker_id), queues=list(self.queues), concurrency=self._concurrency)
        stopped = asyncio.create_task(stop.wait())
        releasing = asyncio.create_task(self._releaser.run())
        working = asyncio.create_task(self._work())
        try:
            await asyncio.wait({stopped, working, *self._settler.writers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            until = asyncio.get_running_loop().time() + DRAIN_S
            stopped.cancel()
            # A claim that is broken off may have leased tasks that nobody would give back: let it end.
            self._stopping = True
            self._wanted.set()
            self._freed.set()
            await asyncio.wait({working}, timeout=CLAIM_ENDS_S)
            await end(working, releasing)
            broken = [part for part in (working, *self._settler.writers) if part.done() and not part.cancelled()]
            await self._drain(until)
        for part in broken:
            part.result()  # raises what ended it: better a new process than one that claims or settles nothing

    async def run_until_idle(self, limit: int | None = None) -> None:
        """Carry out everything that is due now, and what falls due at once by it; with a limit, that many at most.

        For one-off runs and tests.
        """
        self._settler.start()
        left = limit
        try:
            while left is None or left > 0:
                await self._lookout.look(everywhere=True)
                most = self._concurrency if left is None else min(self._concurrency, left)
                claim = await self._claim_expedited(most) or await self._claim(most, hurry=True)
                if claim is None or not (claim.jobs or claim.held or claim.barred):
                    return
                if left is not None:
                    left -= len(claim.jobs)
                await self._settled_all()
        finally:
            await self._drain(asyncio.get_running_loop().time() + DRAIN_S)

    async def _settled_all(self) -> None:
        while self._unsettled:
            self._freed.clear()
            await self._freed.wait()

    async def _work(self) -> None:
        pause_s = 0.1
        hurry = False
        while not self._stopping:
            free = self._free()
            is_crowded = free < max(1, self._concurrency // 4) and not self._may_expedite
            if is_crowded and not await self._may_claim_few(free):
                continue
            self._wanted.clear()
            try:
                await self._claim_expedited()
                await self._lookout.look()
                free = self._free()
                claim = await self._claim(min(max(0, free), MAX_CLAIM), hurry=hurry)
                self._reaches_store = True
                hurry = claim is None and not await self._rest()
                pause_s = 0.1
            except Exception as error:  # noqa: BLE001 - the database may be away: wait for it, never die of it
                self._reaches_store = False
                if self._meter is not None:
                    self._meter.claim_failed()
                log.warning("claim_failed", error=brief(error), again_in_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, 2.0)

    async def _may_claim_few(self, free: int) -> bool:
        """Wait for more room, so that claims stay large; where none comes free, what there is must do.

        Tries that hang would else keep the last quarter of the room empty.
        """
        if free > 0 and self._wanted.is_set():
            return True  # somebody was told of: it is not for them that the room is small
        self._freed.clear()
        try:
            async with asyncio.timeout(SMALL_CLAIM_AFTER_S if free > 0 else None):
                await self._freed.wait()
        except TimeoutError:
            return True
        return False

    def _free(self) -> int:
        """Room for more. Results that wait to be written take room too, so that a slow database slows the worker."""
        return min(self._concurrency - self._trying, 2 * self._concurrency - self._unsettled)

    async def _rest(self) -> bool:
        """Nothing can be begun now. Sleep until something falls due, until told, or until the next look.

        False: something is due that has little room, and no more came free for a while.
        """
        if self._stopping:
            return True
        short = self._agenda.is_short_of_room
        await self._lookout.look_ahead()
        now = time.monotonic()
        until = min(now + self._poll_s, self._lookout.next_look())
        upcoming = self._agenda.next_at(now)
        if short:
            until = min(until, now + SMALL_CLAIM_AFTER_S)
        elif upcoming is not None:
            until = min(until, upcoming)
        try:
            async with asyncio.timeout(max(0.0, until - now)):
                await self._wanted.wait()
        except TimeoutError:
            return not short
        return True

    # -- claiming --------------------------------------------------------------------------------------------------

    def _can_reach(self, place: Place) -> bool:
        reaching = self._reaching.get(place.queue)
        return reaching is None or reaching.can_reach(place.id)

    async def _claim(self, limit: int, *, hurry: bool = False) -> Claim | None:
        """None: there is nothing that may be begun now."""
        asked_at = time.monotonic()
        asks = self._agenda.asks(asked_at, max(0, self._free()), limit, hurry=hurry)
        if not asks:
            return None
        claim = await self._store.claim(asks, limit=limit, worker_id=self.worker_id, margin_s=self._margin_s)
        now = time.monotonic()
        self._agenda.note_claim(asks, claim, now)
        if self._meter is not None:
            self._meter.claimed(claim, now - asked_at)
        self._trying += len(claim.jobs)
        self._unsettled += len(claim.jobs)
        if claim.jobs:
            await self._start(claim.jobs, asked_at)
        return claim

    @property
    def _may_expedite(self) -> bool:
        return self._lookout.may_be_expedited and self._free() + MAX_EXPEDITED > 0

    async def _claim_expedited(self, most: int = MAX_CLAIM) -> Claim | None:
        """What people asked for now, whatever else is under way. None: nothing that could be begun."""
        if not self._may_expedite:
            return None
        limit = min(most, self._free() + MAX_EXPEDITED)
        asked_at = time.monotonic()
        asks = [ask for ask in await self._lookout.expedited() if self._can_reach(ask.stream.place)]
        if not asks:
            return None
        claim = await self._store.claim(asks, limit=limit, worker_id=self.worker_id, margin_s=self._margin_s)
        if len(claim.jobs) >= limit:
            self._lookout.may_be_expedited = True  # there may be more
        now = time.monotonic()
        self._agenda.note_begun(claim, now)
        if self._meter is not None:
            self._meter.claimed(claim, now - asked_at)
        self._trying += len(claim.jobs)
        self._unsettled += len(claim.jobs)
        self._expedited.update(id(job) for job in claim.jobs)
        if claim.jobs:
            await self._start(claim.jobs, asked_at)
        return claim if claim.jobs or claim.held else None

    async def _start(self, jobs: list[Job], asked_at: float) -> None:
        """Begin the tries. What they need is loaded first, once for all; if that fails, the leases go back."""
        try:
            await self._load(jobs)
        except Exception as error:
            for job in jobs:
                self._release(job, "What the try needs could not be loaded.")
            raise ConnectionError(f"loading policies or endpoints failed: {brief(error)}") from error
        for job in jobs:
            policy = self._policies.get(job.policy_id)
            if job.lost:
                tell_taken_over(job, policy.max_retries if policy is not None else None)
            if policy is not None:
                self._tries.begin(job, policy, asked_at)
            else:  # stored by a newer Redrive: left for a worker that can read it
                self._release(job, "Its policy is one that this version of Redrive cannot read.", UNREADABLE_S)

    async def _load(self, jobs: Sequence[Job]) -> None:
        missing = {job.policy_id: (job.org_id, job.policy_id) for job in jobs if job.policy_id not in self._policies}
        if missing:
            if len(self._policies) + len(missing) > MAX_POLICIES_CACHED:
                self._policies.clear()
                missing = {job.policy_id: (job.org_id, job.policy_id) for job in jobs}
            self._policies.update(await self._store.policies(list(missing.values())))
        for destination in self._destinations:
            mine = [job for job in jobs if self._by_queue[job.queue] is destination]
            if mine:
                await destination.prepare(mine)

    # -- settling --------------------------------------------------------------------------------------------------

    def _settle(self, settlement: Settlement) -> None:
        self._trying -= 1
        self._freed.set()
        now = time.monotonic()
        outlet = self._agenda.outlet_of(settlement.job)
        self._agenda.note_end(outlet, settlement.took_s if settlement.outcome is not None else None)
        expedited = id(settlement.job) in self._expedited
        self._expedited.discard(id(settlement.job))
        if self._breakers is not None and settlement.outcome is not None:
            is_retry = settlement.job.attempts > 0
            self._breakers.note(
                outlet, settlement.outcome, settlement.took_s, now, is_retry=is_retry, expedited=expedited
            )
        if self._agenda.is_short_of_room and not outlet.is_crowded(self._free()):
            self._wanted.set()
        self._settler.put(settlement)

    def _release(self, job: Job, why: str, delay_s: float = 0.0) -> None:
        self._settle(Settlement(job, None, Released(why, delay_s=delay_s), NO_EXCHANGE, 0.0))

    def _note_settled(self, settled: list[Settled]) -> None:
        self._unsettled -= len(settled)
        self._freed.set()
        if self._on_settled is not None:
            self._on_settled(settled)
        delivered: list[Job] = []
        for result in settled:
            settlement = result.settlement
            if result.held_lease and not settlement.job.attempts and isinstance(settlement.outcome, Success):
                delivered.append(settlement.job)
            else:
                self._report(result)
            if settlement.job.lane is not None:
                self._expect(settlement.job, is_retry=False)  # the next of its lane
        tell_delivered(delivered)

    def _report(self, result: Settled) -> None:
        job, outcome, decision, *_ = result.settlement
        policy = self._policies.get(job.policy_id)
        tell(result, policy.max_retries if policy is not None else None)
        if not result.held_lease:
            return
        is_gone = isinstance(outcome, Failure) and outcome.status_code == GONE
        if is_gone and job.endpoint_id is not None and job.queue != RELAY_QUEUE:  # relays are never disabled
            self._follow_up(self._disable(job.org_id, job.endpoint_id, result.settlement.exchange.url))
        if isinstance(decision, RetryIn):
            self._expect(job, is_retry=True, in_s=decision.delay.total_seconds())
        elif isinstance(decision, Released):
            self._expect(job, is_retry=job.attempts > 0, in_s=decision.delay_s)

    def _expect(self, job: Job, *, is_retry: bool, in_s: float = 0.0) -> None:
        """Something falls due where this job was."""
        now = time.monotonic()
        self._agenda.tell(Stream(self._agenda.outlet_of(job).place, is_retry), now, now + in_s)
        if in_s < self._poll_s:
            self._wanted.set()

    def _follow_up(self, work: Coroutine[None, None, None]) -> None:
        followup = asyncio.create_task(work)
        self._followups.add(followup)
        followup.add_done_callback(self._followups.discard)

    async def _disable(self, org_id: UUID, endpoint_id: UUID, tried_url: str | None) -> None:
        try:
            if await self._store.disable_endpoint(org_id, endpoint_id, "It answered 410 Gone.", tried_url=tried_url):
                log.warning("endpoint_disabled", org_id=str(org_id), endpoint_id=str(endpoint_id), why="410 Gone")
        except Exception as error:  # noqa: BLE001 - the next 410 will try again
            log.warning("endpoint_disable_failed", endpoint_id=str(endpoint_id), error=brief(error))

    # -- stopping --------------------------------------------------------------------------------------------------

    async def _drain(self, until: float) -> None:
        """Let tries end, break off those that take too long, and write everything down, by this time of the loop."""
        await self._tried_all(within_s=(until - asyncio.get_running_loop().time()) * 2 / 3)
        self._tries.break_off()
        await self._tried_all(within_s=1)
        try:
            async with asyncio.timeout_at(until):
                await self._settled_all()
        except TimeoutError:
            log.error("drain_incomplete", unsettled=self._unsettled)
        if self._followups:
            await asyncio.wait(self._followups, timeout=1)
        await self._settler.close()
        if not self.unwritten:
            await self._let_go()
        log.info("worker_stopped", worker=str(self.worker_id), unsettled=self._unsettled)

    async def _let_go(self) -> None:
        try:
            async with asyncio.timeout(1):
                await self._lookout.let_go()
        except Exception as error:  # noqa: BLE001 - what was ours is free again when its time is over
            log.warning("let_go_failed", error=brief(error))

    async def _tried_all(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while self._tries.under_way:
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            return
