"""What the preview of a policy looks like."""

from redrive.api.schemas.base import Answer, example


class PlannedRetry(Answer):
    retry: int
    delay_s: float
    min_s: float
    max_s: float
    at_s: float


class DraftPreview(Answer):
    """The schedule of a policy that is being written."""

    model_config = example(
        {
            "policy": None,
            "max_retries": 1,
            "retries": [{"retry": 0, "delay_s": 2.0, "min_s": 1.5, "max_s": 2.5, "at_s": 2.0}],
        }
    )

    policy: str | None
    max_retries: int | None
    retries: list[PlannedRetry]
