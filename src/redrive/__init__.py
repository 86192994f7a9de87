"""Redrive: reliable delivery. What it is handed succeeds, or it is in front of a person."""

from typing import TYPE_CHECKING, Any

from redrive.core.classify import ConfigurationError, ErrorClass, classify_error, error_category, is_retriable
from redrive.core.notices import DeadLetterNotice
from redrive.core.steer import GiveUp, RetryLater
from redrive.destinations.handler_tasks import StepTask, Task
from redrive.library import Redrive
from redrive.python_workflows import step
from redrive.sources.messages import Message
from redrive.version import __version__

if TYPE_CHECKING:
    from redrive.retry_service import NotFound, NotPossible, RetryService

__all__ = [
    "ConfigurationError",
    "DeadLetterNotice",
    "ErrorClass",
    "GiveUp",
    "Message",
    "NotFound",
    "NotPossible",
    "Redrive",
    "RetryLater",
    "RetryService",
    "StepTask",
    "Task",
    "__version__",
    "classify_error",
    "error_category",
    "is_retriable",
    "step",
]

_OF_RETRY_SERVICE = ("NotFound", "NotPossible", "RetryService")


def __getattr__(name: str) -> Any:
    """Loaded on first use: the service brings the whole of Redrive with it, which a producer does not need."""
    if name in _OF_RETRY_SERVICE:
        from redrive import retry_service

        return getattr(retry_service, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
