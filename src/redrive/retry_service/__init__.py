"""The retry queue and the dead letters from Python. Public as `redrive.RetryService`."""

from redrive.retry_service.errors import NotFound, NotPossible, RetryServiceError
from redrive.retry_service.service import RetryService

__all__ = ["NotFound", "NotPossible", "RetryService", "RetryServiceError"]
