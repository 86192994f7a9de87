"""Reading bulk actions as people send them: which tasks, by ids or by a filter, and how fast. Pure.

Called by the bulk routes. The filters are those of the lists (a test compares them).
"""

from itertools import pairwise
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from redrive.api.endpoint_input import RatePerS
from redrive.api.queries import BecauseIn, EndMoment, Moment, PageQuery, Text
from redrive.core.operations import MAX_IDS, MAX_STAGES, Canary
from redrive.core.outcome import Category
from redrive.store.dead_letters import Order
from redrive.store.operations import DEAD_LETTERS, RETRY_QUEUE, OperationSpec


def _each_once(ids: list[UUID]) -> list[UUID]:
    if len(set(ids)) != len(ids):
        raise ValueError("an id is named more than once")
    return ids


def _rising(stages: list[float]) -> list[float]:
    if any(late <= early for early, late in pairwise(stages)):
        raise ValueError("each stage must be larger than the one before")
    return stages


def _is_text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a text")  # noqa: TRY004 (pydantic reads ValueError)
    return value


# Not strict: in JSON an id and a time are texts. But never numbers, which would be read as seconds.
Id = Annotated[UUID, Field(strict=False), BeforeValidator(_is_text)]
Time = Annotated[Moment, Field(strict=False), BeforeValidator(_is_text)]
EndTime = Annotated[EndMoment, Field(strict=False), BeforeValidator(_is_text)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=MAX_IDS), AfterValidator(_each_once)]
Percent = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
Stages = Annotated[list[Percent], Field(min_length=1, max_length=MAX_STAGES), AfterValidator(_rising)]
MAX_PATCH_BYTES = 65_536
EXAMPLE_ID = "01a1e060-ffa4-7994-baec-3e968ddb2a3e"


class _FilterIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="after")
    def _not_empty(self) -> "_FilterIn":
        if not self.chosen():
            raise ValueError("an empty filter means everything: say what is meant, or name ids")
        return self

    def chosen(self) -> dict[str, object]:
        return self.model_dump(mode="json", exclude_none=True)


class RetryQueueFilterIn(_FilterIn):
    """As the filters of GET /v1/retry-queue."""

    status: Literal["pending", "in_progress"] | None = None
    event_type: Text | None = None
    external_system: Text | None = None
    endpoint_id: Id | None = None
    category: Annotated[Category, Field(strict=False)] | None = None
    q: Text | None = None


class DeadLetterFilterIn(_FilterIn):
    """As the filters of GET /v1/dead-letters; the open ones unless another state is named."""

    state: Literal["open", "replaying", "resolved", "ignored"] | None = None
    kind: Text | None = None
    event_type: Text | None = None
    external_system: Text | None = None
    endpoint_id: Id | None = None
    reason: Literal["permanent", "exhausted", "expired", "skipped"] | None = None
    category: Annotated[Category, Field(strict=False)] | None = None
    fingerprint: Text | None = None
    since: Time | None = None
    until: EndTime | None = None
    failed_since: Time | None = None
    failed_until: EndTime | None = None
    q: Text | None = None
    event_id: Id | None = None
    correlation_id: Text | None = None


class _ChoiceIn(BecauseIn):
    ids: Ids | None = None

    def _filter(self) -> dict[str, object] | None:
        given: _FilterIn | None = getattr(self, "filter", None)
        return None if given is None else given.chosen()

    @model_validator(mode="after")
    def _one_of_both(self) -> "_ChoiceIn":
        if (self.ids is None) == (self._filter() is None):
            raise ValueError("give either ids or a filter")
        return self


class QueueBulkIn(_ChoiceIn):
    """Entries of the retry queue: by their ids, or all that a filter matches now."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"ids": [EXAMPLE_ID], "because": "the receiver is back"}]},
    )

    # The first system called them retryIds.
    ids: Ids | None = Field(default=None, validation_alias=AliasChoices("ids", "retryIds"))
    filter: RetryQueueFilterIn | None = None

    def spec(self, action: Literal["retry", "skip"]) -> OperationSpec:
        return OperationSpec(RETRY_QUEUE, action, self.ids, self._filter())


class CanaryIn(BaseModel):
    """Begin with a few: stages in percent of all, and the share of a stage that may fail before all stops."""

    model_config = ConfigDict(extra="forbid", strict=True)

    stages: Stages
    max_failure_rate: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class LettersBulkIn(_ChoiceIn):
    """Dead letters: by their ids, or all that a filter matches now.

    `now`, `patch` and `order` go with `retry`: no first delay; a merge patch (RFC 7396) over each payload; where those
    that are in a lane go.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "action": "retry",
                    "filter": {"event_type": "invoice.paid", "reason": "exhausted"},
                    "because": "the receiver is back",
                    "canary": {"stages": [1, 5, 25], "max_failure_rate": 0.1},
                }
            ]
        },
    )

    action: Literal["retry", "resolve", "ignore", "delete", "reopen"]
    filter: DeadLetterFilterIn | None = None
    now: bool = False
    canary: CanaryIn | None = None
    rate_per_s: RatePerS | None = None
    patch: Annotated[dict[str, object] | None, Field(min_length=1, examples=[{"currency": "EUR"}])] = None
    order: Order | None = None

    @model_validator(mode="after")
    def _fits_its_action(self) -> "LettersBulkIn":
        if self.action != "retry" and (self.now or self.patch is not None or self.order is not None):
            raise ValueError("now, patch and order go with the action retry only")
        if self.action == "reopen" and self.filter is not None and self.filter.state in (None, "open"):
            raise ValueError("reopening needs the state in its filter: resolved or ignored")
        if self.patch is not None and len(msgspec.json.encode(self.patch)) > MAX_PATCH_BYTES:
            raise ValueError(f"a patch has at most {MAX_PATCH_BYTES} bytes")
        return self

    def spec(self) -> OperationSpec:
        canary = self.canary and Canary(tuple(self.canary.stages), self.canary.max_failure_rate)
        how = (self.now, canary or None, self.rate_per_s, self.patch, self.order)
        return OperationSpec(DEAD_LETTERS, self.action, self.ids, self._filter(), *how)


class RecoverIn(BecauseIn):
    """Redrive what died for an endpoint since then."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"since": "2026-11-15T09:00:00Z", "because": "the receiver is back"}]},
    )

    since: Time

    def spec(self, endpoint_id: UUID) -> OperationSpec:
        since = self.model_dump(mode="json")["since"]  # as a filter would have it: with Z
        return OperationSpec(DEAD_LETTERS, "retry", filter={"endpoint_id": str(endpoint_id), "failed_since": since})


class WaitQuery(BaseModel):
    """`wait`: answer with the result, after 30 s at most; `pending` says how many were not finished by then."""

    model_config = ConfigDict(extra="forbid")

    wait: bool = False


class ItemsQuery(PageQuery):
    state: Literal["waiting", "sent", "succeeded", "failed"] | None = None


class OperationsQuery(PageQuery):
    state: Literal["preparing", "running", "paused", "cancelled", "completed"] | None = None
    active: bool | None = None
    by: Text | None = None
