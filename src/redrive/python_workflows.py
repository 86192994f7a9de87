"""Workflows written in Python: a class whose steps are its methods, in the order in which they stand.

    @app.workflow("fulfil")
    class Fulfil:
        @step(max_retries=5)
        async def charge(self, task): ...

        cool_off = step.wait(30)

Behind it is the same definition that `PUT /v1/workflows/{name}` takes: a worker that runs the app stores it.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar, overload

from redrive.core.workflow import Workflow
from redrive.destinations.handler_tasks import WHOLE_INPUT
from redrive.destinations.python import Handler

M = TypeVar("M", bound=Callable[..., Any])


class Declared(NamedTuple):
    """A step as it stands in a class: the fields of its definition, and what carries it out, where that is Python."""

    fields: Mapping[str, Any]
    method: Callable[..., Any] | None = None


class _Step:
    """`@step`, `@step(…)` for methods; `step.http(…)`, `step.emit(…)` and `step.wait(…)` for steps without code."""

    @overload
    def __call__(self, method: M, /) -> M: ...

    @overload
    def __call__(self, /, **fields: Any) -> Callable[[M], M]: ...

    def __call__(self, method: Any = None, /, **fields: Any) -> Any:
        """A method that carries out a step: it gets a StepTask, and what it returns is the step's output.

        `fields`: policy, max_retries, timeout_s, external_system, input.
        """
        if method is None:
            return partial(_declared, fields)
        if not callable(method):
            raise TypeError(f"@step takes the fields of a step by name, as in @step(max_retries=5), not {method!r}")
        return _declared(fields, method)

    @staticmethod
    def http(url: str | None = None, **fields: Any) -> Declared:
        """A call over HTTP: endpoint, method, headers, body, expected_status, besides the fields of every step."""
        return Declared({"kind": "http", **({} if url is None else {"url": url}), **fields})

    @staticmethod
    def emit(event_type: str, **fields: Any) -> Declared:
        """An event for whoever subscribes to its type: payload, ordering_key, endpoint."""
        return Declared({"kind": "emit", "event_type": event_type, **fields})

    @staticmethod
    def wait(wait_s: float | str | None = None, **fields: Any) -> Declared:
        """A pause: of so many seconds, or `until` a time."""
        return Declared({"kind": "wait", **({} if wait_s is None else {"wait_s": wait_s}), **fields})


def _declared(fields: Mapping[str, Any], method: Callable[..., Any]) -> Declared:
    return Declared({"kind": "handler", "input": WHOLE_INPUT, **fields}, method)


step = _Step()


def read_class(name: str, cls: type) -> tuple[Workflow, dict[str, Handler]]:
    """The definition that a class stands for, and the handlers of its steps. WorkflowError where it is none."""
    found = _steps_of(cls)
    itself = cls()
    steps: list[dict[str, Any]] = []
    handlers: dict[str, Handler] = {}
    for attribute, declared in found.items():
        fields = {"name": attribute, **declared.fields}
        if declared.method is not None:
            handler = f"{name}.{attribute}"
            fields = {"handler": handler, **fields}
            handlers[handler] = _bound(declared.method, itself)
        steps.append(fields)
    description = inspect.getdoc(cls)
    spec = {"steps": steps} if description is None else {"description": description, "steps": steps}
    return Workflow.from_spec(name, spec), handlers


def _steps_of(cls: type) -> dict[str, Declared]:
    """Those of its base classes first. What a class overrides stays in its place, unless it is no step any more."""
    found: dict[str, Declared] = {}
    for owner in reversed(cls.__mro__):
        for attribute, value in vars(owner).items():
            if isinstance(value, Declared):
                found[attribute] = value
            else:
                found.pop(attribute, None)
    return found


def _bound(method: Callable[..., Any], itself: object) -> Handler:
    """The method of the instance; still a coroutine function where it is one."""
    bound: Handler = method.__get__(itself)
    return bound
