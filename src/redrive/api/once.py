"""A POST under an Idempotency-Key makes its thing once. Used by the routes that create, in their own transaction."""

import hashlib
from uuid import UUID

import msgspec
from fastapi import Request

from redrive.api.event_input import idempotency_key_in
from redrive.api.problems import Problem
from redrive.store import idempotency
from redrive.store.db import Session


def key_of(request: Request) -> str | None:
    return idempotency_key_in(dict(request.scope["headers"]).get(b"idempotency-key"))


class Once:
    """`given`: what was asked for, without what a short hash would give away (passwords): a hash of it is stored."""

    def __init__(self, request: Request, noun: str, given: object) -> None:
        self._key = key_of(request)
        self._noun = noun
        self._digest = hashlib.sha256(msgspec.json.encode(given)).digest()

    async def made_before(self, session: Session) -> UUID | None:
        """The thing that an earlier request made; 409 where that asked for another. None: make it, then `note`."""
        made = await idempotency.claim(session, self._noun, self._key, self._digest) if self._key else None
        if made is None:
            return None
        if not made.same_body:
            raise Problem(409, f"This Idempotency-Key was used for another {self._noun}.")
        return made.subject_id

    async def note(self, session: Session, subject_id: UUID) -> None:
        if self._key:
            await idempotency.fulfil(session, self._noun, self._key, subject_id)

    def gone(self) -> Problem:
        return Problem(409, f"The {self._noun} that was made under this Idempotency-Key is gone.")
