"""What the descriptions of answers share. Used by the modules beside it and by the routes."""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")


class Answer(BaseModel):
    """An answer's shape. Give an example: model_config = example({...})."""

    model_config = ConfigDict(extra="forbid")


def example(value: object) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [value]})  # type: ignore[list-item]


class Pagination(Answer):
    limit: int
    cursor: str | None
    has_more: bool
    total_count: int | None


class Page(Answer, Generic[T]):
    data: list[T]
    pagination: Pagination


def shows(model: Any, status: int = 200, description: str = "Done") -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: what its success looks like."""
    return {status: {"model": model, "description": description}}
