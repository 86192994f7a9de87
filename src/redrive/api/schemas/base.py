"""What the descriptions of answers share. Used by the modules beside it and by the routes."""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")

# Ids and a time that examples share, so that they tell one story.
EVENT_ID = "01a1e05b-5aec-76fd-b267-89cbfe72c162"
ENDPOINT_ID = "01a1e05b-5ad1-7b81-bb4b-58a3eab6dc35"
TASK_ID = "01a1e05b-e6ca-7d07-b2a6-f10eff05adb8"
WORKER_ID = "01a1e05b-5f0e-7c1d-9a3b-2f6e8d104c57"
AT = "2026-11-15T17:57:26.931764Z"


class Answer(BaseModel):
    """An answer's shape. Give an example: model_config = example({...})."""

    model_config = ConfigDict(extra="forbid")


def example(value: object) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [value]})  # type: ignore[list-item]


class Pagination(Answer):
    """`cursor` leads on where `has_more` is true; `total_count` is null where there are too many to count."""

    model_config = example({"limit": 50, "cursor": None, "has_more": False, "total_count": 1})

    limit: int
    cursor: str | None
    has_more: bool
    total_count: int | None


class Page(Answer, Generic[T]):
    """A page of a list. Its example is one of T's."""

    data: list[T]
    pagination: Pagination


# For the `openapi_extra` of a route that takes one.
IDEMPOTENT: dict[str, Any] = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
            "description": "The same key with the same body is answered, not done again; with another body: 409.",
        }
    ]
}


def shows(model: Any, status: int = 200, description: str = "Done") -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: what its success looks like."""
    return {status: {"model": model, "description": description}}
