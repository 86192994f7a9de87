"""Organisations, and what an installation needs before its first event: the default org, presets, an admin key.

Called by app.py at start-up and by the CLI.
"""

import os
import time
from collections.abc import Mapping
from uuid import UUID

import msgspec

from redrive.core.ids import uuid7
from redrive.core.policy import Policy
from redrive.store.db import Database
from redrive.store.seal import Sealer, SealError

DEFAULT_ORG = "default"


def new_id() -> UUID:
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))


async def find_org(db: Database, name: str) -> UUID | None:
    row = await db.fetchrow("find_org", name)
    return row["org_id"] if row else None


async def ensure_org(db: Database, name: str, presets: Mapping[str, Policy], *, overridden: frozenset[str]) -> UUID:
    """The org of that name with its presets; made where absent. `overridden` presets follow the settings."""
    async with db.transaction() as session:
        row = await session.fetchrow("ensure_org", name, new_id())
        assert row is not None
        org_id: UUID = row["org_id"]
        for preset, policy in presets.items():
            spec = msgspec.json.encode(policy.to_spec()).decode()
            await session.execute(
                "ensure_preset", org_id, preset, new_id(), spec, policy.timeout_s, preset in overridden
            )
    return org_id


async def prove_seal(db: Database, sealer: Sealer) -> None:
    """Refuse to run with a key other than the one that this database's secrets are sealed with."""
    row = await db.fetchrow("prove_seal", sealer.proof())
    assert row is not None
    if not sealer.proves(row["seal_check"]):
        raise SealError(
            "This database's secrets were sealed with another key. Set REDRIVE_SECRET_KEY to the one it was first "
            "started with, or copy secret.key from that installation's data folder."
        )
