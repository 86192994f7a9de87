"""Finding things by what a person calls them: an endpoint by its id or its name, a state by its word."""

from collections.abc import Iterable
from uuid import UUID

from redrive.cli.runner import Refused, WrongUsage
from redrive.core.permissions import Role, role_named
from redrive.store.db import Record, Session
from redrive.store.endpoints import get_endpoint, list_endpoints
from redrive.store.paging import MAX_PAGE_ROWS


async def find_endpoint(session: Session, called: str) -> Record:
    try:
        found = await get_endpoint(session, UUID(called))
    except ValueError:
        found = await _by_name(session, called)
    if found is None:
        raise Refused(f'There is no endpoint "{called}" in this org. `redrive endpoints list` shows those there are.')
    return found


async def _by_name(session: Session, name: str) -> Record | None:
    after: tuple[object, ...] | None = None
    while True:
        page = await list_endpoints(session, limit=MAX_PAGE_ROWS, after=after)
        for row in page.rows:
            if row["name"] == name:
                return row
        if page.next_key is None:
            return None
        after = page.next_key


def role_of(given: str) -> Role:
    """A role by its name or alias."""
    try:
        return role_named(given)
    except ValueError as problem:
        raise WrongUsage(f'"{given}" is no role: it {problem}.') from None


def require_one_of(what: str, given: str | None, allowed: Iterable[str]) -> None:
    """A filter that cannot match anything is a mistake, not an empty list."""
    known = list(allowed)
    if given is not None and given not in known:
        raise WrongUsage(f'"{given}" is no {what}. There are: {", ".join(known)}.')
