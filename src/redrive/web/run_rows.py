"""Runs as rows of a list. Pure. Used by the pages of runs and of workflows; templates/run_parts.html shows them."""

from dataclasses import dataclass
from datetime import datetime

from redrive.api import run_shapes
from redrive.api.shapes import Shape
from redrive.store.db import Record


@dataclass(frozen=True, slots=True)
class RunRow:
    """`lasted_s`: from its first try to its end, or until now; None before that."""

    shape: Shape
    lasted_s: float | None

    @property
    def href(self) -> str:
        return f"/runs/{self.shape['run_id']}"


def run_row(row: Record, now: datetime) -> RunRow:
    began: datetime | None = row["started_at"]
    if began is None:
        return RunRow(run_shapes.run(row), None)
    return RunRow(run_shapes.run(row), max(((row["finished_at"] or now) - began).total_seconds(), 0.0))
