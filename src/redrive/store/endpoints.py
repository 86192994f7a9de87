"""Endpoints: where deliveries go. Secrets and custom headers are sealed; a secret is shown once, when it is made.

A deleted endpoint stays as a row: what was accepted for it dies in front of a person, not silently.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import asyncpg
import msgspec
import structlog

from redrive.core import sign
from redrive.core.channels import hidden, service_of
from redrive.core.ports import EndpointTerms
from redrive.core.redact import redact_url
from redrive.store import audit
from redrive.store.audit import Act
from redrive.store.clock import Clock
from redrive.store.db import Database, Record, Session, like_pattern
from redrive.store.endpoint_states import reset_state
from redrive.store.hooks import (
    HookToken,
    Verification,
    new_token,
    open_token,
    open_verification,
    seal_verification,
    stored_token,
)
from redrive.store.lanes import lift_halts
from redrive.store.orgs import new_id
from redrive.store.paging import Page, page_of
from redrive.store.seal import Sealer, SealError

RELAY = "relay"
DEFAULT_OVERLAP_S = 86_400.0  # how long the secret before a new one signs too
MAX_OVERLAP_S = 604_800.0

log = structlog.get_logger("redrive.endpoints")

_SEALED_SHUT = (
    "The endpoint's secret or headers cannot be opened with this installation's key. Start the workers with the "
    "REDRIVE_SECRET_KEY (or the data folder's secret.key) that they were stored under, or make the endpoint anew."
)

_UNREADABLE = (SealError, ValueError, msgspec.MsgspecError)  # ValueError: a secret that is none


class NameTaken(Exception):
    """Another endpoint of the org has this name."""


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """What a person says of an endpoint."""

    name: str
    url: str | None
    event_types: tuple[str, ...] = ("*",)
    kind: str = "http"
    policy: str | None = None
    ordered: bool = False
    external_system: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_pem: str | None = None
    timeout_s: float | None = None
    max_in_flight: int | None = None
    rate_per_s: float | None = None
    max_block_s: float | None = None
    on_block: str = "skip"
    disabled: bool = False
    verify: Verification | None = None  # of webhooks that come in; relay endpoints only
    exchange: str | None = None  # of RabbitMQ; endpoints of that kind only, which have no URL
    routing_key: str | None = None  # None: the event's type
    to: tuple[str, ...] | None = None  # addresses; endpoints of kind mail only
    apprise_url: str | None = field(default=None, repr=False)  # endpoints of kind apprise only: a secret


class Endpoints:
    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    async def create(self, session: Session, spec: EndpointSpec, act: Act) -> tuple[Record, str]:
        """The new endpoint and its secret, which nobody will see again."""
        endpoint_id = new_id()
        secret = sign.new_secret(os.urandom(32))
        try:
            row = await session.fetchrow(
                "create_endpoint",
                session.org_id,
                endpoint_id,
                *_columns(spec, self._seal_headers(session.org_id, endpoint_id, spec)),
                self._seal_secrets(session.org_id, endpoint_id, [secret]),
                spec.kind,
                *(self._new_hook(session.org_id, endpoint_id) if spec.kind == RELAY else (None, None, None)),
                *self._verify_columns(session.org_id, endpoint_id, spec),
                spec.exchange,
                spec.routing_key,
                spec.to,
                *self._apprise_columns(session.org_id, endpoint_id, spec),
            )
        except asyncpg.UniqueViolationError:
            raise NameTaken(spec.name) from None
        assert row is not None
        await audit.record(session, act, "endpoint.create", "endpoint", endpoint_id, after=_audited(spec))
        return row, secret

    async def update(
        self,
        session: Session,
        endpoint_id: UUID,
        changes: Mapping[str, object],
        act: Act,
        *,
        action: str = "endpoint.update",
    ) -> Record | None:
        """Change the fields named. None where there is no such endpoint. After one is enabled: pausing.release.

        All columns are written: the row is locked first, so that nobody's change of the others is undone. Headers and
        secrets that are not changed stay sealed as they are, whether they open or not. What is enabled or leads
        elsewhere begins anew: its breaker is closed, and it has not failed yet.
        """
        row = await lock_endpoint(session, endpoint_id)
        if row is None:
            return None
        before = self.spec_of(row)
        after = replace(before, **changes)  # type: ignore[arg-type]
        sealed = self._seal_headers(session.org_id, endpoint_id, after) if "headers" in changes else _headers_of(row)
        verify = (row["verify_scheme"], row["verify_sealed"])
        if "verify" in changes:
            verify = self._verify_columns(session.org_id, endpoint_id, after)
        apprise = (row["apprise_service"], row["apprise_sealed"])
        if "apprise_url" in changes:
            apprise = self._apprise_columns(session.org_id, endpoint_id, after)
        try:
            updated = await session.fetchrow(
                "update_endpoint",
                session.org_id,
                endpoint_id,
                *_columns(after, sealed),
                act.because,
                *verify,
                after.exchange,
                after.routing_key,
                after.to,
                *apprise,
            )
        except asyncpg.UniqueViolationError:
            raise NameTaken(after.name) from None
        if (before.disabled and not after.disabled) or _place(before) != _place(after):
            await reset_state(session, endpoint_id)
        await session.execute("tell_workers")  # of limits, and of a breaker that is none any more
        await audit.record(
            session, act, action, "endpoint", endpoint_id, before=_audited(before), after=_audited(after)
        )
        return updated

    async def set_disabled(self, session: Session, endpoint_id: UUID, disabled: bool, act: Act) -> Record | None:
        """Disable it, for the reason of the act, or enable it. None where there is no such endpoint.

        One that is disabled stays as it was disabled first.
        """
        row = await lock_endpoint(session, endpoint_id)
        if row is None or (row["disabled_at"] is not None) == disabled:
            return row
        action = "endpoint.disable" if disabled else "endpoint.enable"
        return await self.update(session, endpoint_id, {"disabled": disabled}, act, action=action)

    async def rotate_secret(
        self, session: Session, endpoint_id: UUID, overlap_s: float, act: Act, clock: Clock
    ) -> tuple[Record, str] | None:
        """A new secret, which nobody will see again. The one before it signs too for `overlap_s`, any older no more.

        None where there is no such endpoint.
        """
        row = await lock_endpoint(session, endpoint_id)
        if row is None:
            return None
        secret = sign.new_secret(os.urandom(32))
        try:
            kept = self._secrets(row)[:1] if overlap_s > 0 else []
        except _UNREADABLE:  # nothing is signed with it: the new one mends that
            kept = []
        sealed = self._seal_secrets(session.org_id, endpoint_id, [secret, *kept])
        rotated = await session.fetchrow(
            "rotate_secret", session.org_id, endpoint_id, sealed, overlap_s if kept else None, clock.now()
        )
        assert rotated is not None
        after = {"previous_valid_until": rotated["previous_secret_until"]}
        await audit.record(session, act, "endpoint.rotate_secret", "endpoint", endpoint_id, after=after)
        return rotated, secret

    async def rotate_hook(self, session: Session, endpoint_id: UUID, act: Act) -> Record | None:
        """Another address for what comes in; the one before is gone at once. None where no relay endpoint is there."""
        row = await lock_endpoint(session, endpoint_id)
        if row is None or row["kind"] != RELAY:
            return None
        token = self._new_hook(session.org_id, endpoint_id)
        rotated = await session.fetchrow("rotate_hook", session.org_id, endpoint_id, *token)
        await audit.record(session, act, "endpoint.rotate_hook", "endpoint", endpoint_id)
        return rotated

    def hook_token(self, row: Record) -> str | None:
        """What stands in the address of a relay endpoint; None of others, and where it does not open."""
        if row["hook_sealed"] is None:
            return None
        try:
            return open_token(self._sealer, row["org_id"], row["id"], row["hook_sealed"])
        except _UNREADABLE:
            return None

    def spec_of(self, row: Record) -> EndpointSpec:
        """Without headers and secrets where they do not open: `problem_of` says so."""
        try:
            headers, verify = self._unseal_headers(row), self._unseal_verify(row)
            apprise_url = self._unseal_apprise(row)
        except _UNREADABLE:
            headers, verify, apprise_url = (), None, None
        return EndpointSpec(
            name=row["name"],
            url=row["url"],
            event_types=tuple(row["event_types"]),
            kind=row["kind"],
            policy=row["policy"],
            ordered=row["ordered"],
            external_system=row["external_system"],
            headers=headers,
            ca_pem=row["ca_pem"],
            timeout_s=row["timeout_s"],
            max_in_flight=row["max_in_flight"],
            rate_per_s=row["rate_per_s"],
            max_block_s=row["max_block_s"],
            on_block=row["on_block"],
            disabled=row["disabled_at"] is not None,
            verify=verify,
            exchange=row["exchange"],
            routing_key=row["routing_key"],
            to=None if row["mail_to"] is None else tuple(row["mail_to"]),
            apprise_url=apprise_url,
        )

    def problem_of(self, row: Record) -> str | None:
        """Why nothing can be delivered there, as far as the row tells."""
        try:
            self._secrets(row)
            self._unseal_headers(row)
            self._unseal_verify(row)
            self._unseal_apprise(row)
        except _UNREADABLE:
            return _SEALED_SHUT
        return None

    def _new_hook(self, org_id: UUID, endpoint_id: UUID) -> HookToken:
        return stored_token(self._sealer, org_id, endpoint_id, new_token())

    def _verify_columns(
        self, org_id: UUID, endpoint_id: UUID, spec: EndpointSpec
    ) -> tuple[str, bytes] | tuple[None, None]:
        if spec.verify is None:
            return None, None
        scheme, secret = spec.verify
        return scheme.value, seal_verification(self._sealer, org_id, endpoint_id, secret)

    def _unseal_verify(self, row: Record) -> Verification | None:
        if row["verify_sealed"] is None:
            return None
        return open_verification(self._sealer, row["org_id"], row["id"], row["verify_scheme"], row["verify_sealed"])

    def _apprise_columns(
        self, org_id: UUID, endpoint_id: UUID, spec: EndpointSpec
    ) -> tuple[str | None, bytes] | tuple[None, None]:
        if spec.apprise_url is None:
            return None, None
        sealed = self._sealer.seal(spec.apprise_url.encode(), f"apprise:{org_id}:{endpoint_id}")
        return service_of(spec.apprise_url), sealed

    def _unseal_apprise(self, row: Record) -> str | None:
        if row["apprise_sealed"] is None:
            return None
        return self._sealer.unseal(row["apprise_sealed"], f"apprise:{row['org_id']}:{row['id']}").decode()

    def _seal_headers(self, org_id: UUID, endpoint_id: UUID, spec: EndpointSpec) -> bytes | None:
        if not spec.headers:
            return None
        return self._sealer.seal(msgspec.json.encode(spec.headers), f"headers:{org_id}:{endpoint_id}")

    def _seal_secrets(self, org_id: UUID, endpoint_id: UUID, secrets: Sequence[str]) -> bytes:
        return self._sealer.seal(msgspec.json.encode(secrets), f"secret:{org_id}:{endpoint_id}")

    def _secrets(self, row: Record) -> list[str]:
        """Newest first."""
        clear = self._sealer.unseal(row["secret_sealed"], f"secret:{row['org_id']}:{row['id']}")
        return msgspec.json.decode(clear, type=list[str])

    def _unseal_headers(self, row: Record) -> tuple[tuple[str, str], ...]:
        if row["headers_sealed"] is None:
            return ()
        clear = self._sealer.unseal(row["headers_sealed"], f"headers:{row['org_id']}:{row['id']}")
        return msgspec.json.decode(clear, type=tuple[tuple[str, str], ...])

    def terms_of(self, row: Record) -> EndpointTerms:
        """What a delivery needs, secrets in the clear.

        Where they do not open, the answer is the problem: one endpoint must not keep all others from their deliveries.
        """
        secrets: tuple[bytes, ...] = ()
        headers: tuple[tuple[str, str], ...] = ()
        apprise_url: str | None = None
        problem = None
        try:
            secrets = tuple(map(sign.decode_secret, self._secrets(row)))
            headers = self._unseal_headers(row)
            apprise_url = self._unseal_apprise(row)
        except _UNREADABLE as error:
            log.error(
                "endpoint_unreadable", endpoint_id=str(row["id"]), org_id=str(row["org_id"]), why=type(error).__name__
            )
            problem = _SEALED_SHUT
        return EndpointTerms(
            org_id=row["org_id"],
            id=row["id"],
            name=row["name"],
            url=row["url"] or "",
            secrets=secrets,
            headers=headers,
            ca_pem=row["ca_pem"],
            deleted=row["deleted_at"] is not None,
            problem=problem,
            all_until=row["previous_secret_until"],
            org_name=row["org_name"],
            exchange=row["exchange"],
            routing_key=row["routing_key"],
            mail_to=tuple(row["mail_to"] or ()),
            apprise_url=apprise_url or "",
        )


class EndpointTermsBook:
    """core.ports.EndpointBook over the engine's connection."""

    def __init__(self, db: Database, sealer: Sealer) -> None:
        self._db = db
        self._endpoints = Endpoints(sealer)

    async def terms(self, keys: Sequence[tuple[UUID, UUID]]) -> list[EndpointTerms]:
        rows = await self._db.fetch("endpoints_by_id", [org for org, _ in keys], [id for _, id in keys])
        return [self._endpoints.terms_of(row) for row in rows]


async def get_endpoint(session: Session, endpoint_id: UUID) -> Record | None:
    return await session.fetchrow("get_endpoint", session.org_id, endpoint_id)


async def list_relays(session: Session, *, limit: int) -> list[Record]:
    """The first relays by name."""
    return await session.fetch("list_relays", session.org_id, limit)


async def lock_endpoint(session: Session, endpoint_id: UUID) -> Record | None:
    """Read it for a change: whoever else changes it waits until this transaction ends."""
    return await session.fetchrow("lock_endpoint", session.org_id, endpoint_id)


async def list_endpoints(session: Session, *, limit: int, after: Sequence[object] | None) -> Page:
    rows = await session.fetch("list_endpoints", session.org_id, after[0] if after else None, limit + 1)
    return page_of(rows, limit, ("id",), await count_endpoints(session))


async def count_endpoints(session: Session) -> int:
    total = await session.fetchrow("count_endpoints", session.org_id)
    return int(total["n"]) if total else 0


async def delete_endpoint(session: Session, endpoint_id: UUID, act: Act) -> bool:
    """Take it away. Its open tasks fall due and die with that reason, each a dead letter, also those that waited in a
    halted lane. After it: pausing.release.
    """
    row = await lock_endpoint(session, endpoint_id)
    if row is None:
        return False
    await session.execute("delete_endpoint", session.org_id, endpoint_id)
    await reset_state(session, endpoint_id)  # nobody is to look for it among the breakers that are open
    await lift_halts(session, endpoint_id=endpoint_id)
    await audit.record(session, act, "endpoint.delete", "endpoint", endpoint_id, before={"name": row["name"]})
    return True


def _place(spec: EndpointSpec) -> tuple[object, ...]:
    """Where it leads."""
    return spec.url, spec.exchange, spec.routing_key, spec.to, spec.apprise_url


def _headers_of(row: Record) -> bytes | None:
    sealed: bytes | None = row["headers_sealed"]
    return sealed


def _columns(spec: EndpointSpec, headers_sealed: bytes | None) -> tuple[object, ...]:
    return (
        spec.name,
        spec.url,
        list(spec.event_types),
        [like_pattern(event_type) for event_type in spec.event_types],
        spec.policy,
        spec.ordered,
        spec.external_system,
        headers_sealed,
        spec.ca_pem,
        spec.timeout_s,
        spec.max_in_flight,
        spec.rate_per_s,
        spec.disabled,
        spec.max_block_s,
        spec.on_block,
    )


def _audited(spec: EndpointSpec) -> dict[str, object]:
    """For the audit: header names, never their values, and the URL without what may be secret in it."""
    return {
        "name": spec.name,
        "url": redact_url(spec.url) if spec.url else None,
        "event_types": list(spec.event_types),
        "kind": spec.kind,
        "policy": spec.policy,
        "ordered": spec.ordered,
        "external_system": spec.external_system,
        "headers": sorted(name for name, _ in spec.headers),
        "timeout_s": spec.timeout_s,
        "max_in_flight": spec.max_in_flight,
        "rate_per_s": spec.rate_per_s,
        "max_block_s": spec.max_block_s,
        "on_block": spec.on_block,
        "disabled": spec.disabled,
        "verify": spec.verify.scheme if spec.verify else None,
        "exchange": spec.exchange,
        "routing_key": spec.routing_key,
        "to": spec.to,
        "apprise_url": _apprise_shown(spec.apprise_url),
    }


def _apprise_shown(apprise_url: str | None) -> str | None:
    """The service alone."""
    return hidden(service_of(apprise_url) or "") if apprise_url is not None else None
