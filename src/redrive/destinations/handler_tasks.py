"""What handlers get: a call, or a step of a workflow. Made by destinations.python."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from json import dumps, loads
from typing import Any
from uuid import UUID

from redrive.core.step_ports import StepBook, StepTerms
from redrive.core.steps import MAX_OUTPUT_BYTES

MAX_EFFECT_NAME_CHARS = 200
MAX_EFFECT_BYTES = 65_536  # of what came of one, as JSON
# The input of a step that is written in Python, unless it is given another: all that there is.
WHOLE_INPUT = {"input": "{{ input }}", "steps": "{{ steps }}"}


@dataclass(frozen=True, slots=True)
class Task:
    """What a handler gets. `idempotency_key` is the same for every try: hand it on to whatever must act once."""

    id: UUID
    name: str
    body: bytes
    attempt: int
    org_id: UUID
    event_id: UUID
    correlation_id: str | None
    traceparent: str | None = None  # of this try: hand it on, and what others do for it is part of the same trace

    @property
    def payload(self) -> Any:
        """The body as JSON."""
        return loads(self.body)

    @property
    def idempotency_key(self) -> str:
        return str(self.event_id)


@dataclass(frozen=True, slots=True)
class StepTask(Task):
    """What a handler gets that is a step of a run. `idempotency_key` names the run and the step: it is the same for
    every try, and also when a person replays the step, unless they ask for another.
    """

    terms: StepTerms = field(repr=False, kw_only=True)
    book: StepBook = field(repr=False, kw_only=True)

    @property
    def idempotency_key(self) -> str:
        return self.terms.idempotency_key

    @property
    def run_id(self) -> UUID:
        return self.terms.run_id

    @property
    def workflow(self) -> str:
        return self.terms.workflow

    @property
    def step(self) -> str:
        return self.terms.spec.name

    @property
    def index(self) -> int:
        return self.terms.step

    @property
    def input(self) -> Any:
        """The run's input; where the definition or a replay gives the step an input of its own, that."""
        payload = self.payload
        return payload["input"] if self._is_whole else payload

    @property
    def outputs(self) -> Mapping[str, Any]:
        """What the steps before it returned, by their names. Empty where its input is its own."""
        if not self._is_whole:
            return _Outputs()
        return _Outputs({name: step["output"] for name, step in self.payload["steps"].items()})

    @property
    def _is_whole(self) -> bool:
        """Not where a person replays it with an input of another shape: then that is its input."""
        payload = self.payload
        is_shaped = isinstance(payload, dict) and payload.keys() == WHOLE_INPUT.keys()
        return is_shaped and isinstance(payload["steps"], dict) and bool(self.terms.spec.input == WHOLE_INPUT)

    async def once(self, name: str, act: Callable[[], Awaitable[Any] | Any]) -> Any:
        """Do something with an effect once in this step, however often it is tried: what came of it is kept, and given
        back the next time. Between the effect and the keeping a crash may fall: hand `idempotency_key` on as well.
        """
        if not 1 <= len(name) <= MAX_EFFECT_NAME_CHARS or not name.isprintable():
            raise ValueError(f"the name of an effect has 1 to {MAX_EFFECT_NAME_CHARS} printable characters")
        key = f"{self.idempotency_key}:{name}"
        known = await self.book.effect(self.org_id, key)
        if known is not None:
            return loads(known)
        result = act()
        if inspect.isawaitable(result):
            result = await result
        kept = json_of(result)
        if len(kept) > MAX_EFFECT_BYTES:
            raise ValueError(
                f"the effect {name!r} came to {len(kept)} bytes, of which at most {MAX_EFFECT_BYTES} are kept"
            )
        return loads(await self.book.keep_effect(self.org_id, key, self.run_id, kept))


class _Outputs(dict[str, Any]):
    """Outputs by the names of their steps. It says why one may not be there."""

    def __missing__(self, name: str) -> Any:
        known = f"there are those of {', '.join(self)}" if self else "there are none"
        raise KeyError(
            f"there is no output of a step {name!r} ({known}): it has not succeeded, or its output was larger than "
            f"{MAX_OUTPUT_BYTES} bytes and was not kept"
        )


def json_of(value: object) -> bytes:
    """As JSON that anybody can read; TypeError or ValueError where it is not."""
    return dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
