"""A task's lane in words: its name, how it stands there, and where a retry may put it. Pure. Used by detail."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec

from redrive.api.shapes import Row
from redrive.store.dead_letters import Order

ORDERS: tuple[tuple[Order, str, str], ...] = (
    ("in_place", "In its place.", "It is sent before what has waited behind it."),
    ("tail", "At the end of its lane.", "What waits goes first; the receiver is told that it is out of order."),
)


@dataclass(frozen=True, slots=True)
class LanePlace:
    """`halts`: the lane is halted by this one; `usual`: where a retry puts it unless a person says otherwise."""

    name: str
    href: str | None
    halted_at: datetime | None
    halted_by: UUID | None
    halts: bool
    is_behind: bool
    out_of_order: bool

    orders = ORDERS

    @property
    def usual(self) -> Order:
        return "tail" if self.halted_at is None else "in_place"

    @property
    def choices(self) -> dict[str, object]:
        """What a dialog offers, each with the member of the body that it stands for."""
        options = [(_member(order), label, sentence) for order, label, sentence in ORDERS]
        return {"label": "Where in its lane?", "options": options, "chosen": _member(self.usual)}


def _member(order: Order) -> str:
    return msgspec.json.encode({"order": order}).decode()


def lane_place(row: Row) -> LanePlace | None:
    """None where it is in no order."""
    if row["lane"] is None:
        return None
    endpoint_id = row["endpoint_id"]
    return LanePlace(
        name="of the whole endpoint" if row["lane"] == endpoint_id else f"of the key {row['ordering_key']}",
        href=None if endpoint_id is None else f"/endpoints/{endpoint_id}#order",
        halted_at=row["lane_halted_at"],
        halted_by=row["lane_halted_by"],
        halts=row["lane_halted_by"] == row["id"],
        is_behind=row["behind"] is True and row["state"] == "waiting",
        out_of_order=row["out_of_order"] is True,
    )
