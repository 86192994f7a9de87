"""Redrive: reliable delivery. What it is handed succeeds, or it is in front of a person."""

from redrive.core.classify import ConfigurationError, classify_error, error_category, is_retriable
from redrive.core.steer import GiveUp, RetryLater
from redrive.destinations.python import Task
from redrive.library import Redrive
from redrive.version import __version__

__all__ = [
    "ConfigurationError",
    "GiveUp",
    "Redrive",
    "RetryLater",
    "Task",
    "__version__",
    "classify_error",
    "error_category",
    "is_retriable",
]
