"""What tries of steps need from the database, and what they leave there. core.ports.StepBook on PostgreSQL."""

from collections.abc import Sequence
from json import loads
from uuid import UUID

from redrive.core.ids import id_of_key
from redrive.core.ports import Job
from redrive.core.step_ports import StepTerms
from redrive.core.trace import as_headers, passed_on
from redrive.observe import lines, traces
from redrive.store.clock import Clock
from redrive.store.db import Database
from redrive.store.events import NewEvent, accept
from redrive.store.steps import ORDERING_KEY
from redrive.store.transitions import accepted
from redrive.store.workflows import Versions

_WHY_NOT = {
    "conflict": "An event was emitted before under this step's idempotency key, with another payload or type. "
    "Replay it with a new idempotency key to emit this one, too.",
    "no_endpoint": "The endpoint that the event is for does not exist.",
}


class StoredSteps:
    def __init__(self, db: Database, clock: Clock, versions: Versions) -> None:
        self._db = db
        self._clock = clock
        self._versions = versions

    async def terms(self, jobs: Sequence[Job]) -> list[StepTerms]:
        rows = await self._db.fetch("step_terms", [job.org_id for job in jobs], [job.id for job in jobs])
        versions = await self._versions.load(self._db, [(row["org_id"], row["workflow_id"]) for row in rows])
        found = []
        for row in rows:
            version = versions.get(row["workflow_id"])
            if version is None:
                continue
            found.append(
                StepTerms(
                    row["id"],
                    row["run_id"],
                    row["step"],
                    version.workflow.name,
                    version.workflow.steps[row["step"]],
                    row["idempotency_key"],
                    row["url"],
                    row["problem"],
                    row["traceparent"],
                    version.bindings[row["step"]].endpoint_id,
                    row["cancelled_at"] is not None,
                    row["headers"],
                )
            )
        return found

    async def emit(self, job: Job, terms: StepTerms) -> UUID | str:
        """Its id is made of the step's key: the same step emits the same event."""
        event_id = id_of_key(job.org_id, "event", terms.idempotency_key)
        assert terms.spec.event_type is not None, "checked when the workflow was saved"
        event = NewEvent(
            job.org_id,
            event_id,
            terms.spec.event_type,
            job.body,
            endpoint_id=terms.endpoint_id,
            external_system=terms.spec.external_system,
            ordering_key=loads(terms.rendered_headers(job)).get(ORDERING_KEY),
            correlation_id=job.correlation_id,
            headers=_context(job),
        )
        (receipt,) = await accept(self._db, [event], self._clock)
        lines.say_all("status_transition", accepted([(event, receipt)]))
        return event_id if receipt.verdict in ("accepted", "duplicate") else _WHY_NOT[receipt.verdict]

    async def effect(self, org_id: UUID, key: str) -> bytes | None:
        row = await self._db.fetchrow("get_effect", org_id, key)
        result: bytes | None = row["result"] if row else None
        return result

    async def keep_effect(self, org_id: UUID, key: str, run_id: UUID, result: bytes) -> bytes:
        row = await self._db.fetchrow("keep_effect", org_id, key, run_id, result, self._clock.now())
        kept = await self.effect(org_id, key) if row is None else result
        assert kept is not None, "it was there, or was written just now"
        return kept


def _context(job: Job) -> str | None:
    """What it does goes on in the run's trace, where the run came with one, or is traced."""
    if job.run_traceparent is None:
        return None
    traced = passed_on(job, tracing=traces.is_on())
    return None if traced is None else as_headers(traced)
