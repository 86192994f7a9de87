"""Where in a run a task stands that carries out one of its steps: for the pages of dead letters and logs.

Loaded by web.detail with the task; templates/task_parts.html shows it, and offers its replay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from redrive.api import run_shapes
from redrive.api.shapes import Shape
from redrive.core.run_states import UNDER_WAY
from redrive.store import runs
from redrive.store.db import Record, Session
from redrive.store.policies import list_policies
from redrive.web.workflow_words import choices_of

POLICIES_OFFERED = 100


@dataclass(frozen=True, slots=True)
class StepPlace:
    """`steps`: of the whole run; `policies`: to replay it under."""

    run_id: UUID
    workflow: str
    version: int
    status: str
    index: int
    steps: Sequence[Shape]
    policies: Sequence[str]

    @property
    def name(self) -> str:
        return str(self.steps[self.index]["name"])

    @property
    def href(self) -> str:
        return f"/runs/{self.run_id}"

    @property
    def is_under_way(self) -> bool:
        return self.status in UNDER_WAY

    @property
    def choices(self) -> list[dict[str, object]]:
        return choices_of(self.steps)


async def offered_policies(session: Session) -> list[str]:
    return [policy["name"] for policy in (await list_policies(session))[:POLICIES_OFFERED]]


async def step_place(session: Session, task: Record) -> StepPlace | None:
    """None for a task that is no step."""
    run = await runs.get_run(session, task["run_id"]) if task["run_id"] is not None else None
    if run is None:
        return None
    known = await runs.get_steps(session, run["id"], max_body_bytes=0)
    steps = run_shapes.run_detail(run, known, {}, show=lambda _: None)["steps"]
    assert isinstance(steps, list)
    return StepPlace(
        run_id=run["id"],
        workflow=run["workflow"],
        version=run["version"],
        status=run["status"],
        index=task["step"],
        steps=steps,
        policies=await offered_policies(session),
    )
